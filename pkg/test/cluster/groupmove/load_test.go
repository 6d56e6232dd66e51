// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package groupmove

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"

	"github.com/google/go-cmp/cmp"

	"github.com/annex-dev/annex/pkg/test/clients"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

const (
	writers = 4
	// objectsPerWriter are updated, deleted and created again by one writer.
	objectsPerWriter = 6
	// writePause leaves time to the tests beside it.
	writePause = 50 * time.Millisecond
)

// load is clients that write and watch, and what they must see in the end.
type load struct {
	*fixture
	// stop ends the writers, stopInformer the informer.
	stop, stopInformer context.CancelFunc
	running            sync.WaitGroup

	mu sync.Mutex
	// want is the value of each object as it was acknowledged last, absent for deleted ones.
	want map[string]int64
	// deletions counts those of each object.
	deletions, seenDeletions map[string]int
	problems                 []string
	writes, conflicts        int
	slowest                  time.Duration
	informer                 cache.SharedIndexInformer
}

func (f *fixture) startLoad() *load {
	f.Helper()
	ctx, stop := context.WithCancel(f.Context())
	l := &load{fixture: f, stop: stop, want: map[string]int64{}, deletions: map[string]int{}, seenDeletions: map[string]int{}}
	f.Cleanup(func() {
		stop()
		l.running.Wait()
	})
	var watching context.Context
	watching, l.stopInformer = context.WithCancel(f.Context())
	f.Cleanup(l.stopInformer)
	l.watch(watching)
	l.recordVersions(ctx)
	for writer := range writers {
		client := clients.For(f, mainCluster.Config).Dynamic.Resource(l.resource()).Namespace("default")
		l.running.Go(func() { l.write(ctx, writer, client) })
	}
	return l
}

// run lets the clients work for a time.
func (l *load) run(during time.Duration) {
	select {
	case <-time.After(during):
	case <-l.Context().Done():
	}
}

func (l *load) problem(format string, arguments ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.problems) < 20 {
		l.problems = append(l.problems, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, arguments...))
	}
}

// write changes objects until ctx is done. Each change has the resource version that the writer saw
// last, so that a lost or repeated one is a conflict.
func (l *load) write(ctx context.Context, writer int, client dynamic.ResourceInterface) {
	random := rand.New(rand.NewPCG(uint64(writer), 1))
	objects := make([]*unstructured.Unstructured, objectsPerWriter)
	for n := int64(1); ctx.Err() == nil; n++ {
		i := random.IntN(objectsPerWriter)
		name := fmt.Sprintf("w%d-%d", writer, i)
		began := time.Now()
		next, err := l.change(client, random, objects[i], name, n)
		took := time.Since(began)
		if err != nil {
			if !apierrors.IsConflict(err) {
				l.problem("write %s: %v (%s)", name, err, took)
			}
			var readErr error
			if next, readErr = client.Get(context.WithoutCancel(ctx), name, metav1.GetOptions{}); apierrors.IsNotFound(readErr) {
				next = nil
			} else if readErr != nil {
				l.problem("read %s: %v", name, readErr)
				continue
			}
		}
		objects[i] = next
		l.mu.Lock()
		l.writes++
		l.slowest = max(l.slowest, took)
		if err != nil {
			l.conflicts++
			l.mu.Unlock()
			l.wantUnchanged(name, next)
			continue
		}
		if next == nil {
			delete(l.want, name)
		} else {
			l.want[name], _, _ = unstructured.NestedInt64(next.Object, "spec", "value")
		}
		l.mu.Unlock()
		select {
		case <-time.After(writePause):
		case <-ctx.Done():
		}
	}
}

// wantUnchanged records a problem if an object differs from what was acknowledged last. A move gives
// objects other resource versions, so that the first write of each is a conflict.
func (l *load) wantUnchanged(name string, live *unstructured.Unstructured) {
	l.mu.Lock()
	want, exists := l.want[name]
	l.mu.Unlock()
	if live == nil {
		if exists {
			l.problem("%s is lost", name)
		}
		return
	}
	if got, _, _ := unstructured.NestedInt64(live.Object, "spec", "value"); !exists || got != want {
		l.problem("%s has the value %d, want %d (%t)", name, got, want, exists)
	}
}

