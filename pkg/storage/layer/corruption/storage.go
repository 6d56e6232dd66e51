// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package corruption

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
)

// Storage wraps upstream's storage below the watch cache. inner must support unsafe
// deletion. Errors name the objects.
func (d *Detector) Storage(inner storage.Interface) storage.Interface {
	return &uncached{Interface: inner, d: d}
}

type uncached struct {
	storage.Interface
	d *Detector
}

// Get implements storage.Interface.
func (s *uncached) Get(ctx context.Context, key string, options storage.GetOptions, out runtime.Object) error {
	err := s.Interface.Get(ctx, key, options, out)
	switch {
	case storage.IsCorruptObject(err):
		key, reason := normalized(key), reasonOf(err.Error())
		s.d.record(ctx, map[string]string{key: reason})
		return storeReadError(s.d.config.Resource, explanation(s.d.config.Resource, []Object{s.d.object(key, reason)}))
	case err == nil || storage.IsNotFound(err):
		s.d.forget(key)
	}
	return err
}

// GetList implements storage.Interface.
func (s *uncached) GetList(ctx context.Context, key string, options storage.ListOptions, list runtime.Object) error {
	if err := s.stillUnreadable(ctx, key, options.Recursive); err != nil {
		return err
	}
	// Upstream does not close the stream of a failed list, and a watch cache lists with a
	// context that does not end.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// Upstream appends, and layers above repeat a list that has failed after a part of the objects.
	if err := meta.SetList(list, nil); err != nil {
		return fmt.Errorf("empty a list of %s: %w", s.d.config.Resource, err)
	}
	err := s.Interface.GetList(ctx, key, options, list)
	found := map[string]string{}
	for inEtcd, reason := range unreadableCauses(err) {
		found[s.d.fromEtcd(inEtcd)] = reason
	}
	if err != nil && len(found) == 0 {
		return err
	}
	s.d.record(ctx, found)
	// Unreadable objects of other pages and earlier lists may be readable by now.
	for _, known := range s.d.below(key) {
		if _, again := found[known]; !again {
			_ = s.Get(ctx, known, storage.GetOptions{}, s.d.config.New()) // updates the record
		}
	}
	if err == nil {
		if options.Recursive && normalized(key) == normalized(s.d.config.ResourcePrefix) && isLastPage(list) {
			s.d.NoteAllRead()
		}
		return nil
	}
	return s.d.failedList(err, key)
}

func isLastPage(list runtime.Object) bool {
	end, err := meta.ListAccessor(list)
	return err == nil && end.GetContinue() == ""
}

// failedList replaces the keys in the error of a list by names.
func (d *Detector) failedList(err error, key string) error {
	d.mu.Lock()
	d.failed = time.Now()
	d.mu.Unlock()
	var failed *apierrors.StatusError
	if objects := d.objects(d.below(key)); len(objects) > 0 && errors.As(err, &failed) {
		failed.ErrStatus.Message = explanation(d.config.Resource, objects)
	}
	return err
}

// Watch implements storage.Interface.
func (s *uncached) Watch(ctx context.Context, key string, options storage.ListOptions) (watch.Interface, error) {
	beginsWithAll := options.SendInitialEvents != nil && *options.SendInitialEvents ||
		options.SendInitialEvents == nil && (options.ResourceVersion == "" || options.ResourceVersion == "0")
	if beginsWithAll {
		if err := s.stillUnreadable(ctx, key, options.Recursive); err != nil {
			return nil, err
		}
	}
	return s.Interface.Watch(ctx, key, options)
}

// stillUnreadable returns the error of a list that would fail like a recent one. Watch
// caches retry every second, and reading and decoding all objects each time would use a
// whole CPU.
func (s *uncached) stillUnreadable(ctx context.Context, key string, recursive bool) error {
	s.d.mu.Lock()
	recent := time.Since(s.d.failed) < s.d.config.Interval
	s.d.mu.Unlock()
	if !recent || !recursive {
		return nil
	}
	for _, known := range s.d.below(key) {
		if err := s.Get(ctx, known, storage.GetOptions{}, s.d.config.New()); apierrors.IsStoreReadError(err) {
			return s.d.refusal(key)
		}
	}
	return nil
}

func (d *Detector) refusal(key string) error {
	return storeReadError(d.config.Resource, explanation(d.config.Resource, d.objects(d.below(key))))
}

// Delete implements storage.Interface. Upstream would delete an object that it fails to
// read for any reason.
func (s *uncached) Delete(
	ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validate storage.ValidateObjectFunc, cached runtime.Object, options storage.DeleteOptions,
) error {
	if options.ExpectTransformOrDecodeError {
		if err := s.Get(ctx, key, storage.GetOptions{}, s.d.config.New()); err != nil && !apierrors.IsStoreReadError(err) {
			return err
		}
	}
	err := s.Interface.Delete(ctx, key, out, preconditions, validate, cached, options)
	if err == nil {
		s.d.forget(key)
	}
	return err
}

// Cached wraps the watch cache, which cannot be filled while an object is unreadable.
// Clients would get 429, and retry silently for a long time.
func (d *Detector) Cached(inner storage.Interface) storage.Interface {
	return &cached{Interface: inner, d: d}
}

type cached struct {
	storage.Interface
	d *Detector
}

// GetList implements storage.Interface.
func (s *cached) GetList(ctx context.Context, key string, options storage.ListOptions, list runtime.Object) error {
	return s.explain(s.Interface.GetList(ctx, key, options, list))
}

// Watch implements storage.Interface.
func (s *cached) Watch(ctx context.Context, key string, options storage.ListOptions) (watch.Interface, error) {
	watched, err := s.Interface.Watch(ctx, key, options)
	return watched, s.explain(err)
}

func (s *cached) explain(err error) error {
	all := s.d.config.ResourcePrefix
	if !apierrors.IsTooManyRequests(err) || len(s.d.below(all)) == 0 {
		return err
	}
	return s.d.refusal(all)
}
