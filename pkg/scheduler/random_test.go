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
)

const seeds = 50

// naive is what the cache should know, looked up anew each time.
type naive struct {
	stores    map[string]*hostingv1alpha1.Store
	resources map[string]*hostingv1alpha1.HostedResource
	// assumed are decisions by the UID of what they are about.
	assumed map[types.UID]string
}

func (n *naive) on(hosted *hostingv1alpha1.HostedResource) string {
	if hosted.Spec.StoreName != "" {
		return hosted.Spec.StoreName
	}
	return n.assumed[hosted.UID]
}

// store is a Store with all that is on it.
func (n *naive) store(name string) *framework.Store {
	store := framework.NewStore(n.stores[name])
	for _, hosted := range n.resources {
		if n.on(hosted) == name {
			store.Add(framework.NewResource(hosted))
		}
	}
	return store
}

// TestCacheIsLikeANaiveOne: whatever comes, and in which order, what decisions go by
// is what one would find by looking at everything.
func TestCacheIsLikeANaiveOne(t *testing.T) {
	t.Parallel()
	for seed := range uint64(seeds) {
		random := rand.New(rand.NewPCG(seed, 5))
		s, n := newStoreCache(), &naive{map[string]*hostingv1alpha1.Store{}, map[string]*hostingv1alpha1.HostedResource{}, map[types.UID]string{}}
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
				n.stores[storeName] = added
				s.setStore(added)
			case 1:
				delete(n.stores, storeName)
				s.removeStore(storeName)
			case 2, 3, 4:
				hosted := made(name, wants(fmt.Sprint(random.IntN(2000), "Mi")))
				hosted.Status.StoredBytes = random.Int64N(1 << 30)
				if before := n.resources[key]; before != nil && random.IntN(5) > 0 {
					hosted.UID, hosted.Spec.StoreName = before.UID, before.Spec.StoreName
				} else {
					hosted.UID = types.UID(fmt.Sprint(seed, step))
				}
				// It is bound, most of the time where it was decided.
				if hosted.Spec.StoreName == "" && random.IntN(3) == 0 {
					if hosted.Spec.StoreName = n.on(hosted); hosted.Spec.StoreName == "" || random.IntN(4) == 0 {
						hosted.Spec.StoreName = storeName
					}
				}
				n.resources[key] = hosted
				s.setResource(hosted)
			case 5:
				delete(n.resources, key)
				s.removeResource(key)
			case 6:
				if waiting, decision := s.decide(key, plugins.All()); waiting != nil {
					if best, ok := decision.Best(); ok {
						n.assumed[waiting.UID] = best.Store
						deciding = append(deciding, waiting)
					}
				}
			case 7:
				if len(deciding) > 0 {
					failed := random.IntN(len(deciding))
					delete(n.assumed, deciding[failed].UID)
					s.forget(deciding[failed])
					deciding = slices.Delete(deciding, failed, failed+1)
				}
			}
			if diff := compare(s, n); diff != "" {
				t.Fatalf("seed %d, after\n%s\n%s", seed, strings.Join(log, "\n"), diff)
			}
		}
	}
}

func compare(s *storeCache, n *naive) string {
	got, want := map[string]string{}, map[string]string{}
	for name, store := range s.stores {
		got[name] = fmt.Sprint(slices.Sorted(maps.Keys(store.Resources)), store.Taken())
	}
	for name := range n.stores {
		store := n.store(name)
		want[name] = fmt.Sprint(slices.Sorted(maps.Keys(store.Resources)), store.Taken())
	}
	return cmp.Diff(want, got)
}

