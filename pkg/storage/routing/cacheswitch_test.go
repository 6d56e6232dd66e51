// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"context"
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
	reads := map[string]func(context.Context, *cacheSwitch) error{
		"get": func(ctx context.Context, s *cacheSwitch) error { return s.Get(ctx, "", storage.GetOptions{}, nil) },
		"list": func(ctx context.Context, s *cacheSwitch) error {
			return s.GetList(ctx, "", storage.ListOptions{}, nil)
		},
		"watch": func(ctx context.Context, s *cacheSwitch) error {
			_, err := s.Watch(ctx, "", storage.ListOptions{})
			return err
		},
	}
	for name, tc := range map[string]struct {
		// during is called by the first cache.
		during                          func(context.Context, *cacheSwitch) error
		wantCaches, wantCache, wantEtcd int
		wantErr                         bool
	}{
		"to no cache": {
			during:     func(ctx context.Context, s *cacheSwitch) error { return s.Apply(ctx, hostingv1alpha1.CacheNone) },
			wantCaches: 1, wantEtcd: 1,
		},
		"to none and back": {
			during: func(ctx context.Context, s *cacheSwitch) error {
				expect.NoError(t, s.Apply(ctx, hostingv1alpha1.CacheNone))
				return s.Apply(ctx, hostingv1alpha1.CacheCompressed)
			},
			wantCaches: 2, wantCache: 1,
		},
		"not at all": {during: func(context.Context, *cacheSwitch) error { return nil }, wantCaches: 1, wantErr: true},
	} {
		for verb, read := range reads {
			t.Run(verb+" "+name, func(t *testing.T) {
				t.Parallel()
				var caches, ofCache, ofEtcd int
				s := &cacheSwitch{Interface: answering{answer: func() error { ofEtcd++; return nil }}}
				s.build = func(bool) (*encodedCache, error) {
					caches++
					first := caches == 1
					return &encodedCache{Interface: answering{answer: func() error {
						if !first {
							ofCache++
							return nil
						}
						expect.NoError(t, tc.during(t.Context(), s))
						return stopped
					}}, destroy: func() {}}, nil
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
