// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package quarantine

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/warning"
)

// maxAttempts is how often a list is tried. The shortest of pages meet one damaged
// value after the other.
const maxAttempts = maxHidden + 3

// Storage goes right around upstream's, which has to be one that can delete what
// it cannot read. It tries again the lists that a few damaged values made fail.
func (q *Quarantine) Storage(inner storage.Interface) storage.Interface {
	return &below{Interface: inner, q: q}
}

type below struct {
	storage.Interface
	q *Quarantine
}

// GetList implements storage.Interface.
func (s *below) GetList(ctx context.Context, key string, options storage.ListOptions, list runtime.Object) error {
	for attempt := 1; ; attempt++ {
		err := s.Interface.GetList(ctx, key, options, list)
		if err == nil && options.Recursive {
			s.q.noteWhole(key, list)
		}
		keys := unreadableKeys(err)
		if len(keys) == 0 || attempt == maxAttempts || !options.Recursive {
			return err
		}
		if again, examineErr := s.q.examine(ctx, keys); examineErr != nil || !again {
			return err
		}
		if err := meta.SetList(list, nil); err != nil {
			return fmt.Errorf("emptying a list: %w", err)
		}
	}
}

// noteWhole notes a list that ended with the last of all objects.
func (q *Quarantine) noteWhole(key string, list runtime.Object) {
	end, err := meta.ListAccessor(list)
	if err == nil && end.GetContinue() == "" && q.isWhole(key) {
		q.sawAll()
	}
}

// isWhole reports whether a key of the storage has all objects below it.
func (q *Quarantine) isWhole(key string) bool {
	return strings.TrimSuffix(q.fullKey(key), "/") == strings.TrimSuffix(q.config.Prefix, "/")
}

// Get implements storage.Interface. What it finds damaged is kept apart before a
// list meets it.
func (s *below) Get(ctx context.Context, key string, options storage.GetOptions, out runtime.Object) error {
	err := s.Interface.Get(ctx, key, options, out)
	if storage.IsCorruptObject(err) {
		if _, examineErr := s.q.examine(ctx, []string{s.q.fullKey(key)}); examineErr != nil {
			return errors.Join(err, examineErr)
		}
	}
	return err
}

// Watch implements storage.Interface. A watch fails at a value that cannot be read:
// whoever asks again is to find it kept apart.
func (s *below) Watch(ctx context.Context, key string, options storage.ListOptions) (watch.Interface, error) {
	inner, err := s.Interface.Watch(ctx, key, options)
	if err != nil {
		return nil, err
	}
	return newWatched(ctx, s.q, inner, key, options), nil
}

// fullKey is a key of the storage as etcd has it.
func (q *Quarantine) fullKey(key string) string {
	parts := strings.Split(strings.Trim(key, "/"), "/")
	prefix := strings.Split(strings.Trim(q.config.Prefix, "/"), "/")
	// The key begins with the last elements of the prefix.
	for shared := min(len(parts), len(prefix)); shared > 0; shared-- {
		if slices.Equal(parts[:shared], prefix[len(prefix)-shared:]) {
			return q.config.Prefix + strings.Join(parts[shared:], "/")
		}
	}
	return q.config.Prefix + strings.Join(parts, "/")
}

// unreadableKeys returns the keys that upstream names when a list fails because of
// them.
func unreadableKeys(err error) []string {
	var refusal *apierrors.StatusError
	if !errors.As(err, &refusal) || refusal.ErrStatus.Reason != metav1.StatusReasonStoreReadError || refusal.ErrStatus.Details == nil {
		return nil
	}
	var keys []string
	for _, cause := range refusal.ErrStatus.Details.Causes {
		if cause.Field != "" {
			keys = append(keys, cause.Field)
		}
	}
	return keys
}

// Served goes around the watch cache. It answers for objects that the cache does
// not know of because they are left out.
func (q *Quarantine) Served(inner storage.Interface) storage.Interface {
	return &above{Interface: inner, q: q}
}

