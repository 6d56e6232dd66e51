// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package corruption

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
)

// Storage goes around upstream's, which has to be one that can delete what it cannot
// read, and below the watch cache. Its errors name the objects.
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
		s.d.note(ctx, map[string]string{key: reason}, func(string) bool { return false })
		return storeReadError(s.d.config.Resource, explanation(s.d.config.Resource, []Object{s.d.object(key, reason)}))
	case err == nil || storage.IsNotFound(err):
		s.d.forget(ctx, key)
	}
	return err
}

// GetList implements storage.Interface.
func (s *uncached) GetList(ctx context.Context, key string, options storage.ListOptions, list runtime.Object) error {
	if err := s.stillUnreadable(ctx, key, options.Recursive); err != nil {
		return err
	}
	// Upstream leaves the stream of a list that fails as it is, and a watch cache lists
	// with a context that does not end.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	err := s.Interface.GetList(ctx, key, options, list)
	found := map[string]string{}
	for inEtcd, reason := range unreadableCauses(err) {
		found[s.d.fromEtcd(inEtcd)] = reason
	}
	if err != nil && len(found) == 0 {
		return err
	}
	s.d.note(ctx, found, func(string) bool { return false })
	// Those of another page, or of before, may be readable by now.
	for _, known := range s.d.below(key) {
		if _, again := found[known]; !again {
			_ = s.Get(ctx, known, storage.GetOptions{}, s.d.config.New()) // notes what it finds
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

// isLastPage reports whether nothing follows a list.
func isLastPage(list runtime.Object) bool {
	end, err := meta.ListAccessor(list)
	return err == nil && end.GetContinue() == ""
}

// failedList makes the error of a list say what people call the objects.
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

// stillUnreadable returns the error of a list that would fail as one did a moment ago.
// Watch caches try it every second, and to read and decode all objects for that would
// take a processor.
func (s *uncached) stillUnreadable(ctx context.Context, key string, recursive bool) error {
	s.d.mu.Lock()
	lately := time.Since(s.d.failed) < s.d.config.Interval
	s.d.mu.Unlock()
	if !lately || !recursive {
		return nil
	}
	for _, known := range s.d.below(key) {
		if err := s.Get(ctx, known, storage.GetOptions{}, s.d.config.New()); apierrors.IsStoreReadError(err) {
			return s.d.refusal(key)
		}
	}
	return nil
}

// refusal is the error of a list that meets objects which are known to be unreadable.
func (d *Detector) refusal(key string) error {
	return storeReadError(d.config.Resource, explanation(d.config.Resource, d.objects(d.below(key))))
}

// Delete implements storage.Interface. Upstream would delete any object that it fails to
// read now, also where that is not the object's fault.
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
		s.d.forget(ctx, key)
	}
	return err
}

// Cached goes around the watch cache, which cannot be filled while an object cannot be
// read. Clients would be told to come again, and do so for a long time in silence.
func (d *Detector) Cached(inner storage.Interface) storage.Interface {
	return &cached{Interface: inner, d: d}
}

type cached struct {
	storage.Interface
	d *Detector
}

// GetList implements storage.Interface.
func (s *cached) GetList(ctx context.Context, key string, options storage.ListOptions, list runtime.Object) error {
	return s.explained(s.Interface.GetList(ctx, key, options, list))
}

// Watch implements storage.Interface.
func (s *cached) Watch(ctx context.Context, key string, options storage.ListOptions) (watch.Interface, error) {
	watched, err := s.Interface.Watch(ctx, key, options)
	return watched, s.explained(err)
}

func (s *cached) explained(err error) error {
	all := s.d.config.ResourcePrefix
	if !apierrors.IsTooManyRequests(err) || len(s.d.below(all)) == 0 {
		return err
	}
	return s.d.refusal(all)
}
