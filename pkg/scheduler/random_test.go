// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	hostingclient "github.com/annex-dev/annex/pkg/generated/clientset/versioned/typed/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/scheduler/framework"
	"github.com/annex-dev/annex/pkg/scheduler/plugins"
	"github.com/annex-dev/annex/pkg/test/expect"
)

const seeds = 50

// model computes the expected content of the cache from scratch.
type model struct {
	stores    map[string]*hostingv1alpha1.Store
	resources map[string]*hostingv1alpha1.HostedResource
	// assumed has Stores by the resource's UID.
	assumed map[types.UID]string
}

func (m *model) on(hosted *hostingv1alpha1.HostedResource) string {
	if hosted.Spec.StoreName != "" {
		return hosted.Spec.StoreName
	}
	return m.assumed[hosted.UID]
}

func (m *model) store(name string) *framework.Store {
	store := framework.NewStore(m.stores[name])
	for _, hosted := range m.resources {
		if m.on(hosted) == name {
			store.Add(framework.NewResource(hosted))
		}
	}
	return store
}

func waits(*hostingv1alpha1.HostedResource) bool { return true }

// TestCacheMatchesModel applies random operations to the cache and to a model.
func TestCacheMatchesModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(seeds) {
		random := rand.New(rand.NewPCG(seed, 5))
		s, m := newStoreCache(), &model{map[string]*hostingv1alpha1.Store{}, map[string]*hostingv1alpha1.HostedResource{}, map[types.UID]string{}}
		var log []string
		var deciding []*framework.Resource
		for step := range 100 {
			storeName, name := fmt.Sprint("s", random.IntN(3)), fmt.Sprint("r", random.IntN(6))
			key := name + ".example.com"
			op := random.IntN(8)
			log = append(log, fmt.Sprint(op, " ", storeName, " ", name))
			switch op {
			case 0:
				added := store(storeName, "4Gi")
				added.Status.SizeInUse = resource.NewQuantity(random.Int64N(4<<30), resource.BinarySI)
				m.stores[storeName] = added
				s.setStore(added)
			case 1:
				delete(m.stores, storeName)
				s.removeStore(storeName)
			case 2, 3, 4:
				hosted := newHosted(name, requests(fmt.Sprint(random.IntN(2000), "Mi")))
				hosted.Status.StoredBytes = random.Int64N(1 << 30)
				if before := m.resources[key]; before != nil && random.IntN(5) > 0 {
					hosted.UID, hosted.Spec.StoreName = before.UID, before.Spec.StoreName
				} else {
					hosted.UID = types.UID(fmt.Sprint(seed, step))
				}
				// It is bound, mostly to the Store that was decided.
				if hosted.Spec.StoreName == "" && random.IntN(3) == 0 {
					if hosted.Spec.StoreName = m.on(hosted); hosted.Spec.StoreName == "" || random.IntN(4) == 0 {
						hosted.Spec.StoreName = storeName
					}
				}
				m.resources[key] = hosted
				s.setResource(hosted)
			case 5:
				delete(m.resources, key)
				s.removeResource(key)
			case 6:
				if waiting, decision := s.decide(key, waits, plugins.All()); waiting != nil {
					if best, ok := decision.Best(); ok {
						m.assumed[waiting.UID] = best.Store
						deciding = append(deciding, waiting)
					}
				}
			case 7:
				if len(deciding) > 0 {
					failed := random.IntN(len(deciding))
					delete(m.assumed, deciding[failed].UID)
					s.forget(deciding[failed])
					deciding = slices.Delete(deciding, failed, failed+1)
				}
			}
			if diff := compare(s, m); diff != "" {
				t.Fatalf("seed %d, after\n%s\n%s", seed, strings.Join(log, "\n"), diff)
			}
		}
	}
}

func compare(s *storeCache, m *model) string {
	got, want := map[string]string{}, map[string]string{}
	for name, store := range s.stores {
		got[name] = fmt.Sprint(slices.Sorted(maps.Keys(store.Resources)), store.Allocated())
	}
	for name := range m.stores {
		store := m.store(name)
		want[name] = fmt.Sprint(slices.Sorted(maps.Keys(store.Resources)), store.Allocated())
	}
	return cmp.Diff(want, got)
}

// slowServer delays bindings before and after they are written, and refuses some.
type slowServer struct {
	hostingclient.HostedResourceInterface
	mu     sync.Mutex
	random *rand.Rand
}

func (s *slowServer) draw(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.random.IntN(n)
}

func (s *slowServer) Bind(ctx context.Context, name string, binding *hostingv1alpha1.HostedResourceBinding, options metav1.CreateOptions) (*hostingv1alpha1.HostedResourceBinding, error) {
	time.Sleep(time.Duration(s.draw(20)) * time.Millisecond)
	defer func() { time.Sleep(time.Duration(s.draw(20)) * time.Millisecond) }()
	if s.draw(5) == 0 {
		return nil, errors.New("the server is restarting")
	}
	return s.HostedResourceInterface.Bind(ctx, name, binding, options)
}

// TestNoResourceIsLost deletes and recreates resources while they are being bound. All are
// placed in the end.
func TestNoResourceIsLost(t *testing.T) {
	t.Parallel()
	for seed := range uint64(seeds) {
		synctest.Test(t, func(t *testing.T) {
			server := &slowServer{random: rand.New(rand.NewPCG(seed, 11))}
			a := runWith(t, func(config *Config) {
				server.HostedResourceInterface, config.AnnexHostedResources = config.AnnexHostedResources, server
			}, store("s0", "1Ti"))
			exists := map[string]bool{}
			for step := range 100 {
				hosted := newHosted(fmt.Sprint("r", server.draw(4)))
				hosted.UID = types.UID(fmt.Sprint(step))
				err := a.resources.Delete(t.Context(), hosted.Name, metav1.DeleteOptions{})
				if exists[hosted.Name] = apierrors.IsNotFound(err) || server.draw(2) == 0; exists[hosted.Name] {
					_, err = a.resources.Create(t.Context(), hosted, metav1.CreateOptions{})
				}
				expect.NoError(t, err)
				time.Sleep(time.Duration(server.draw(15)) * time.Millisecond)
			}
			time.Sleep(time.Hour)
			synctest.Wait()
			for name, created := range exists {
				if created {
					a.on(t, strings.TrimSuffix(name, ".example.com"), "s0")
				}
			}
			if t.Failed() {
				t.Fatalf("seed %d", seed)
			}
		})
	}
}