// TestQueueLosesNothing: whatever happens to what waits, each is handed out once at a
// time, and in the end all that fits then, the most urgent first.
func TestQueueLosesNothing(t *testing.T) {
	t.Parallel()
	for seed := range uint64(seeds) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 7))
			q := newQueue()
			priorities, working := map[string]int32{}, map[string]int64{}
			take := func() {
				name, changes := q.next(t)
				if name == "" {
					return
				}
				if _, twice := working[name]; twice {
					t.Fatalf("seed %d: %s is handed out while it is worked on", seed, name)
				}
				working[name] = changes
			}
			finish := func(name string) {
				switch changes := working[name]; random.IntN(3) {
				case 0:
					q.release(name)
					q.remove(name) // as its informer has it
					delete(priorities, name)
				case 1:
					q.backOff(name)
				default:
					q.addUnschedulable(name, map[string]string{"s": "full"}, changes)
				}
				delete(working, name)
			}
			for range 100 {
				name := fmt.Sprint("r", random.IntN(8))
				_, worked := working[name]
				switch random.IntN(6) {
				case 0, 1:
					priorities[name] = random.Int32N(3)
					q.add(name, priorities[name])
				case 2:
					take()
				case 3:
					if worked {
						finish(name)
					}
				case 4:
					q.change(func(string, map[string]string) effect { return effect(random.IntN(3)) })
				case 5:
					time.Sleep(time.Duration(random.IntN(3)) * firstBackoff)
				}
			}
			for name, changes := range working {
				q.addUnschedulable(name, map[string]string{}, changes)
			}
			time.Sleep(maxBackoff)
			q.change(func(string, map[string]string) effect { return fits })
			got := q.drain(t)
			if diff := cmp.Diff(slices.Sorted(maps.Keys(priorities)), slices.Sorted(slices.Values(got)), cmp.Transformer("", func(s []string) string { return fmt.Sprint(s) })); diff != "" {
				t.Fatalf("seed %d, what comes in the end (-want +got):\n%s", seed, diff)
			}
			if !slices.IsSortedFunc(got, func(a, b string) int { return int(priorities[b] - priorities[a]) }) {
				t.Fatalf("seed %d: order %v of %v", seed, got, priorities)
			}
		})
	}
}

// slow is a server that takes its time before and after it binds, and that at times
// does not.
type slow struct {
	hostingclient.HostedResourceInterface
	mu     sync.Mutex
	random *rand.Rand
}

func (s *slow) draw(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.random.IntN(n)
}

func (s *slow) Bind(ctx context.Context, name string, binding *hostingv1alpha1.HostedResourceBinding, options metav1.CreateOptions) (*hostingv1alpha1.HostedResourceBinding, error) {
	time.Sleep(time.Duration(s.draw(20)) * time.Millisecond)
	defer func() { time.Sleep(time.Duration(s.draw(20)) * time.Millisecond) }()
	if s.draw(5) == 0 {
		return nil, errors.New("the server is restarting")
	}
	return s.HostedResourceInterface.Bind(ctx, name, binding, options)
}

// TestNoResourceIsLost: resources that come, go and come again under their names while
// they are being bound are all placed in the end.
func TestNoResourceIsLost(t *testing.T) {
	t.Parallel()
	for seed := range uint64(seeds) {
		synctest.Test(t, func(t *testing.T) {
			server := &slow{random: rand.New(rand.NewPCG(seed, 11))}
			a := runWith(t, func(config *Config) {
				server.HostedResourceInterface, config.AnnexHostedResources = config.AnnexHostedResources, server
			}, store("s0", "1Ti"))
			there := map[string]bool{}
			for step := range 100 {
				hosted := made(fmt.Sprint("r", server.draw(4)))
				hosted.UID = types.UID(fmt.Sprint(step))
				err := a.resources.Delete(t.Context(), hosted.Name, metav1.DeleteOptions{})
				if there[hosted.Name] = apierrors.IsNotFound(err) || server.draw(2) == 0; there[hosted.Name] {
					_, err = a.resources.Create(t.Context(), hosted, metav1.CreateOptions{})
				}
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Duration(server.draw(15)) * time.Millisecond)
			}
			time.Sleep(time.Hour)
			synctest.Wait()
			for name, exists := range there {
				if exists {
					a.on(t, strings.TrimSuffix(name, ".example.com"), "s0")
				}
			}
			if t.Failed() {
				t.Fatalf("seed %d", seed)
			}
		})
	}
}
