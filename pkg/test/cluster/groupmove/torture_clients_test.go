// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package groupmove

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/annex-dev/annex/pkg/test/clients"
)

const (
	keepFinalizer = "example.com/keep"
	// requestTimeout bounds a request, longer than any hold.
	requestTimeout = 3 * time.Minute
	// ownersAtOnce is the number of owners that exist at a time.
	ownersAtOnce = 8
)

// client writes objects that only it writes, and increments a counter that all increment.
type client struct {
	*history
	name      string
	random    *rand.Rand
	widgets   dynamic.ResourceInterface
	newWidget func(namespace, name string) *unstructured.Unstructured
	n         int64
}

func (c *client) run(ctx context.Context) {
	objects := make([]*unstructured.Unstructured, objectsPerWriter)
	for ctx.Err() == nil {
		c.n++
		i := c.random.IntN(len(objects))
		name := fmt.Sprintf("%s-%d", c.name, i)
		switch c.random.IntN(8) {
		case 0:
			c.increment()
		case 1:
			objects[i] = c.read("read", name)
		default:
			objects[i] = c.write(name, objects[i])
		}
		select {
		case <-time.After(c.pause):
		case <-ctx.Done():
		}
	}
}

// request is one write, and the state that it makes.
type request struct {
	what string
	want state
	do   func(ctx context.Context) (*unstructured.Unstructured, error)
}

// write performs a random write that fits an object, and returns the object after it.
func (c *client) write(name string, object *unstructured.Unstructured) *unstructured.Unstructured {
	// Requests are not interrupted at the end: their outcome would be unknown.
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()
	r := c.choose(name, object)
	if !r.want.exists {
		c.deletes(name)
	}
	began, floor := time.Now(), c.floor()
	written, err := r.do(ctx)
	switch {
	case err == nil:
		made := write{state: r.want, acknowledged: true}
		if written != nil {
			made.revision = c.wantAbove(floor, r.what+" of "+name, written)
		}
		c.wrote(name, made)
		if written == nil { // a deletion
			if r.want.exists {
				return c.read("after "+r.what, name)
			}
			return nil
		}
		if got := stateOf(written); got != r.want {
			c.problem("%s of %s returned %+v, want %+v", r.what, name, got, r.want)
		}
		return written
	case c.mayFail(began):
		c.unknown.Add(1)
		c.wrote(name, write{state: r.want})
	case apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err):
		c.conflicts.Add(1)
	default:
		c.wrote(name, write{state: r.want})
		c.problem("%s of %s: %v (after %s)", r.what, name, err, time.Since(began))
	}
	return c.read(fmt.Sprintf("after %s: %v", r.what, err), name)
}

// choose returns a random write. Each has the resource version that the client saw last, so that a lost
// or repeated one is a conflict.
func (c *client) choose(name string, object *unstructured.Unstructured) request {
	want, version := stateOf(object), ""
	if object != nil {
		version = object.GetResourceVersion()
	}
	switch action := c.random.IntN(10); {
	case object == nil:
		return c.newCreate(name)
	case want.deleting:
		return request{"removal of the finalizers", state{}, func(ctx context.Context) (*unstructured.Unstructured, error) {
			changed := object.DeepCopy()
			changed.SetFinalizers(nil)
			_, err := c.widgets.Update(ctx, changed, metav1.UpdateOptions{})
			return nil, err
		}}
	case action < 2:
		if want.deleting = len(object.GetFinalizers()) > 0; !want.deleting {
			want = state{}
		}
		return request{"delete", want, func(ctx context.Context) (*unstructured.Unstructured, error) {
			return nil, c.widgets.Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &version}})
		}}
	case action < 4:
		want.applied = c.n
		return request{"apply", want, func(ctx context.Context) (*unstructured.Unstructured, error) {
			applied := c.newWidget("default", name)
			applied.Object["spec"] = map[string]any{"applied": c.n}
			applied.SetResourceVersion(version)
			return c.widgets.Apply(ctx, name, applied, metav1.ApplyOptions{FieldManager: "applier", Force: true})
		}}
	case action < 6:
		want.seen = c.n
		return request{"update of the status", want, func(ctx context.Context) (*unstructured.Unstructured, error) {
			return c.widgets.UpdateStatus(ctx, with(object, c.n, "status", "seen"), metav1.UpdateOptions{})
		}}
	}
	want.value = c.n
	return request{"update", want, func(ctx context.Context) (*unstructured.Unstructured, error) {
		return c.widgets.Update(ctx, with(object, c.n, "spec", valueField(object)), metav1.UpdateOptions{})
	}}
}

