// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package staticobjects

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsfake "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/fake"
	apiextensionsinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubefake "k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	"k8s.io/client-go/tools/events"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	annexfake "github.com/annex-dev/annex/pkg/generated/clientset/versioned/fake"
	annexscheme "github.com/annex-dev/annex/pkg/generated/clientset/versioned/scheme"
	annexinformers "github.com/annex-dev/annex/pkg/generated/informers/externalversions"
	"github.com/annex-dev/annex/pkg/staticobjects"
	"github.com/annex-dev/annex/pkg/test/crds"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// source is a source whose content a test sets in the manager.
type source string

func (s source) Name() string                                    { return string(s) }
func (s source) Location() string                                { return "/static" }
func (source) Run(context.Context, func(staticobjects.Snapshot)) {}

type testController struct {
	*Controller
	t       *testing.T
	hosting *annexfake.Clientset
	events  *events.FakeRecorder
}

func newController(t *testing.T) *testController {
	t.Helper()
	hosting, recorder := annexfake.NewClientset(), events.NewFakeRecorder(100)
	c, err := New(Config{
		Sources:            staticobjects.NewSources(source("file")),
		AnnexDiscovery:     &served{},
		AnnexStaticSources: hosting.HostingV1alpha1().StaticSources(),
		StaticSources:      annexinformers.NewSharedInformerFactory(hosting, 0).Hosting().V1alpha1().StaticSources(),
		Definitions:        apiextensionsinformers.NewSharedInformerFactory(apiextensionsfake.NewClientset(), 0).Apiextensions().V1().CustomResourceDefinitions(),
		Refused:            map[schema.GroupKind]string{staticobjects.Definition: "refused here"},
		Events:             recorder,
	})
	expect.NoError(t, err)
	return &testController{c, t, hosting, recorder}
}

const documents = `
{apiVersion: example.com/v1, kind: Widget, metadata: {namespace: team, name: w}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: team}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec: {group: example.com, names: {kind: Widget}}
`

