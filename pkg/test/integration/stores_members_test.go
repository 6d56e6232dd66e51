// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/annex-dev/annex/pkg/test/etcdcluster"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// Each of three members is killed in turn while objects are written and watched. No
// acknowledged write is lost, and the watch receives all.
func TestEtcdMembersKilledUnderLoad(t *testing.T) {
	t.Parallel()
	a := startAnnex(t)
	etcd := etcdcluster.Start(t, etcdcluster.Config{})
	a.addStore(t, "three", etcd)
	r := a.installOn(t, "three")
	list, err := r.in("v1").List(t.Context(), metav1.ListOptions{})
	expect.NoError(t, err)
	seen := watchAll(t, r, list.GetResourceVersion())
	l := &load{resource: r, acknowledged: map[string]string{}}
	stop := l.start(t, 4)
	for i, m := range etcd.Members {
		l.waitForWrites(t, 20, fmt.Sprintf("before member %d is killed", i))
		m.Kill(t)
		l.waitForWrites(t, 20, fmt.Sprintf("while member %d is down", i))
		m.Start(t)
	}
	// The leader again.
	leader := etcd.Leader(t)
	leader.Kill(t)
	l.waitForWrites(t, 20, "without the leader")
	leader.Start(t)
	stop()
	t.Logf("%d writes were acknowledged, %d failed", l.writes.Load(), l.failures.Load())

	there := map[string]string{}
	poll.UntilNoError(t, "the last list", func() error {
		found, err := r.in("v1").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, item := range found.Items {
			there[item.GetName()] = item.GetResourceVersion()
		}
		return nil
	})
	for name, version := range l.acknowledged {
		if isNewer(t, version, there[name]) {
			t.Errorf("%s was acknowledged at %s and has %q", name, version, there[name])
		}
	}
	poll.Until(t, "the watch has received everything", func() string {
		got := seen.latest()
		for name, version := range there {
			if got[name] != version {
				return fmt.Sprintf("%s is at %s, the watch received %q (%s)", name, version, got[name], seen.problem())
			}
		}
		return seen.problem()
	})
	for _, name := range slices.Sorted(maps.Keys(l.acknowledged)) {
		if !seen.saw(name, l.acknowledged[name]) {
			t.Errorf("the watch missed %s at %s", name, l.acknowledged[name])
		}
	}
}

func isNewer(t *testing.T, version, than string) bool {
	t.Helper()
	return than == "" || resourceVersion(t, version) > resourceVersion(t, than)
}

// load writes objects and records acknowledged writes.
type load struct {
	resource         *resource
	writes, failures atomic.Int64

	mu           sync.Mutex
	acknowledged map[string]string // the resource version of each name
}

func (l *load) start(t *testing.T, writers int) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for writer := range writers {
		running.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				// Every object is written twice.
				l.write(ctx, t, fmt.Sprintf("w%d-%04d", writer, i/2), i%2 == 0)
			}
		})
	}
	return func() {
		cancel()
		running.Wait()
	}
}

// write writes once. A failed write may have succeeded in etcd.
func (l *load) write(ctx context.Context, t *testing.T, name string, first bool) {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	var written *unstructured.Unstructured
	var err error
	if first {
		written, err = l.resource.in("v1").Create(ctx, l.resource.object(t, "v1", name, "spec: {round: 0}"), metav1.CreateOptions{})
	} else {
		written, err = l.resource.patch(t, "v1", name, `{"spec":{"round":1}}`)
	}
	if err != nil {
		l.failures.Add(1)
		if !apierrors.IsNotFound(err) {
			time.Sleep(10 * time.Millisecond) // a pause for the Store
		}
		return
	}
	l.mu.Lock()
	l.acknowledged[name] = written.GetResourceVersion()
	l.mu.Unlock()
	l.writes.Add(1)
}

// waitForWrites waits until more writes were acknowledged.
func (l *load) waitForWrites(t *testing.T, more int64, when string) {
	t.Helper()
	begin := l.writes.Load()
	poll.UntilDone(t, fmt.Sprintf("%d writes %s", more, when), func() (bool, string) {
		done := l.writes.Load() - begin
		return done >= more, fmt.Sprintf("%d were acknowledged, %d failed in all", done, l.failures.Load())
	})
}

// observed records the events of a watch.
type observed struct {
	mu       sync.Mutex
	versions map[string][]string
	trouble  string
}

// watchAll watches until the test ends, with a single watch.
func watchAll(t *testing.T, r *resource, from string) *observed {
	t.Helper()
	events := r.watch(t, "v1", metav1.ListOptions{ResourceVersion: from, TimeoutSeconds: new(int64(3600))})
	o := &observed{versions: map[string][]string{}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for event := range events.ResultChan() {
			o.add(event)
		}
		o.mu.Lock()
		defer o.mu.Unlock()
		o.trouble += "the watch has ended"
	}()
	t.Cleanup(func() {
		events.Stop()
		<-done
	})
	return o
}

func (o *observed) add(event watch.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	object, ok := event.Object.(*unstructured.Unstructured)
	if !ok || event.Type == watch.Error {
		o.trouble += fmt.Sprintf("%s %v; ", event.Type, event.Object)
		return
	}
	name, version := object.GetName(), object.GetResourceVersion()
	if slices.Contains(o.versions[name], version) {
		o.trouble += fmt.Sprintf("%s at %s was received twice; ", name, version)
	}
	o.versions[name] = append(o.versions[name], version)
}

// latest is the last version of each object.
func (o *observed) latest() map[string]string {
	o.mu.Lock()
	defer o.mu.Unlock()
	latest := map[string]string{}
	for name, versions := range o.versions {
		latest[name] = versions[len(versions)-1]
	}
	return latest
}

func (o *observed) saw(name, version string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Contains(o.versions[name], version)
}

func (o *observed) problem() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.trouble
}
