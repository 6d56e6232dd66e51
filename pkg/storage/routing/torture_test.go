// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/client-go/tools/cache"

	"github.com/annex-dev/annex/pkg/storage/etcd/etcdkv"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
	"github.com/annex-dev/annex/pkg/test/random"
)

// TestTorture moves widgets between two Stores, there and back, while clients of two replicas
// write, read and watch them. Connections of the moves are lost at random, and the replicas learn
// of a switch at different times. The history of the clients is checked:
//
//   - Every acknowledged write is there exactly once, and no write fails.
//   - A consistent read has all that was acknowledged before it began, at every replica.
//   - Resource versions never go backwards.
//   - Informers see no deletion that did not happen, and no object twice.
//
// Each round is a move. make test-long makes more.
func TestTorture(t *testing.T) {
	t.Parallel()
	run := random.Start(t, 6)
	one, two := startStore(t, "one"), startStore(t, "two")
	h := &history{T: t, deleted: map[types.UID]bool{}}
	var replicas []*replica
	for i := range 2 {
		r := &replica{fixture: newFixture(t, one, two)}
		r.place(t, withUID("hosted", placedOn("one", "first")))
		r.Interface = r.widgetStorage(t)
		replicas = append(replicas, r)
		for j := range 2 {
			h.startInformer(t, fmt.Sprintf("informer %d of replica %d", j, i), r, j == 0)
		}
	}
	expect.NoError(t, create(t.Context(), replicas[0], "/example.com/widgets/ns/counter"))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var clients sync.WaitGroup
	for i := range 4 {
		w := &writer{history: h, name: fmt.Sprintf("writer-%d", i), replicas: replicas, random: run.Rand(uint64(i)), objects: map[string]*example.Pod{}}
		clients.Go(func() { w.run(ctx, i) })
		h.writers = append(h.writers, w)
	}
	m := &mover{T: t, routed: &sync.WaitGroup{}, random: run.Rand(100), replicas: replicas, stores: []*fakeStore{one, two}}
	for run.Next() && !t.Failed() {
		m.move()
	}
	stop()
	clients.Wait()
	m.routed.Wait()
	h.check(replicas)
	t.Logf("%d moves, %d of them with failures, %d increments, %d objects created, held at most %s",
		m.moves, m.failures, h.acknowledged.Load(), h.created.Load(), time.Duration(h.longest.Load()))
}

// replica is an annex: a Router with caches and informers of its own.
type replica struct {
	*fixture
	storage.Interface
}

// history records the writes of all clients, and has their informers.
type history struct {
	*testing.T
	writers []*writer
	// highest is the highest resource version that a write has returned, and acknowledged the number
	// of increments of the counter.
	highest, acknowledged, created, longest atomic.Int64

	mu sync.Mutex
	// deleted are the objects whose deletion has begun.
	deleted   map[types.UID]bool
	informers []*informer
}

// writer is a client with objects that only it writes, and one that all write.
type writer struct {
	*history
	name     string
	replicas []*replica
	random   *rand.Rand
	objects  map[string]*example.Pod
	next     int
}

func widgetKeyOf(name string) string { return "/example.com/widgets/ns/" + name }

func (w *writer) run(ctx context.Context, number int) {
	for ctx.Err() == nil && !w.Failed() {
		r := w.replicas[w.random.IntN(len(w.replicas))]
		before, acknowledged, began := w.highest.Load(), w.acknowledged.Load(), time.Now()
		var written *example.Pod
		var err error
		name, existing := w.pick()
		switch action := w.random.IntN(10); {
		case action < 2:
			written, err = w.increment(r)
		case action < 4:
			w.read(r, before, acknowledged)
			continue
		case action < 7 || existing == nil:
			w.next++
			name = fmt.Sprintf("%s-%d", w.name, w.next)
			written = &example.Pod{}
			err = r.Create(w.Context(), widgetKeyOf(name), &example.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: uuid.NewUUID()}}, written, 0)
			w.created.Add(1)
			w.objects[name] = written
		case action < 9:
			written, err = w.update(r, existing)
			w.objects[name] = written
		default:
			err = w.delete(r, existing)
			delete(w.objects, name)
		}
		etcdkv.Raise(&w.longest, int64(time.Since(began)))
		if err != nil {
			w.Errorf("%s: a write failed after %s: %v", w.name, time.Since(began), err)
			return
		}
		if written == nil {
			continue
		}
		if version := versionOf(written.ResourceVersion); version <= before {
			w.Errorf("%s: %s was written at %d, clients had seen %d", w.name, written.Name, version, before)
		} else {
			etcdkv.Raise(&w.highest, version)
		}
	}
}