func (c *client) newCreate(name string) request {
	widget := c.newWidget("default", name)
	widget = with(widget, c.n, "spec", valueField(widget))
	if c.random.IntN(3) == 0 {
		widget.SetFinalizers([]string{keepFinalizer})
	}
	return request{"create", state{exists: true, value: c.n}, func(ctx context.Context) (*unstructured.Unstructured, error) {
		return c.widgets.Create(ctx, widget, metav1.CreateOptions{})
	}}
}

// with returns a copy of an object with a changed field.
func with(object *unstructured.Unstructured, value int64, path ...string) *unstructured.Unstructured {
	changed := object.DeepCopy()
	if err := unstructured.SetNestedField(changed.Object, value, path...); err != nil {
		panic(err) // the path leads through objects
	}
	return changed
}

// read returns an object, which must be as it was left.
func (c *client) read(when, name string) *unstructured.Unstructured {
	for {
		began := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
		object, err := c.widgets.Get(ctx, name, metav1.GetOptions{})
		cancel()
		if apierrors.IsNotFound(err) {
			object, err = nil, nil
		}
		if err == nil {
			c.wantPossible(when, name, stateOf(object))
			return object
		}
		if !c.mayFail(began) {
			c.problem("read of %s: %v", name, err)
			return nil
		}
		time.Sleep(c.pause)
	}
}

// increment increments the counter once.
func (c *client) increment() {
	for {
		began := time.Now()
		err := c.increase(c.widgets, "counter")
		switch {
		case err == nil:
			c.acknowledged.Add(1)
			return
		case apierrors.IsConflict(err) && !c.mayFail(began):
			continue
		case !c.mayFail(began):
			c.problem("increment of the counter: %v", err)
		}
		c.uncertain.Add(1)
		return
	}
}

// increase adds one to the value of a widget.
func (h *history) increase(widgets dynamic.ResourceInterface, name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()
	floor := h.floor()
	object, err := widgets.Get(ctx, name, metav1.GetOptions{})
	if err == nil {
		object, err = widgets.Update(ctx, with(object, stateOf(object).value+1, "spec", valueField(object)), metav1.UpdateOptions{})
	}
	if err == nil {
		h.wantAbove(floor, "update of "+name, object)
	}
	return err
}

// owners creates and deletes widgets that own ConfigMaps.
type owners struct {
	*history
	fixture *fixture
	random  *rand.Rand
	clients *clients.Clients
	alive   []string
}

func (o *owners) run(ctx context.Context) {
	for ctx.Err() == nil {
		if len(o.alive) < ownersAtOnce {
			o.create()
		} else {
			o.remove(o.random.IntN(len(o.alive)))
		}
		select {
		case <-time.After(20 * o.pause):
		case <-ctx.Done():
		}
	}
}

// create creates an owner with a generated name, and a dependent.
func (o *owners) create() {
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()
	widget := o.fixture.newWidget("default", "")
	widget.SetGenerateName("owner-")
	began := time.Now()
	created, err := o.clients.Dynamic.Resource(o.fixture.resource()).Namespace("default").Create(ctx, widget, metav1.CreateOptions{})
	if err != nil {
		if o.unknown.Add(1); !o.mayFail(began) {
			o.problem("create an owner: %v", err)
		}
		return
	}
	name, of := created.GetName(), &dependent{}
	o.mu.Lock()
	o.owned[name] = of
	o.mu.Unlock()
	o.alive = append(o.alive, name)
	began = time.Now()
	_, err = o.clients.Kube.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{ownedLabel: "true"},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(created, created.GroupVersionKind())},
	}}, metav1.CreateOptions{})
	if err == nil {
		o.mu.Lock()
		of.created = true
		o.mu.Unlock()
	} else if !o.mayFail(began) {
		o.problem("create the dependent of %s: %v", name, err)
	}
}

func (o *owners) remove(i int) {
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()
	name := o.alive[i]
	o.alive = append(o.alive[:i], o.alive[i+1:]...)
	o.mu.Lock()
	of := o.owned[name]
	of.deleting = true
	o.deletions[name]++
	o.mu.Unlock()
	policy := metav1.DeletePropagationBackground
	if o.random.IntN(3) == 0 {
		policy = metav1.DeletePropagationForeground
	}
	began := time.Now()
	err := o.clients.Dynamic.Resource(o.fixture.resource()).Namespace("default").Delete(ctx, name, metav1.DeleteOptions{PropagationPolicy: new(policy)})
	switch {
	case err == nil:
		o.mu.Lock()
		of.deleted = policy == metav1.DeletePropagationBackground
		o.mu.Unlock()
	case !o.mayFail(began):
		o.problem("delete %s: %v", name, err)
	}
}
