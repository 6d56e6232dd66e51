// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package groupmove

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/annex-dev/annex/pkg/test/clients"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// ownedLabel is on ConfigMaps that widgets own.
const ownedLabel = "example.com/owned"

// state has the fields of an object that the test compares. The zero value means that it does not exist.
type state struct {
	exists, deleting     bool
	value, seen, applied int64
}

func stateOf(object *unstructured.Unstructured) state {
	if object == nil {
		return state{}
	}
	number := func(path ...string) int64 {
		value, _, _ := unstructured.NestedInt64(object.Object, path...)
		return value
	}
	return state{
		exists: true, deleting: object.GetDeletionTimestamp() != nil,
		value: number("spec", valueField(object)), seen: number("status", "seen"), applied: number("spec", "applied"),
	}
}

// write is a write of an object, and the state that it makes.
type write struct {
	state
	// revision is the resource version of the response, 0 for one without.
	revision     int64
	acknowledged bool
}

// history records the requests of clients and the responses and events that they get.
type history struct {
	*testing.T
	versions
	stop    func()
	ctx     context.Context
	running sync.WaitGroup
	// pause is the time between two writes of a client.
	pause time.Duration
	// exactFrom is the first resource version at which lists are exact. After a Rollback the main cluster answers those at
	// annex's versions from its own history, until its etcd has compacted that.
	exactFrom atomic.Int64
	// doomed is set once a namespace is being deleted.
	doomed atomic.Bool

	acknowledged, uncertain, conflicts, unknown atomic.Int64
	// uids has the UIDs of the objects from before the first Migration that are never deleted.
	uids map[string]string

	mu       sync.Mutex
	problems []string
	outages  []*outage
	// writes has the writes of each object that may have been performed, in the order of its only writer.
	writes map[string][]write
	// lists and watches are the responses that readers have got.
	lists   []snapshot
	watches []*watched
	// deletions counts the requests to delete each object.
	deletions map[string]int
	owned     map[string]*dependent
	informers []*informer
}

// outage is the time from the end of a program until clients are served again.
type outage struct {
	what       string
	began, end time.Time
}

// dependent is an object with an owner, by the owner's name.
type dependent struct {
	// created is set when the dependent was created for sure, and deleting when the owner may be deleted,
	// deleted when it is for sure.
	created, deleting, deleted bool
}

func newHistory(t *testing.T, pause time.Duration) *history {
	h := &history{
		T: t, pause: pause, uids: map[string]string{}, writes: map[string][]write{}, deletions: map[string]int{}, owned: map[string]*dependent{},
	}
	ctx, cancel := context.WithCancel(t.Context())
	h.ctx = ctx
	h.stop = func() {
		cancel()
		h.running.Wait()
	}
	return h
}

func (h *history) start(do func(ctx context.Context)) {
	h.running.Go(func() { do(h.ctx) })
}

func (h *history) problem(format string, arguments ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.problems) < 50 {
		h.problems = append(h.problems, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, arguments...))
	}
}

func (h *history) failed() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.problems) > 0 || h.Failed()
}

// outage records that a program does not run, until the function that it returns is called.
func (h *history) outage(what string) func() {
	h.mu.Lock()
	defer h.mu.Unlock()
	o := &outage{what: what, began: time.Now()}
	h.outages = append(h.outages, o)
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		o.end = time.Now()
		h.Logf("%s %s was down for %s", o.end.Format("15:04:05.000"), what, o.end.Sub(o.began).Round(time.Millisecond))
	}
}

// mayFail reports whether a program was down since then, except for some.
func (h *history) mayFail(began time.Time, except ...string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.ContainsFunc(h.outages, func(o *outage) bool {
		return (o.end.IsZero() || o.end.After(began)) && !slices.Contains(except, o.what)
	})
}

// wrote records a write of an object, whose outcome is unknown unless it was acknowledged.
func (h *history) wrote(name string, w write) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.writes[name] = append(h.writes[name], w)
}

// wantPossible records a problem unless an object has the last acknowledged state, or the state of a later write with
// an unknown outcome.
func (h *history) wantPossible(what, name string, got state) {
	h.mu.Lock()
	possible := possible(h.writes[name], math.MaxInt64)
	h.mu.Unlock()
	if !slices.Contains(possible, got) {
		h.problem("%s: %s is %+v, may only be %+v", what, name, got, possible)
	}
}