// pick returns any of the writer's objects.
func (w *writer) pick() (string, *example.Pod) {
	skip := 0
	if len(w.objects) > 1 {
		skip = w.random.IntN(len(w.objects))
	}
	for name, object := range w.objects {
		if skip--; skip < 0 {
			return name, object
		}
	}
	return "", nil
}

func versionOf(resourceVersion string) int64 {
	version, err := versioner.ParseResourceVersion(resourceVersion)
	if err != nil {
		panic(err)
	}
	return int64(version)
}

// increment increments the counter, which others do at the same time.
func (w *writer) increment(r *replica) (*example.Pod, error) {
	written := &example.Pod{}
	err := r.GuaranteedUpdate(w.Context(), widgetKeyOf("counter"), written, false, nil, storage.SimpleUpdate(func(current runtime.Object) (runtime.Object, error) {
		pod := current.DeepCopyObject().(*example.Pod)
		pod.Generation++
		return pod, nil
	}), nil)
	if err == nil {
		w.acknowledged.Add(1)
	}
	return written, err
}

// update changes an object that must be as this writer left it.
func (w *writer) update(r *replica, object *example.Pod) (*example.Pod, error) {
	written := &example.Pod{}
	err := r.GuaranteedUpdate(w.Context(), widgetKeyOf(object.Name), written, false, nil, storage.SimpleUpdate(func(current runtime.Object) (runtime.Object, error) {
		pod := current.DeepCopyObject().(*example.Pod)
		if pod.UID != object.UID || pod.Generation > object.Generation {
			return nil, fmt.Errorf("%s has UID %s and generation %d, this writer left %s and %d", pod.Name, pod.UID, pod.Generation, object.UID, object.Generation)
		}
		pod.Generation = object.Generation + 1
		return pod, nil
	}), object)
	return written, err
}

func (w *writer) delete(r *replica, object *example.Pod) error {
	w.mu.Lock()
	w.deleted[object.UID] = true
	w.mu.Unlock()
	return r.Delete(w.Context(), widgetKeyOf(object.Name), &example.Pod{}, storage.NewUIDPreconditions(string(object.UID)), storage.ValidateAllObjectFunc, nil, storage.DeleteOptions{})
}

// read reads the counter and lists all objects, which must be no older than before.
func (w *writer) read(r *replica, before, acknowledged int64) {
	var counter example.Pod
	if err := r.Get(w.Context(), widgetKeyOf("counter"), storage.GetOptions{}, &counter); err != nil || counter.Generation < acknowledged {
		w.Errorf("%s: the counter is %d (%v), %d increments were acknowledged", w.name, counter.Generation, err, acknowledged)
	}
	var all example.PodList
	err := r.GetList(w.Context(), "/example.com/widgets/", storage.ListOptions{Predicate: storage.Everything, Recursive: true}, &all)
	if err != nil {
		w.Errorf("%s: a list failed: %v", w.name, err)
		return
	}
	if versionOf(all.ResourceVersion) < before {
		w.Errorf("%s: a list has version %s, clients had seen %d", w.name, all.ResourceVersion, before)
		return
	}
	own := map[string]*example.Pod{}
	for i := range all.Items {
		own[all.Items[i].Name] = &all.Items[i]
	}
	for name, want := range w.objects {
		if got := own[name]; got == nil || got.UID != want.UID || got.Generation != want.Generation {
			w.Errorf("%s: a list has %s as %+v, it was left as %+v", w.name, name, got, want)
			return
		}
	}
}

// check compares what is there with what was acknowledged.
func (h *history) check(replicas []*replica) {
	h.Helper()
	want := map[string]string{"counter": fmt.Sprint(h.acknowledged.Load())}
	for _, w := range h.writers {
		for name, object := range w.objects {
			want[name] = fmt.Sprint(object.UID, " ", object.Generation)
		}
	}
	for i, r := range replicas {
		var all example.PodList
		err := r.GetList(h.Context(), "/example.com/widgets/", storage.ListOptions{Predicate: storage.Everything, Recursive: true}, &all)
		expect.NoError(h, err)
		got := map[string]string{}
		for _, pod := range all.Items {
			if got[pod.Name] = fmt.Sprint(pod.UID, " ", pod.Generation); pod.Name == "counter" {
				got[pod.Name] = fmt.Sprint(pod.Generation)
			}
		}
		for name := range want {
			if got[name] != want[name] {
				h.Errorf("replica %d has %s as %q, want %q", i, name, got[name], want[name])
			}
		}
		for name := range got {
			if want[name] == "" {
				h.Errorf("replica %d has %s, which was deleted", i, name)
			}
		}
		for _, informer := range h.informers {
			poll.UntilDone(h, informer.name+" has all objects", func() (bool, string) { return informer.isEqual(all.Items) })
		}
	}
}

