// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/annex-dev/annex/pkg/apis/scheme"
	"github.com/annex-dev/annex/pkg/registry/typed"
	"github.com/annex-dev/annex/pkg/registry/typed/typedtest"
	"github.com/annex-dev/annex/pkg/standalone/serviceaccount"
	"github.com/annex-dev/annex/pkg/test/expect"
)

const ttl = 2 * time.Hour

// groups is the two groups that serve events, over one etcd.
type groups struct {
	core, events typed.Endpoints
	etcd         *typedtest.Storage
}

func newGroups(t *testing.T) *groups {
	t.Helper()
	etcd := typedtest.NewStorage(t, corev1.SchemeGroupVersion)
	return &groups{
		core:   etcd.Endpoints(NewGroup(etcd, ttl, serviceaccount.TokenConfig{})),
		events: etcd.Endpoints(NewEventsGroup(etcd, ttl)),
		etcd:   etcd,
	}
}

// eventRequest is the context of a request to a namespace through a group.
func eventRequest(t *testing.T, namespace string, version schema.GroupVersion) context.Context {
	t.Helper()
	ctx := genericapirequest.WithNamespace(t.Context(), namespace)
	return genericapirequest.WithRequestInfo(ctx, &genericapirequest.RequestInfo{
		IsResourceRequest: true, APIGroup: version.Group, APIVersion: version.Version, Resource: "events", Namespace: namespace,
	})
}

func TestGroups(t *testing.T) {
	t.Parallel()
	g := newGroups(t)
	t.Run("what is served", func(t *testing.T) { testServed(t, g) })
	t.Run("events of both groups are one", func(t *testing.T) { testEventsAreOne(t, g) })
	t.Run("each group has its rules", func(t *testing.T) { testEventRules(t, g) })
	t.Run("field selectors", func(t *testing.T) { testEventSelectors(t, g) })
	t.Run("secrets by type", func(t *testing.T) { testSecretsByType(t, g) })
}

func testServed(t *testing.T, g *groups) {
	want := []string{"configmaps", "events", "namespaces", "namespaces/finalize", "namespaces/status", "resourcequotas", "resourcequotas/status", "secrets", "serviceaccounts", "serviceaccounts/token"}
	if got := slices.Sorted(maps.Keys(g.core)); !slices.Equal(got, want) {
		t.Errorf("core serves %v, want %v", got, want)
	}
	if got := slices.Sorted(maps.Keys(g.events)); !slices.Equal(got, []string{"events"}) {
		t.Errorf("events.k8s.io serves %v, want events", got)
	}
	names := map[string][]string{}
	for resource, endpoint := range g.core {
		if short, ok := endpoint.(rest.ShortNamesProvider); ok && len(short.ShortNames()) > 0 {
			names[resource] = short.ShortNames()
		}
	}
	wantNames := map[string][]string{"namespaces": {"ns"}, "configmaps": {"cm"}, "serviceaccounts": {"sa"}, "events": {"ev"}, "resourcequotas": {"quota"}}
	expect.Equal(t, wantNames, names, "short names")
}

// newEvent passes the rules of both groups.
func newEvent(name string) *corev1.Event {
	return &corev1.Event{
		ObjectMeta:          metav1.ObjectMeta{Name: name, Namespace: "ns"},
		InvolvedObject:      corev1.ObjectReference{Kind: "Widget", Namespace: "ns", Name: name},
		EventTime:           metav1.NowMicro(),
		Type:                corev1.EventTypeNormal,
		Reason:              "Made",
		Action:              "Make",
		ReportingController: "annex.dev/test",
		ReportingInstance:   "test-0",
	}
}

func testEventsAreOne(t *testing.T, g *groups) {
	core, events := g.core.REST("events"), g.events.REST("events")
	created, err := typedtest.Create(eventRequest(t, "ns", eventsv1.SchemeGroupVersion), events, newEvent("one"))
	expect.NoError(t, err, "create through events.k8s.io")
	read, err := core.Get(eventRequest(t, "ns", corev1.SchemeGroupVersion), "one", &metav1.GetOptions{})
	expect.NoError(t, err, "read through core")
	expect.Equal(t, created, read, "written through one group, read through the other")

	stored := g.etcd.Stored(t, "events", "ns", "one")
	if stored == nil {
		t.Fatal("the event is not stored under /events/ns/one")
	}
	_, gvk, err := scheme.Codecs.UniversalDeserializer().Decode(stored, nil, nil)
	if err != nil || *gvk != corev1.SchemeGroupVersion.WithKind("Event") {
		t.Errorf("stored as %v (error %v), want Event of v1", gvk, err)
	}
	response, err := g.etcd.Client.Get(t.Context(), g.etcd.Key("events", "ns", "one"))
	expect.NoError(t, err, "read from etcd")
	// The store may reuse a lease that ends a little later.
	lease, err := g.etcd.Client.TimeToLive(t.Context(), clientv3.LeaseID(response.Kvs[0].Lease))
	if err != nil || lease.GrantedTTL < int64(ttl/time.Second) || lease.GrantedTTL > int64(2*ttl/time.Second) {
		t.Errorf("the event's lease is %+v (error %v), want about %s", lease, err, ttl)
	}

	if _, _, err := core.Delete(eventRequest(t, "ns", corev1.SchemeGroupVersion), "one", rest.ValidateAllObjectFunc, foreground()); err != nil {
		t.Fatalf("delete through core: %v", err)
	}
	if _, err := events.Get(eventRequest(t, "ns", eventsv1.SchemeGroupVersion), "one", &metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("read what is deleted: %v, want not found: nothing waits for an event's dependents", err)
	}
}

