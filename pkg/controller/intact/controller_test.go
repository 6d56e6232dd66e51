// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package intact

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	annexfake "github.com/annex-dev/annex/pkg/generated/clientset/versioned/fake"
	annexinformers "github.com/annex-dev/annex/pkg/generated/informers/externalversions"
	"github.com/annex-dev/annex/pkg/storage/corruption"
)

const widgets = "widgets.example.com"

// registry is a Registry that is told what to say of Widgets.
type registry struct {
	mu      sync.Mutex
	objects []corruption.Object
	listed  bool
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

// running is a controller at work, between clients that keep objects in memory.
type running struct {
	*registry
	annex    *annexfake.Clientset
	recorder *events.FakeRecorder
}

func run(t *testing.T, r *registry, hosted *hostingv1alpha1.HostedResource) *running {
	t.Helper()
	fixture := &running{registry: r, annex: annexfake.NewClientset(hosted), recorder: events.NewFakeRecorder(10)}
	informers := annexinformers.NewSharedInformerFactory(fixture.annex, 0)
	c, err := New(Config{
		AnnexHostedResources: fixture.annex.HostingV1alpha1().HostedResources(),
		HostedResources:      informers.Hosting().V1alpha1().HostedResources(),
		Unreadable:           r, Events: fixture.recorder,
	})
	if err != nil {
		t.Fatal(err)
	}
	informers.StartWithContext(t.Context())
	var running sync.WaitGroup
	running.Go(func() { c.Run(t.Context(), 1) })
	t.Cleanup(func() {
		running.Wait()
		informers.Shutdown()
	})
	return fixture
}

// want compares the condition, and the events since the last time.
func (r *running) want(t *testing.T, what, condition string, events ...string) {
	t.Helper()
	synctest.Wait()
	hosted, err := r.annex.HostingV1alpha1().HostedResources().Get(t.Context(), widgets, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got := ""
	if c := meta.FindStatusCondition(hosted.Status.Conditions, hostingv1alpha1.HostedResourceObjectsReadable); c != nil {
		got = fmt.Sprintf("%s %s %s", c.Status, c.Reason, c.Message)
	}
	if got != condition {
		t.Errorf("%s: the condition is\n%q, want\n%q", what, got, condition)
	}
	for len(r.recorder.Events) > 0 {
		event := <-r.recorder.Events
		if len(events) == 0 || event != events[0] {
			t.Errorf("%s: event %q, want %q", what, event, events)
			continue
		}
		events = events[1:]
	}
	if len(events) > 0 {
		t.Errorf("%s: no event %q", what, events)
	}
}

func resource(conditions ...metav1.Condition) *hostingv1alpha1.HostedResource {
	hosted := &hostingv1alpha1.HostedResource{ObjectMeta: metav1.ObjectMeta{Name: widgets}}
	hosted.Status.DefinitionUID, hosted.Status.Conditions = "u", conditions
	return hosted
}

const (
	oneObject = "False UnreadableObjects 1 object cannot be read, so lists fail. default/b: it cannot be decoded: no"
	recovers  = "True AllReadable Every object can be read"
)

func TestController(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := run(t, &registry{}, resource())
		r.want(t, "before anything was read", "")
		r.set(true)
		r.want(t, "with nothing to say", "")
		r.set(true, object("b"))
		r.want(t, "one object", oneObject, "Warning UnreadableObjects 1 object cannot be read, so lists fail: default/b")
		r.set(true, object("b"))
		r.want(t, "the same again", oneObject)
		r.set(true, object("b"), object("c"))
		r.want(t, "a second one",
			"False UnreadableObjects 2 objects cannot be read, so lists fail. default/b: it cannot be decoded: no; default/c: it cannot be decoded: no",
			"Warning UnreadableObjects 2 objects cannot be read, so lists fail: default/b, default/c")
		r.set(true)
		r.want(t, "none any more", recovers, "Normal AllReadable Every object can be read")
	})
}

// TestStart finds what was said by an annex that ran before.
func TestStart(t *testing.T) {
	t.Parallel()
	before := condition([]corruption.Object{object("b")})
	t.Run("keeps it until all was looked at", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			r := run(t, &registry{}, resource(before))
			r.want(t, "at first", oneObject)
			r.set(false)
			r.want(t, "a part was read", oneObject)
			r.set(true)
			r.want(t, "all was read", recovers, "Normal AllReadable Every object can be read")
		})
	})
	t.Run("knows before the informer does", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			known := &registry{objects: []corruption.Object{object("b")}}
			run(t, known, resource()).want(t, "at first", oneObject,
				"Warning UnreadableObjects 1 object cannot be read, so lists fail: default/b")
		})
	})
	t.Run("takes it back with the definition", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			r := run(t, &registry{objects: []corruption.Object{object("b")}}, resource())
			r.want(t, "at first", oneObject, "Warning UnreadableObjects 1 object cannot be read, so lists fail: default/b")
			r.set(false)
			hostedResources := r.annex.HostingV1alpha1().HostedResources()
			hosted, err := hostedResources.Get(t.Context(), widgets, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			hosted.Status.DefinitionUID = ""
			if _, err := hostedResources.UpdateStatus(t.Context(), hosted, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			r.want(t, "without a definition", "")
		})
	})
}

func TestCondition(t *testing.T) {
	t.Parallel()
	var many []corruption.Object
	for i := range 12 {
		one := object(fmt.Sprintf("w%02d", i))
		one.Reason = strings.Repeat("é", 5000)
		many = append(many, one)
	}
	c := condition(many)
	if len(c.Message) > 10*(longestReason+50) || !strings.HasPrefix(c.Message, "12 objects cannot be read") || !strings.HasSuffix(c.Message, "…; and 2 more") {
		t.Errorf("of many with long reasons it says %q", c.Message)
	}
}
