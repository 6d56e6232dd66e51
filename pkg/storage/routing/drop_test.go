// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// answering is storage that answers reads with the result of a function.
type answering struct {
	storage.Interface
	answer func() error
}

func (a answering) ReadinessCheck() error { return nil }

func (a answering) Versioner() storage.Versioner { return versioner }

func (a answering) GetCurrentResourceVersion(context.Context) (uint64, error) {
	return 0, errors.New("unknown")
}

func (a answering) Get(context.Context, string, storage.GetOptions, runtime.Object) error {
	return a.answer()
}

func (a answering) GetList(context.Context, string, storage.ListOptions, runtime.Object) error {
	return a.answer()
}

func (a answering) Watch(context.Context, string, storage.ListOptions) (watch.Interface, error) {
	return watch.NewEmptyWatch(), a.answer()
}

// TestReadWhileCacheChanges changes spec.cache during a read, whose watch cache stops. The read is repeated with what
// replaces it.
func TestReadWhileCacheChanges(t *testing.T) {
	t.Parallel()
	stopped := apierrors.NewTooManyRequests("apiserver cacher is stopped", 1)
	reads := map[string]func(context.Context, *lazyCache) error{
		"get": func(ctx context.Context, s *lazyCache) error {
			return s.Get(ctx, "", storage.GetOptions{ResourceVersion: "0"}, nil)
		},
		"list": func(ctx context.Context, s *lazyCache) error {
			return s.GetList(ctx, "", storage.ListOptions{ResourceVersion: "0"}, nil)
		},
		"watch": func(ctx context.Context, s *lazyCache) error {
			_, err := s.Watch(ctx, "", storage.ListOptions{ResourceVersion: "0"})
			return err
		},
	}
	for name, tc := range map[string]struct {
		// during is called by the first cache.
		during                          func(context.Context, *lazyCache) error
		wantCaches, wantCache, wantEtcd int
		wantErr                         bool
	}{
		"to no cache": {
			during:     func(ctx context.Context, s *lazyCache) error { return s.Apply(ctx, hostingv1alpha1.CacheNone) },
			wantCaches: 1, wantEtcd: 1,
		},
		"to none and back": {
			during: func(ctx context.Context, s *lazyCache) error {
				expect.NoError(t, s.Apply(ctx, hostingv1alpha1.CacheNone))
				return s.Apply(ctx, hostingv1alpha1.CacheCompressed)
			},
			wantCaches: 2, wantCache: 1,
		},
		"not at all": {during: func(context.Context, *lazyCache) error { return nil }, wantCaches: 1, wantErr: true},
	} {
		for verb, read := range reads {
			t.Run(verb+" "+name, func(t *testing.T) {
				t.Parallel()
				var caches, ofCache, ofEtcd int
				s := newLazyCache(answering{answer: func() error { ofEtcd++; return nil }}, lazyCacheConfig{
					usage: func() (objects, bytes int64, known bool) { return 0, 0, false },
				})
				s.config.create = func([]uint64, hostingv1alpha1.Cache, <-chan struct{}) (*filledCache, error) {
					caches++
					first := caches == 1
					made := &filledCache{current: make(chan struct{}), attempt: &atomic.Pointer[attempt]{}, destroy: func() {}}
					close(made.current)
					made.attempt.Store(newAttempt())
					made.Interface = answering{answer: func() error {
						if !first {
							ofCache++
							return nil
						}
						expect.NoError(t, tc.during(t.Context(), s))
						return stopped
					}}
					return made, nil
				}
				expect.NoError(t, s.Apply(t.Context(), hostingv1alpha1.CacheCompressed))
				if err := read(t.Context(), s); (err != nil) != tc.wantErr {
					t.Errorf("error %v, want one: %t", err, tc.wantErr)
				}
				if caches != tc.wantCaches || ofCache != tc.wantCache || ofEtcd != tc.wantEtcd {
					t.Errorf("%d caches were built, %d reads by the second and %d by etcd, want %d, %d and %d",
						caches, ofCache, ofEtcd, tc.wantCaches, tc.wantCache, tc.wantEtcd)
				}
			})
		}
	}
}