type above struct {
	storage.Interface
	q *Quarantine
}

// Get implements storage.Interface. The watch cache would say that there is no such
// object.
func (s *above) Get(ctx context.Context, key string, options storage.GetOptions, out runtime.Object) error {
	if options.ResourceVersion != "" && len(s.q.hidden(key, false)) > 0 {
		options.ResourceVersion = ""
	}
	return s.explained(key, s.Interface.Get(ctx, key, options, out))
}

// GuaranteedUpdate implements storage.Interface.
func (s *above) GuaranteedUpdate(
	ctx context.Context, key string, out runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, update storage.UpdateFunc, cached runtime.Object,
) error {
	return s.explained(key, s.Interface.GuaranteedUpdate(ctx, key, out, ignoreNotFound, preconditions, update, cached))
}

// explained is the error for who asks for an object that cannot be read.
func (s *above) explained(key string, err error) error {
	if !storage.IsCorruptObject(err) {
		return err
	}
	full := s.q.fullKey(key)
	s.q.mu.RLock()
	known, ok := s.q.entries[full]
	s.q.mu.RUnlock()
	if !ok {
		known.reason = err.Error()
	}
	return s.q.refuse(fmt.Sprintf("%s %s cannot be read: %s; it has to be made readable, or deleted with %s",
		s.q.config.Resource, s.q.object(full, known), known.reason, unsafeDelete))
}

// unsafeDelete is upstream's option, which has to be true.
const unsafeDelete = "ignoreStoreReadErrorWithClusterBreakingPotential"

// GetList implements storage.Interface. Clients that list are told what is left
// out; who lists to delete is refused.
func (s *above) GetList(ctx context.Context, key string, options storage.ListOptions, list runtime.Object) error {
	if _, err := s.leftOut(ctx, key, options); err != nil {
		return err
	}
	if err := s.Interface.GetList(ctx, key, options, list); err != nil {
		return err
	}
	// This list may have been the one that met a value which cannot be read.
	left, err := s.leftOut(ctx, key, options)
	if err == nil && len(left) > 0 {
		warning.AddWarning(ctx, "", fmt.Sprintf("%s cannot be read and left out: %s; reading one by its name says why", s.q.config.Resource, Names(left)))
	}
	return err
}

// leftOut returns what a list is without, or an error for who may not do without.
func (s *above) leftOut(ctx context.Context, key string, options storage.ListOptions) ([]Object, error) {
	if s.q.isEmpty() {
		return nil, nil
	}
	left := s.q.hidden(key, options.Recursive)
	if len(left) == 0 {
		return nil, nil
	}
	info, ofClient := request.RequestInfoFrom(ctx)
	if !options.Recursive || !ofClient || info.Verb != "list" && info.Verb != "watch" {
		return nil, s.q.refusal(left)
	}
	return left, nil
}

// refusal is the error of who must not take what is left out for deleted.
func (q *Quarantine) refusal(left []Object) error {
	return q.refuse(fmt.Sprintf("%s cannot be read: %s; they have to be made readable, or deleted one by one with %s",
		q.config.Resource, Names(left), unsafeDelete))
}

func (q *Quarantine) refuse(message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    http.StatusInternalServerError,
		Reason:  metav1.StatusReasonStoreReadError,
		Message: message,
		Details: &metav1.StatusDetails{Group: q.config.Resource.Group, Kind: q.config.Resource.Resource},
	}}
}

// maxNames is how many objects are named where there are many.
const maxNames = 10

// Names lists objects for people: not all, if there are many.
func Names(objects []Object) string {
	names := make([]string, 0, maxNames)
	for _, object := range objects[:min(len(objects), maxNames)] {
		names = append(names, object.String())
	}
	slices.Sort(names)
	if more := len(objects) - len(names); more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names, ", "), more)
	}
	return strings.Join(names, ", ")
}