// deletes records that an object is about to be deleted. The informers may see it before the response
// arrives.
func (h *history) deletes(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.deletions[name]++
}

// informer records the latest state and the deletions of each widget, as a client sees them.
type informer struct {
	cache.SharedIndexInformer
	name string

	mu        sync.Mutex
	latest    map[string]*unstructured.Unstructured
	deletions map[string]int
}

// listWatch is a client that lists and watches.
type listWatch struct {
	*cache.ListWatch
	lists bool
}

// IsWatchListSemanticsUnSupported makes reflectors list.
func (l *listWatch) IsWatchListSemanticsUnSupported() bool { return l.lists }

func (h *history) startInformer(name string, client dynamic.Interface, resource schema.GroupVersionResource, lists bool) {
	h.Helper()
	widgets := client.Resource(resource)
	i := &informer{name: name, latest: map[string]*unstructured.Unstructured{}, deletions: map[string]int{}}
	i.SharedIndexInformer = cache.NewSharedIndexInformer(&listWatch{lists: lists, ListWatch: &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return widgets.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return widgets.Watch(ctx, options)
		},
	}}, &unstructured.Unstructured{}, 0, cache.Indexers{})
	_, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { h.sees(i, object.(*unstructured.Unstructured)) },
		UpdateFunc: func(_, object any) { h.sees(i, object.(*unstructured.Unstructured)) },
		DeleteFunc: func(object any) { h.seesDeletion(i, object) },
	})
	expect.NoError(h, err)
	ctx, stop := context.WithCancel(h.Context())
	var running sync.WaitGroup
	running.Go(func() { i.RunWithContext(ctx) })
	h.Cleanup(func() {
		stop()
		running.Wait()
	})
	if !cache.WaitForCacheSync(ctx.Done(), i.HasSynced) {
		h.Fatal("the informer did not start")
	}
	h.informers = append(h.informers, i)
}

func keyOf(object metav1.Object) string {
	if object.GetNamespace() == "default" {
		return object.GetName()
	}
	return object.GetNamespace() + "/" + object.GetName()
}

// sees records a problem if an object is as it was before.
func (h *history) sees(i *informer, object *unstructured.Unstructured) {
	i.mu.Lock()
	defer i.mu.Unlock()
	key := keyOf(object)
	if before := i.latest[key]; before != nil && revision(object) < revision(before) {
		h.problem("%s: %s went from %+v at %d to %+v at %d", i.name, key, stateOf(before), revision(before), stateOf(object), revision(object))
	}
	i.latest[key] = object
	h.see(object.GetResourceVersion())
}

func (h *history) seesDeletion(i *informer, deleted any) {
	if unknown, is := deleted.(cache.DeletedFinalStateUnknown); is {
		deleted = unknown.Obj
	}
	key := keyOf(deleted.(*unstructured.Unstructured))
	i.mu.Lock()
	i.deletions[key]++
	seen := i.deletions[key]
	i.mu.Unlock()
	if strings.HasPrefix(key, doomedNamespace+"/") && h.doomed.Load() || strings.HasPrefix(key, forgedPrefix) {
		return
	}
	h.mu.Lock()
	asked := h.deletions[key]
	h.mu.Unlock()
	if seen > asked {
		h.problem("%s saw deletion %d of %s, %d were requested", i.name, seen, key, asked)
	}
}

// watchDeletions calls a function for each deleted ConfigMap that has a label.
func (h *history) watchDeletions(client *clients.Clients, label string, deleted func(*corev1.ConfigMap)) {
	h.Helper()
	factory := informers.NewSharedInformerFactoryWithOptions(client.Kube, 0,
		informers.WithTweakListOptions(func(options *metav1.ListOptions) { options.LabelSelector = label }))
	_, err := factory.Core().V1().ConfigMaps().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: func(object any) {
		if unknown, is := object.(cache.DeletedFinalStateUnknown); is {
			object = unknown.Obj
		}
		deleted(object.(*corev1.ConfigMap))
	}})
	expect.NoError(h, err)
	factory.Start(h.Context().Done())
	h.Cleanup(factory.Shutdown)
	factory.WaitForCacheSync(h.Context().Done())
}

