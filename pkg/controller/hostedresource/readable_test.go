// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package hostedresource

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/storage/layer/corruption"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// registry lists the unreadable widgets that a test sets.
type registry struct {
	mu      sync.Mutex
	objects []corruption.Object
	listed  bool
	failure string
	handler func(schema.GroupResource)
}

func (r *registry) Unreadable(resource schema.GroupResource) []corruption.Object {
	r.mu.Lock()
	defer r.mu.Unlock()
	if resource.String() != widgets {
		return nil
	}
	return r.objects
}

func (r *registry) AllRead(schema.GroupResource) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.listed
}

func (r *registry) Failure(schema.GroupResource) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failure
}

func (r *registry) AddHandler(handler func(schema.GroupResource)) (remove func()) {
	r.handler = handler
	return func() {}
}

func (r *registry) set(listed bool, objects ...corruption.Object) {
	r.mu.Lock()
	r.objects, r.listed = objects, listed
	r.mu.Unlock()
	if r.handler != nil {
		r.handler(schema.ParseGroupResource(widgets))
	}
}

func object(name string) corruption.Object {
	return corruption.Object{Namespace: "default", Name: name, Reason: "it cannot be decoded: no"}
}

// readable is the HostedResource of the fixture's definition.
func readable(conditions ...metav1.Condition) *hosted {
	resource := limited(nil, nil)
	resource.Status.DefinitionUID, resource.Status.Conditions = "7", conditions
	return resource
}

// wantReadable compares the condition, and the events since the previous call.
func (r *controllerFixture) wantReadable(t *testing.T, what, condition string, events ...string) {
	t.Helper()
	settle()
	if got := r.condition(t, hostingv1alpha1.HostedResourceObjectsReadable); got != condition {
		t.Errorf("%s: the condition is\n%q, want\n%q", what, got, condition)
	}
	r.wantEvents(t, what, events...)
}

const (
	oneObject = "False UnreadableObjects 1 object cannot be read, so lists fail. default/b: it cannot be decoded: no"
	recovers  = "True AllReadable Every object can be read"
)

func TestObjectsReadable(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := run(t, readable())
		r.wantReadable(t, "before any object was read", "")
		r.registry.set(true)
		r.wantReadable(t, "all readable", "")
		r.registry.set(true, object("b"))
		r.wantReadable(t, "one object", oneObject, "Warning UnreadableObjects 1 object cannot be read, so lists fail: default/b")
		r.registry.set(true, object("b"))
		r.wantReadable(t, "no change", oneObject)
		r.registry.set(true, object("b"), object("c"))
		r.wantReadable(t, "a second one",
			"False UnreadableObjects 2 objects cannot be read, so lists fail. default/b: it cannot be decoded: no; default/c: it cannot be decoded: no",
			"Warning UnreadableObjects 2 objects cannot be read, so lists fail: default/b, default/c")
		r.registry.set(true)
		r.wantReadable(t, "none any more", recovers, "Normal AllReadable Every object can be read")
		r.registry.failure = "v2: the webhook is gone"
		r.registry.set(true)
		r.wantReadable(t, "a version cannot be read", "False ReadsFail Lists and watches fail. v2: the webhook is gone",
			"Warning ReadsFail Lists and watches fail. v2: the webhook is gone")
		r.registry.set(true, object("b"))
		r.wantReadable(t, "nor an object", oneObject, "Warning UnreadableObjects 1 object cannot be read, so lists fail: default/b")
		r.registry.failure = ""
		r.registry.set(true)
		r.wantReadable(t, "all can be read again", recovers, "Normal AllReadable Every object can be read")
	})
}

// TestObjectsReadableAfterRestart begins with the condition that a previous process wrote.
func TestObjectsReadableAfterRestart(t *testing.T) {
	t.Parallel()
	before := objectsReadableCondition([]corruption.Object{object("b")}, "")
	t.Run("kept until all objects were read", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			r := run(t, readable(before))
			r.wantReadable(t, "at first", oneObject)
			r.registry.set(false)
			r.wantReadable(t, "a part was read", oneObject)
			r.registry.set(true)
			r.wantReadable(t, "all was read", recovers, "Normal AllReadable Every object can be read")
		})
	})
	t.Run("unreadable before the definition", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			r := run(t)
			r.registry.set(false, object("b"))
			r.define(t)
			r.wantReadable(t, "at first", oneObject, "Warning UnreadableObjects 1 object cannot be read, so lists fail: default/b")
		})
	})
	t.Run("removed with the definition", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			r := run(t, readable())
			r.registry.set(false, object("b"))
			r.wantReadable(t, "at first", oneObject, "Warning UnreadableObjects 1 object cannot be read, so lists fail: default/b")
			r.registry.set(false)
			expect.Delete(t, r.definitions.ApiextensionsV1().CustomResourceDefinitions(), widgets)
			settle()
			r.wantReadable(t, "without a definition", "")
		})
	})
}

func TestObjectsReadableCondition(t *testing.T) {
	t.Parallel()
	var many []corruption.Object
	for i := range 12 {
		one := object(fmt.Sprintf("w%02d", i))
		one.Reason = strings.Repeat("é", 5000)
		many = append(many, one)
	}
	c := objectsReadableCondition(many, "")
	if len(c.Message) > 10*(maxErrorLength+50) || !strings.HasPrefix(c.Message, "12 objects cannot be read") || !strings.HasSuffix(c.Message, "…; and 2 more") {
		t.Errorf("message of many objects with long errors: %q", c.Message)
	}
}