func foreground() *metav1.DeleteOptions {
	policy := metav1.DeletePropagationForeground
	return &metav1.DeleteOptions{PropagationPolicy: &policy}
}

func testEventRules(t *testing.T, g *groups) {
	old := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: "old", Namespace: "ns"},
		InvolvedObject: corev1.ObjectReference{Namespace: "ns"},
		Count:          3,
	}
	strict := g.events.REST("events")
	if _, err := typedtest.Create(eventRequest(t, "ns", eventsv1.SchemeGroupVersion), strict, old.DeepCopy()); !apierrors.IsInvalid(err) {
		t.Errorf("an old event through events.k8s.io: %v, want invalid", err)
	}
	// The way of client-go's recorder, whose event may have expired in between.
	lenient := g.core.REST("events")
	_, created, err := lenient.Update(eventRequest(t, "ns", corev1.SchemeGroupVersion), "old", rest.DefaultUpdatedObjectInfo(old),
		rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{})
	if err != nil || !created {
		t.Errorf("putting an old event through core: created %t, error %v; want it created", created, err)
	}
}

// testEventSelectors checks that the storage has every field label that a client may use: an
// unknown label would select nothing.
func testEventSelectors(t *testing.T, g *groups) {
	event := newEvent("selected")
	event.InvolvedObject = corev1.ObjectReference{
		Kind: "Widget", Namespace: "ns", Name: "selected", UID: "u", APIVersion: "a/v1", ResourceVersion: "5", FieldPath: "spec.x",
	}
	if _, err := typedtest.Create(eventRequest(t, "ns", eventsv1.SchemeGroupVersion), g.events.REST("events"), event); err != nil {
		t.Fatalf("creating: %v", err)
	}
	tests := []struct {
		version schema.GroupVersion
		storage typed.Endpoints
		fields  fields.Set
	}{
		{corev1.SchemeGroupVersion, g.core, fields.Set{
			"metadata.name": "selected", "metadata.namespace": "ns", "involvedObject.kind": "Widget", "involvedObject.namespace": "ns",
			"involvedObject.name": "selected", "involvedObject.uid": "u", "involvedObject.apiVersion": "a/v1",
			"involvedObject.resourceVersion": "5", "involvedObject.fieldPath": "spec.x", "reason": "Made",
			"reportingComponent": "annex.dev/test", "source": "annex.dev/test", "type": "Normal",
		}},
		{eventsv1.SchemeGroupVersion, g.events, fields.Set{
			"metadata.name": "selected", "metadata.namespace": "ns", "regarding.kind": "Widget", "regarding.namespace": "ns",
			"regarding.name": "selected", "regarding.uid": "u", "regarding.apiVersion": "a/v1",
			"regarding.resourceVersion": "5", "regarding.fieldPath": "spec.x", "reason": "Made",
			"reportingController": "annex.dev/test", "type": "Normal",
		}},
	}
	for _, test := range tests {
		for label, value := range test.fields {
			for value, want := range map[string]bool{value: true, value + "x": false} {
				hubLabel, hubValue, err := scheme.Scheme.ConvertFieldLabel(test.version.WithKind("Event"), label, value)
				if err != nil {
					t.Errorf("%s %s: %v", test.version, label, err)
					continue
				}
				if got := slices.Contains(list(t, test.storage["events"], test.version, fields.Set{hubLabel: hubValue}), "selected"); got != want {
					t.Errorf("%s %s=%s selects the event: %t, want %t", test.version, label, value, got, want)
				}
			}
		}
	}
}

func testSecretsByType(t *testing.T, g *groups) {
	for name, secretType := range map[string]corev1.SecretType{"a": "x", "b": "y"} {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns"}, Type: secretType}
		_, err := typedtest.Create(eventRequest(t, "ns", corev1.SchemeGroupVersion), g.core.REST("secrets"), secret)
		expect.NoError(t, err, "create secret %s", name)
	}
	if got := list(t, g.core["secrets"], corev1.SchemeGroupVersion, fields.Set{"type": "y"}); !slices.Equal(got, []string{"b"}) {
		t.Errorf("secrets of type y: %v, want b", got)
	}
}

func list(t *testing.T, endpoint rest.Storage, version schema.GroupVersion, selected fields.Set) []string {
	t.Helper()
	objects, err := endpoint.(rest.Lister).List(eventRequest(t, "ns", version), &metainternalversion.ListOptions{FieldSelector: selected.AsSelector()})
	expect.NoError(t, err, "list %v", selected)
	table, err := endpoint.(rest.TableConvertor).ConvertToTable(t.Context(), objects, nil)
	expect.NoError(t, err, "convert to a table")
	var names []string
	for _, row := range table.Rows {
		names = append(names, row.Object.Object.(metav1.Object).GetName())
	}
	return names
}