// listWatch is a client that lists and watches at a replica.
type listWatch struct {
	*cache.ListWatch
	lists bool
}

// IsWatchListSemanticsUnSupported makes reflectors list.
func (l *listWatch) IsWatchListSemanticsUnSupported() bool { return l.lists }

// informer is the store of a client's reflector of all widgets. It fails the test if a widget goes back in
// time.
type informer struct {
	*history
	name string

	mu   sync.Mutex
	pods map[string]*example.Pod
	gone map[types.UID]bool
}

// startInformer runs an informer until the end of the test.
func (h *history) startInformer(t *testing.T, name string, r *replica, lists bool) {
	t.Helper()
	i := &informer{history: h, name: name, pods: map[string]*example.Pod{}, gone: map[types.UID]bool{}}
	h.informers = append(h.informers, i)
	reflector := cache.NewReflectorWithOptions(&listWatch{lists: lists, ListWatch: &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			list := &example.PodList{}
			err := r.GetList(ctx, "/example.com/widgets/", listOptions(options), list)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			events, err := r.Watch(ctx, "/example.com/widgets/", listOptions(options))
			if err != nil {
				return nil, err
			}
			return watch.Filter(events, func(event watch.Event) (watch.Event, bool) {
				if cached, ok := event.Object.(runtime.CacheableObject); ok {
					event.Object = cached.GetObject()
				}
				return event, true
			}), nil
		},
	}}, &example.Pod{}, i, cache.ReflectorOptions{Name: name, Backoff: &wait.Backoff{Duration: 10 * time.Millisecond, Factor: 1, Steps: 1}})
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { reflector.RunWithContext(ctx) })
	t.Cleanup(func() { stop(); running.Wait() })
}

// Add implements cache.ReflectorStore.
func (i *informer) Add(obj any) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	pod := obj.(*example.Pod)
	if before := i.pods[pod.Name]; before != nil {
		i.Errorf("%s: %s was added as %+v, it is there as %+v", i.name, pod.Name, pod, before)
	}
	i.see(pod)
	return nil
}

// Update implements cache.ReflectorStore.
func (i *informer) Update(obj any) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	pod := obj.(*example.Pod)
	if i.pods[pod.Name] == nil {
		i.Errorf("%s: %s was updated as %+v, it is not there", i.name, pod.Name, pod)
	}
	i.see(pod)
	return nil
}

// see replaces a pod by a later one.
func (i *informer) see(pod *example.Pod) {
	before := i.pods[pod.Name]
	switch {
	case i.gone[pod.UID]:
		i.Errorf("%s: %s is there again", i.name, pod.Name)
	case before == nil:
	case versionOf(pod.ResourceVersion) < versionOf(before.ResourceVersion) || pod.UID == before.UID && pod.Generation < before.Generation:
		i.Errorf("%s: %s went back from %+v to %+v", i.name, pod.Name, before, pod)
	}
	i.pods[pod.Name] = pod
}

// Delete implements cache.ReflectorStore.
func (i *informer) Delete(obj any) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.remove(obj.(*example.Pod))
	return nil
}

func (i *informer) remove(pod *example.Pod) {
	i.history.mu.Lock()
	defer i.history.mu.Unlock()
	if !i.deleted[pod.UID] {
		i.Errorf("%s: %s was deleted, which no client has asked for", i.name, pod.Name)
	}
	i.gone[pod.UID] = true
	delete(i.pods, pod.Name)
}

// Replace implements cache.ReflectorStore.
func (i *informer) Replace(list []any, _ string) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	before := maps.Clone(i.pods)
	for _, obj := range list {
		pod := obj.(*example.Pod)
		i.see(pod)
		delete(before, pod.Name)
	}
	for _, pod := range before {
		i.remove(pod)
	}
	return nil
}

// Resync implements cache.ReflectorStore.
func (i *informer) Resync() error { return nil }

// isEqual reports whether the informer has what a list has.
func (i *informer) isEqual(list []example.Pod) (bool, string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, pod := range list {
		if found := i.pods[pod.Name]; found == nil || found.ResourceVersion != pod.ResourceVersion {
			return false, fmt.Sprintf("it has %s as %+v", pod.Name, found)
		}
	}
	return len(i.pods) == len(list), fmt.Sprintf("it has %d of %d objects", len(i.pods), len(list))
}

func listOptions(options metav1.ListOptions) storage.ListOptions {
	predicate := storage.Everything
	predicate.Limit, predicate.Continue, predicate.AllowWatchBookmarks = options.Limit, options.Continue, options.AllowWatchBookmarks
	return storage.ListOptions{
		ResourceVersion: options.ResourceVersion, ResourceVersionMatch: options.ResourceVersionMatch,
		SendInitialEvents: options.SendInitialEvents, Predicate: predicate, Recursive: true,
	}
}