// change performs one write, and returns the object after it.
func (l *load) change(client dynamic.ResourceInterface, random *rand.Rand, object *unstructured.Unstructured, name string, n int64) (*unstructured.Unstructured, error) {
	// Requests are not interrupted: their outcome would be unknown.
	ctx := context.Background()
	switch {
	case object == nil:
		widget := l.newWidget("default", name)
		expect.NoError(l, unstructured.SetNestedField(widget.Object, n, "spec", "value"))
		return client.Create(ctx, widget, metav1.CreateOptions{})
	case random.IntN(8) == 0:
		l.mu.Lock()
		l.deletions[name]++ // the informer may see it before the response arrives
		l.mu.Unlock()
		version := object.GetResourceVersion()
		return nil, client.Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &version}})
	case random.IntN(3) == 0:
		changed := object.DeepCopy()
		expect.NoError(l, unstructured.SetNestedField(changed.Object, n, "status", "seen"))
		return client.UpdateStatus(ctx, changed, metav1.UpdateOptions{})
	default:
		changed := object.DeepCopy()
		expect.NoError(l, unstructured.SetNestedField(changed.Object, n, "spec", "value"))
		return client.Update(ctx, changed, metav1.UpdateOptions{})
	}
}

// watch runs an informer, and records resource versions that decrease and deletions that did not
// happen.
func (l *load) watch(ctx context.Context) {
	client := clients.For(l, mainCluster.Config).Dynamic
	factory := dynamicinformer.NewDynamicSharedInformerFactory(client, 0)
	l.informer = factory.ForResource(l.resource()).Informer()
	_, err := l.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(before, after any) {
			old, changed := before.(*unstructured.Unstructured), after.(*unstructured.Unstructured)
			if revision(changed) < revision(old) {
				l.problem("the resource version of %s went from %s to %s", changed.GetName(), old.GetResourceVersion(), changed.GetResourceVersion())
			}
		},
		DeleteFunc: func(deleted any) {
			if unknown, is := deleted.(cache.DeletedFinalStateUnknown); is {
				deleted = unknown.Obj
			}
			name := deleted.(*unstructured.Unstructured).GetName()
			l.mu.Lock()
			l.seenDeletions[name]++
			extra := l.seenDeletions[name] > l.deletions[name] && name != "born"
			l.mu.Unlock()
			if extra {
				l.problem("the informer saw a deletion of %s that did not happen", name)
			}
		},
	})
	expect.NoError(l, err)
	factory.Start(ctx.Done())
	l.Cleanup(factory.Shutdown)
	cache.WaitForCacheSync(ctx.Done(), l.informer.HasSynced)
}

func revision(object *unstructured.Unstructured) int64 {
	revision, _ := strconv.ParseInt(object.GetResourceVersion(), 10, 64)
	return revision
}

// finish stops the writers, and fails unless everything that was acknowledged is there, no request has
// failed, and the informer has what a list returns.
func (l *load) finish() {
	l.Helper()
	l.stop()
	l.running.Wait()
	list, err := l.widgets().List(l.Context(), metav1.ListOptions{})
	expect.NoError(l, err)
	got, versions := map[string]int64{}, map[string]string{}
	for _, object := range list.Items {
		versions[object.GetName()] = object.GetResourceVersion()
		if object.GetName()[0] == 'w' {
			got[object.GetName()], _, _ = unstructured.NestedInt64(object.Object, "spec", "value")
		}
	}
	expect.Equal(l, l.want, got, "objects")
	poll.Until(l, "the informer has what a list returns", func() string {
		cached := map[string]string{}
		for _, object := range l.informer.GetStore().List() {
			widget := object.(*unstructured.Unstructured)
			cached[widget.GetName()] = widget.GetResourceVersion()
		}
		return cmp.Diff(versions, cached)
	})
	l.stopInformer()
	for _, problem := range l.problems {
		l.Error(problem)
	}
	l.Logf("%d writes, %d conflicts, the slowest took %s", l.writes, l.conflicts, l.slowest)
}