// wantOwnerDeleted records a problem when the dependent of an owner that was not deleted is deleted.
func (h *history) wantOwnerDeleted(configMap *corev1.ConfigMap) {
	h.mu.Lock()
	of := h.owned[configMap.Name]
	wrong := of != nil && !of.deleting
	h.mu.Unlock()
	if wrong {
		h.problem("the dependent of %s was deleted, with the owner reference %+v", configMap.Name, configMap.OwnerReferences)
	}
}

// checkObjects records a problem for each object that is not as it may be.
func (h *history) checkObjects(list []unstructured.Unstructured) {
	got := map[string]state{}
	for i := range list {
		key := keyOf(&list[i])
		if _, twice := got[key]; twice {
			h.problem("%s is listed twice", key)
		}
		got[key] = stateOf(&list[i])
	}
	for _, name := range h.written() {
		h.wantPossible("in the end", name, got[name])
	}
	for name := range got {
		if _, known := h.writes[name]; !known && strings.HasPrefix(name, "w") {
			h.problem("in the end: %s is there, which no client created", name)
		}
	}
	counted, least := got["counter"].value, h.acknowledged.Load()
	if counted < least || counted > least+h.uncertain.Load() {
		h.problem("the counter is %d, %d increments were acknowledged and %d uncertain", counted, least, h.uncertain.Load())
	}
}

// checkInformers waits until each has what a list returns.
func (h *history) checkInformers(read func() *unstructured.UnstructuredList) {
	h.Helper()
	for _, i := range h.informers {
		poll.Until(h, i.name+" has what a list returns", func() string {
			list := read().Items // the garbage collector may still delete owners
			cached := map[string]string{}
			for _, object := range i.GetStore().List() {
				widget := object.(*unstructured.Unstructured)
				cached[keyOf(widget)] = widget.GetResourceVersion()
			}
			for j := range list {
				if key := keyOf(&list[j]); cached[key] != list[j].GetResourceVersion() {
					return fmt.Sprintf("at %s it has %s at %q, want %q", i.LastSyncResourceVersion(), key, cached[key], list[j].GetResourceVersion())
				}
			}
			if len(cached) != len(list) {
				return fmt.Sprintf("it has %d objects, want %d", len(cached), len(list))
			}
			return ""
		})
	}
}

// checkOwned returns which dependents are there that must not be, or are missing.
func (h *history) checkOwned(list []unstructured.Unstructured, owned []corev1.ConfigMap) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	uids, dependents := map[string]string{}, map[string]corev1.ConfigMap{}
	for i := range list {
		uids[list[i].GetName()] = string(list[i].GetUID())
	}
	for i := range owned {
		dependents[owned[i].Name] = owned[i]
	}
	for name, of := range h.owned {
		uid, lives := uids[name]
		dependent, found := dependents[name]
		var reference string
		if found {
			reference = string(dependent.OwnerReferences[0].UID)
		}
		switch {
		case of.deleted && lives:
			return fmt.Sprintf("the owner %s is there, which was deleted", name)
		case !of.deleting && !lives:
			return fmt.Sprintf("the owner %s is not there", name)
		case !lives && found:
			return fmt.Sprintf("the dependent of %s, created at %s with the UID %s, is there, but not its owner", name, dependent.CreationTimestamp, reference)
		case lives && !of.deleting && of.created && reference != uid:
			return fmt.Sprintf("the dependent of %s has the owner %q, want %q", name, reference, uid)
		}
	}
	return ""
}

// report fails the test with the problems.
func (h *history) report() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, problem := range h.problems {
		h.Error(problem)
	}
	h.Logf("%d increments and %d uncertain ones, %d objects, %d owners, %d conflicts, %d unknown outcomes, %d outages, %d lists, %d watches",
		h.acknowledged.Load(), h.uncertain.Load(), len(h.writes), len(h.owned), h.conflicts.Load(), h.unknown.Load(), len(h.outages), len(h.lists), len(h.watches))
}
