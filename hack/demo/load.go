// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
)

const (
	writers          = 4
	objectsPerWriter = 100
	writePause       = 200 * time.Millisecond
)

// load is clients of the main cluster that write all the time.
type load struct {
	objects dynamic.ResourceInterface
	writers []*writer
	stop    context.CancelFunc
	running sync.WaitGroup
}

// writer is the only client that writes its objects.
type writer struct {
	objects dynamic.ResourceInterface
	mu      sync.Mutex // held during a write
	// want has each object as it was acknowledged last.
	want []*unstructured.Unstructured
	seen
}

// seen counts the results of a writer since the last report.
type seen struct {
	acknowledged, conflicts, failed, lost, otherUID int
	slowest                                         time.Duration
	problem                                         error // the first
}

// startLoad creates objects, and keeps writing them until the load is ended.
func startLoad(ctx context.Context, objects dynamic.ResourceInterface) (*load, error) {
	ctx, stop := context.WithCancel(ctx)
	l := &load{objects: objects, stop: stop}
	var creating errgroup.Group
	for i := range writers {
		w := &writer{objects: objects}
		l.writers = append(l.writers, w)
		creating.Go(func() error { return w.create(ctx, i) })
	}
	if err := creating.Wait(); err != nil {
		stop()
		return nil, err
	}
	for _, w := range l.writers {
		// Requests are not interrupted: their outcome would be unknown.
		l.running.Go(func() {
			wait.UntilWithContext(ctx, func(ctx context.Context) { w.write(context.WithoutCancel(ctx)) }, writePause)
		})
	}
	return l, nil
}

func (l *load) end() {
	l.stop()
	l.running.Wait()
}

func (w *writer) create(ctx context.Context, number int) error {
	for i := range objectsPerWriter {
		order := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": orders.GroupVersion().String(), "kind": "Order",
			"metadata": map[string]any{"name": fmt.Sprintf("order-%d-%03d", number, i)},
			"spec":     map[string]any{"value": int64(0)},
		}}
		created, err := w.objects.Create(ctx, order, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("create an order: %w", err)
		}
		w.want = append(w.want, created)
	}
	return nil
}

// write reads an object and writes it with the resource version that it read, so that a write between
// both would be a conflict.
func (w *writer) write(ctx context.Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	i, began := rand.IntN(len(w.want)), time.Now()
	live, err := w.objects.Get(ctx, w.want[i].GetName(), metav1.GetOptions{})
	if err == nil {
		w.compare(i, live)
		live.Object["spec"] = map[string]any{"value": value(live) + 1}
		live, err = w.objects.Update(ctx, live, metav1.UpdateOptions{})
	}
	w.slowest = max(w.slowest, time.Since(began))
	switch {
	case apierrors.IsConflict(err):
		w.conflicts++
	case err != nil:
		w.failed++
		if w.problem == nil {
			w.problem = err
		}
	default:
		w.acknowledged++
		w.want[i] = live
	}
}

// compare counts an object that is not what was acknowledged last. live is nil if it is gone.
func (w *writer) compare(i int, live *unstructured.Unstructured) {
	if live == nil || value(live) != value(w.want[i]) {
		w.lost++
	}
	if live != nil && live.GetUID() != w.want[i].GetUID() {
		w.otherUID++
	}
}

func value(order *unstructured.Unstructured) int64 {
	value, _, _ := unstructured.NestedInt64(order.Object, "spec", "value")
	return value
}

// report prints what all writers saw since the last report, and returns an error if they should not
// have seen it. They pause meanwhile.
func (l *load) report(ctx context.Context) error {
	for _, w := range l.writers {
		w.mu.Lock()
		defer w.mu.Unlock()
	}
	list, err := l.objects.List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list the orders: %w", err)
	}
	byName := make(map[string]*unstructured.Unstructured, len(list.Items))
	for i := range list.Items {
		byName[list.Items[i].GetName()] = &list.Items[i]
	}
	var all seen
	for _, w := range l.writers {
		for i, want := range w.want {
			w.compare(i, byName[want.GetName()])
		}
		all.add(w.seen)
		w.seen = seen{}
	}
	fmt.Printf("\n=> %d clients saw: writes acknowledged %d, requests failed %d, conflicts %d, slowest write %.1f s; of %d objects with lost writes %d, with changed UID %d\n",
		writers, all.acknowledged, all.failed, all.conflicts, all.slowest.Seconds(), len(list.Items), all.lost, all.otherUID)
	if all.failed+all.lost+all.otherUID > 0 {
		return errors.Join(errors.New("the clients were disturbed"), all.problem)
	}
	return nil
}

func (s *seen) add(other seen) {
	s.acknowledged += other.acknowledged
	s.conflicts += other.conflicts
	s.failed += other.failed
	s.lost += other.lost
	s.otherUID += other.otherUID
	s.slowest = max(s.slowest, other.slowest)
	if s.problem == nil {
		s.problem = other.problem
	}
}