var (
	widgetKey     = staticobjects.Key{Group: "example.com", Kind: "Widget", Namespace: "team", Name: "w"}
	namespaceKey  = staticobjects.Key{Kind: "Namespace", Name: "team"}
	definitionKey = staticobjects.Key{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition", Name: "widgets.example.com"}
)

func (c *testController) set(data string, problems ...staticobjects.Problem) {
	c.t.Helper()
	objects, err := staticobjects.Decode("file", "f", []byte(data))
	expect.NoError(c.t, err)
	c.manager.SetSource("file", staticobjects.Snapshot{Objects: objects, Problems: problems, Complete: len(problems) == 0})
}

func TestIsSettled(t *testing.T) {
	t.Parallel()
	c := newController(t)
	check := func(what string, want bool) {
		t.Helper()
		if got := c.isSettled(); got != want {
			t.Errorf("%s: settled %t, want %t", what, got, want)
		}
	}
	check("not read", false)
	c.set("# none", staticobjects.Problem{Reason: "FileUnusable"})
	check("an attempt has ended", true)
	c.set(documents)
	check("not applied", false)
	c.states.set(definitionKey, state{phase: applied, source: "file"})
	c.states.set(namespaceKey, state{phase: applied, source: "file"})
	c.states.set(widgetKey, state{phase: waiting, source: "file", reason: reasonUnknownKind})
	check("waits for its definition", false)
	c.states.set(definitionKey, state{phase: refused, source: "file"})
	check("waits for a definition that is refused", true)
	c.states.set(widgetKey, state{phase: waiting, source: "file", reason: reasonNoNamespace})
	check("waits for its namespace", false)
	c.states.set(widgetKey, state{phase: failing, source: "file"})
	check("fails", false)
	c.states.set(widgetKey, state{phase: refused, source: "file"})
	check("refused", true)
	c.set("{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: widgets.example.com}}")
	c.states.set(definitionKey, state{phase: applied, source: "file"})
	check("a definition that is not served", false)
	expect.NoError(t, c.config.Definitions.Informer().GetStore().Add(crds.Established(crds.New("example.com", "widgets", "v1"))))
	check("a definition that is served", true)
	c.set("{apiVersion: other.com/v1, kind: Other, metadata: {name: o}}")
	c.states.set(staticobjects.Key{Group: "other.com", Kind: "Other", Name: "o"}, state{phase: waiting, source: "file", reason: reasonUnknownKind})
	check("a kind that no source defines", true)
}

func TestFailed(t *testing.T) {
	t.Parallel()
	namespaces := schema.GroupResource{Resource: "namespaces"}
	gears := schema.GroupResource{Group: "example.com", Resource: "widgets"}
	terminating := apierrors.NewForbidden(gears, "w", errors.New("being deleted"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for name, test := range map[string]struct {
		err     error
		want    phase
		reason  string
		retried bool
	}{
		"no namespace":         {apierrors.NewNotFound(namespaces, "team"), waiting, reasonNoNamespace, false},
		"namespace is deleted": {terminating, waiting, reasonNoNamespace, false},
		"resource is gone":     {apierrors.NewNotFound(gears, "w"), waiting, reasonUnknownKind, false},
		"invalid":              {apierrors.NewInvalid(schema.GroupKind{}, "w", nil), refused, reasonRefused, false},
		"policy":               {apierrors.NewForbidden(gears, "w", errors.New("policy")), refused, reasonRefused, false},
		"wrapped":              {fmt.Errorf("write: %w", apierrors.NewBadRequest("bad")), refused, reasonRefused, false},
		"conflict":             {apierrors.NewConflict(gears, "w", errors.New("changed")), "", "", true},
		"Store is down":        {apierrors.NewServiceUnavailable("down"), failing, reasonNotNow, true},
		"no answer":            {errors.New("connection refused"), failing, reasonNotNow, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newController(t)
			c.set(documents)
			result, err := c.failed(widgetKey, target{}, staticobjects.Decision{Object: c.manager.Object(widgetKey)}, test.err)
			got := c.states.get(widgetKey)
			expect.Equal(t, fmt.Sprint(test.want, test.reason), fmt.Sprint(got.phase, got.reason), "state")
			if (err != nil) != test.retried || (result.RequeueAfter > 0 || result.Backoff) == test.retried {
				t.Errorf("result %v, error %v", result, err)
			}
		})
	}
}

// The resource is recorded before the first write.
func TestStatus(t *testing.T) {
	t.Parallel()
	c := newController(t)
	read := func() *hostingv1alpha1.StaticSource {
		source, err := c.hosting.HostingV1alpha1().StaticSources().Get(t.Context(), "file", metav1.GetOptions{})
		expect.NoError(t, err)
		return source
	}
	expect.NoError(t, c.record(t.Context(), "file", schema.GroupResource{Group: "example.com", Resource: "widgets"}))
	expect.Equal(t, []string{"widgets.example.com"}, read().Status.Resources, "resources")

	c.set(documents, staticobjects.Problem{Origin: "g", Reason: "FileUnusable", Message: "bad"})
	c.setState(definitionKey, state{phase: applied, source: "file"})
	c.setState(widgetKey, state{phase: refused, source: "file", origin: "f#1", reason: reasonNameTaken, message: "taken"})
	gone := staticobjects.Key{Kind: "Namespace", Name: "gone"}
	c.setState(gone, state{phase: orphaned, source: "file", reason: reasonOrphaned, message: "kept"})
	expect.NoError(t, c.reconcileSource(t.Context(), "file"))
	got := read()
	expect.Equal(t, "/static 3 1 1 [widgets.example.com]",
		fmt.Sprint(got.Spec.Location, " ", got.Status.Objects, got.Status.Applied, got.Status.Orphaned, " ", got.Status.Resources), "source")
	expect.Equal(t, []hostingv1alpha1.StaticProblem{
		{Origin: "g", Reason: "FileUnusable", Message: "bad"},
		{Object: "Namespace gone", Reason: "Orphaned", Message: "kept"},
		{Origin: "f#1", Object: "Widget.example.com team/w", Reason: "NameTaken", Message: "taken"},
	}, got.Status.Problems, "problems")
	for condition, want := range map[string]string{
		hostingv1alpha1.StaticSourceRead:    "False ReadFailed g bad; nothing is deleted until it can be read",
		hostingv1alpha1.StaticSourceApplied: "False NotApplied 2 of 3 objects are not applied: Widget.example.com team/w f#1: taken",
	} {
		found := meta.FindStatusCondition(got.Status.Conditions, condition)
		expect.Equal(t, want, fmt.Sprint(found.Status, " ", found.Reason, " ", found.Message), condition)
	}
	for _, want := range []string{"Warning Orphaned", "Warning NameTaken", "Warning ReadFailed g bad"} {
		found := false
		for range len(c.events.Events) {
			event := <-c.events.Events
			found = found || expect.Missing(event, want) == ""
			c.events.Events <- event
		}
		if !found {
			t.Errorf("no event %q", want)
		}
	}
	// Without a change, nothing is written.
	c.hosting.ClearActions()
	expect.NoError(t, c.reconcileSource(t.Context(), "file"))
	for _, action := range c.hosting.Actions() {
		if action.GetVerb() != "get" {
			t.Errorf("unexpected %v", action)
		}
	}
}

// TestEachActionHasItsEvent: upstream takes events of one action for one event that repeats.
func TestEachActionHasItsEvent(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	kube, c := kubefake.NewClientset(), newController(t)
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: kube.EventsV1()})
	defer broadcaster.Shutdown()
	expect.NoError(t, broadcaster.StartRecordingToSinkWithContext(ctx))
	c.config.Events = broadcaster.NewRecorder(annexscheme.Scheme, "annex")
	unchanged := &hostingv1alpha1.StaticSource{ObjectMeta: metav1.ObjectMeta{Name: "file"}, Status: hostingv1alpha1.StaticSourceStatus{
		Conditions: []metav1.Condition{{Type: hostingv1alpha1.StaticSourceRead}},
	}}
	for _, action := range []staticobjects.Action{staticobjects.Update, staticobjects.Delete} {
		c.states.wrote("file", string(action))
		c.report(unchanged, unchanged)
	}
	poll.Until(t, "an event for each action", func() string {
		found, err := kube.EventsV1().Events("").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}
		return expect.Missing(fmt.Sprintf("%+v", found.Items), "Mirrors: update 1", "Mirrors: delete 1")
	})
}

// A source without a flag is not created, and shows so if it is there.
func TestNotConfigured(t *testing.T) {
	t.Parallel()
	c := newController(t)
	client := c.hosting.HostingV1alpha1().StaticSources()
	expect.NoError(t, c.reconcileSource(t.Context(), "http"))
	if _, err := client.Get(t.Context(), "http", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("it was created: %v", err)
	}
	expect.Create(t, client, &hostingv1alpha1.StaticSource{ObjectMeta: metav1.ObjectMeta{Name: "http"}})
	expect.NoError(t, c.reconcileSource(t.Context(), "http"))
	source := expect.Get(t, client, "http")
	expect.Equal(t, hostingv1alpha1.StaticSourceNotConfigured, meta.FindStatusCondition(source.Status.Conditions, hostingv1alpha1.StaticSourceRead).Reason, "reason")
}

// A HostedResource is created before its definition, and some kinds are refused.
func TestOrderAndRefusal(t *testing.T) {
	t.Parallel()
	c := newController(t)
	c.set(documents + "---\n{apiVersion: hosting.annex.dev/v1alpha1, kind: HostedResource, metadata: {name: widgets.example.com}}")
	if !c.hostedResourceIsFirst(definitionKey) || c.hostedResourceIsFirst(widgetKey) {
		t.Error("only the definition waits")
	}
	c.states.set(staticobjects.Key{Group: "hosting.annex.dev", Kind: "HostedResource", Name: "widgets.example.com"}, state{phase: refused})
	if c.hostedResourceIsFirst(definitionKey) {
		t.Error("the definition waits for a HostedResource that was tried")
	}
	for name, test := range map[string]struct {
		key  staticobjects.Key
		t    target
		want string
	}{
		"suitable":       {widgetKey, target{namespaced: true, manageable: true}, ""},
		"refused":        {definitionKey, target{manageable: true}, reasonUnsupported},
		"review":         {widgetKey, target{namespaced: true}, reasonUnsupported},
		"no namespace":   {namespaceKey, target{namespaced: true, manageable: true}, reasonScope},
		"with namespace": {widgetKey, target{manageable: true}, reasonScope},
	} {
		reason, message := c.unsuitable(test.key, test.t)
		expect.Equal(t, test.want, reason, "%s: %s", name, message)
	}
}

// TestUntilWatched reads a mirror again until its watch has delivered it: the deletion is not delivered before.
func TestUntilWatched(t *testing.T) {
	t.Parallel()
	c := newController(t)
	seen := widgetKey
	seen.Name = "seen"
	scheme := metadatafake.NewTestScheme()
	expect.NoError(t, metav1.AddMetaToScheme(scheme))
	c.watches.annexMetadata = metadatafake.NewSimpleMetadataClient(scheme, &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "example.com/v1", Kind: "Widget"},
		ObjectMeta: metav1.ObjectMeta{Namespace: seen.Namespace, Name: seen.Name, Labels: map[string]string{hostingv1alpha1.StaticSourceAnnotation: "file"}},
	})
	c.watches.handle = func(staticobjects.Key, metav1.Object, bool) {}
	widgets := target{GroupVersionResource: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}, kind: "Widget"}
	wait := func(key staticobjects.Key) time.Duration { return c.untilWatched(key, widgets).RequeueAfter }
	expect.Equal(t, watchedWait, wait(seen), "delay before the watch is open")
	ctx, cancel := context.WithCancel(t.Context())
	defer c.watches.wait()
	defer cancel()
	c.watches.start(ctx)
	c.watches.ensure(widgets)
	poll.UntilDone(t, "the watch has delivered the mirror", func() (bool, string) {
		after := wait(seen)
		return after == 0, fmt.Sprint(after)
	})
	expect.Equal(t, watchedWait, wait(widgetKey), "delay for a mirror that the watch has not delivered")
	c.watches.stop("example.com")
	expect.Equal(t, watchedWait, wait(seen), "delay after the watch has ended")
}
