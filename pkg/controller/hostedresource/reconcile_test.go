// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package hostedresource

import (
	"context"
	"errors"
	"testing"
	"time"

	apiextensionshelpers "k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/controller/framework"
	"github.com/annex-dev/annex/pkg/storage/etcd/usage"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// fixture is the reconciler's surroundings in a test: what there is, what there
// will be an error about, and what was done.
type fixture struct {
	crd, liveCRD *definition
	resource     *hosted
	store        *hostingv1alpha1.Store
	objects      int64        // of the same size
	used         *usage.Usage // replaces objects
	unknown      bool
	errs         map[string]error // by the name of what was done
	lastWrite    time.Duration    // ago; zero: never

	done       []string
	written    *hosted
	writtenCRD *definition
	options    metav1.DeleteOptions
}

// get is a lister's Get over one object that may not exist.
func get[T any](w *fixture, what string, object *T) func(string) (*T, error) {
	return func(name string) (*T, error) {
		if err := w.errs[what]; err != nil {
			return nil, err
		}
		if object == nil {
			return nil, apierrors.NewNotFound(schema.GroupResource{Resource: what}, name)
		}
		return object, nil
	}
}

// do is a client's method that writes an object, with options of type O.
func do[O, T any](w *fixture, what string, written *T) func(context.Context, T, O) (T, error) {
	return func(_ context.Context, object T, _ O) (T, error) {
		w.done = append(w.done, what)
		*written = object
		return object, w.errs[what]
	}
}

// In implements Usage.
func (w *fixture) In(store string, resource schema.GroupResource) (usage.Usage, bool) {
	if store != "default" || resource.String() != widgets {
		return usage.Usage{}, false
	}
	if w.used != nil {
		return *w.used, !w.unknown
	}
	return usage.Usage{Objects: w.objects, Bytes: w.objects * 20, PlainBytes: w.objects * 100}, !w.unknown
}

// Namespaces implements Usage.
func (w *fixture) Namespaces(string, schema.GroupResource) map[string]usage.Usage { return nil }

func (w *fixture) reconciler() *reconciler {
	registerMetrics() // as New does: those that are not registered cannot be deleted
	now := epoch.Add(-w.lastWrite)
	p := framework.NewThrottle(time.Second, func() time.Time { return now })
	if w.lastWrite > 0 {
		p.Mark(widgets)
		now = epoch
	}
	live := get(w, "liveDefinition", w.liveCRD)
	return &reconciler{
		getHosted:     get(w, "hosted", w.resource),
		getDefinition: get(w, "definition", w.crd),
		getStore:      get(w, "store", w.store),
		getLiveDefinition: func(_ context.Context, name string, _ metav1.GetOptions) (*definition, error) {
			return live(name)
		},
		create:                 do[metav1.CreateOptions](w, "create", &w.written),
		updateStatus:           do[metav1.UpdateOptions](w, "updateStatus", &w.written),
		updateDefinitionStatus: do[metav1.UpdateOptions](w, "updateDefinitionStatus", &w.writtenCRD),
		delete: func(_ context.Context, _ string, options metav1.DeleteOptions) error {
			w.done = append(w.done, "delete")
			w.options = options
			return w.errs["delete"]
		},
		usage:      w,
		unreadable: &registry{},
		caches:     &fakeCaches{},
		events:     events.NewFakeRecorder(10),
		throttle:   p,
		now:        func() time.Time { return epoch },
	}
}

// resource makes a HostedResource whose status fits an established definition, a
// ready store and the given number of objects.
func resource(objects int64, change func(*hosted)) *hosted {
	r := &hosted{
		ObjectMeta: metav1.ObjectMeta{Name: widgets, UID: "1", ResourceVersion: "5", Generation: 1},
		Spec:       hostingv1alpha1.HostedResourceSpec{StoreName: "default"},
	}
	setState(&r.Status, r, established(), ready(metav1.ConditionTrue, ""), epoch.Add(-time.Hour))
	r.Status.Objects, r.Status.Bytes, r.Status.StoredBytes = objects, objects*100, objects*20
	if change != nil {
		change(r)
	}
	return r
}

func TestReconcile(t *testing.T) {
	t.Parallel()
	fine := ready(metav1.ConditionTrue, "")
	conflict := apierrors.NewConflict(hostingv1alpha1.Resource("hostedresources"), widgets, errors.New("changed"))
	exists := apierrors.NewAlreadyExists(hostingv1alpha1.Resource("hostedresources"), widgets)
	gone := apierrors.NewNotFound(hostingv1alpha1.Resource("hostedresources"), widgets)
	own := func(r *hosted) { r.Labels = map[string]string{hostingv1alpha1.AutomanagedLabel: automanaged} }
	awaited := func(r *hosted) {
		own(r)
		r.Annotations = map[string]string{hostingv1alpha1.DefinitionFromAnnotation: hostingv1alpha1.DefinitionFromMain}
	}
	inUse := func(r *hosted) { own(r); r.Status.DefinitionUID = "7" }
	unplaced := func(r *hosted) { r.Spec.StoreName = "" }
	ending := func(r *hosted) { own(r); r.DeletionTimestamp = new(metav1.NewTime(epoch)) }

	for name, tc := range map[string]struct {
		fixture     fixture
		want        []string
		wantErr     string
		wantRequeue time.Duration
		wantPhase   hostingv1alpha1.HostedResourcePhase
	}{
		"neither":                     {},
		"defined":                     {fixture: fixture{crd: established()}, want: []string{"create"}},
		"defined, not yet served":     {fixture: fixture{crd: defined()}, want: []string{"create"}},
		"defined, made a moment ago":  {fixture: fixture{crd: established(), errs: map[string]error{"create": exists}}, want: []string{"create"}},
		"defined, making it fails":    {fixture: fixture{crd: established(), errs: map[string]error{"create": conflict}}, want: []string{"create"}, wantErr: "create hosted resource"},
		"definition about to go":      {fixture: fixture{crd: terminating(established())}},
		"all as it should be":         {fixture: fixture{crd: established(), resource: resource(3, own), store: fine, objects: 3}},
		"usage not known":             {fixture: fixture{crd: established(), resource: resource(3, own), store: fine, unknown: true}},
		"more objects":                {fixture: fixture{crd: established(), resource: resource(3, own), store: fine, objects: 4}, want: []string{"updateStatus"}, wantPhase: hostingv1alpha1.HostedResourceHosted},
		"more objects, too early":     {fixture: fixture{crd: established(), resource: resource(3, own), store: fine, objects: 4, lastWrite: 400 * time.Millisecond}, wantRequeue: 600 * time.Millisecond},
		"more objects, time again":    {fixture: fixture{crd: established(), resource: resource(3, own), store: fine, objects: 4, lastWrite: time.Second}, want: []string{"updateStatus"}, wantPhase: hostingv1alpha1.HostedResourceHosted},
		"definition going, at once":   {fixture: fixture{crd: terminating(established()), resource: resource(3, own), store: fine, objects: 3, lastWrite: time.Millisecond}, want: []string{"updateStatus"}, wantPhase: hostingv1alpha1.HostedResourceTerminating},
		"store down, at once":         {fixture: fixture{crd: established(), resource: resource(3, own), store: ready(metav1.ConditionFalse, "down"), objects: 3, lastWrite: time.Millisecond}, want: []string{"updateStatus"}, wantPhase: hostingv1alpha1.HostedResourceHosted},
		"status conflicts":            {fixture: fixture{crd: established(), resource: resource(3, own), store: fine, errs: map[string]error{"updateStatus": conflict}}, want: []string{"updateStatus"}, wantErr: "write status", wantPhase: hostingv1alpha1.HostedResourceHosted},
		"gone meanwhile":              {fixture: fixture{crd: established(), resource: resource(3, own), store: fine, errs: map[string]error{"updateStatus": gone}}, want: []string{"updateStatus"}, wantPhase: hostingv1alpha1.HostedResourceHosted},
		"not placed":                  {fixture: fixture{crd: established(), resource: resource(3, unplaced), store: fine}, want: []string{"updateStatus"}, wantPhase: hostingv1alpha1.HostedResourcePending},
		"own, definition gone":        {fixture: fixture{resource: resource(0, own), store: fine}, want: []string{"delete"}},
		"own, definition just gone":   {fixture: fixture{resource: resource(0, inUse), store: fine}, want: []string{"updateStatus"}, wantPhase: hostingv1alpha1.HostedResourcePending},
		"own, in use in truth":        {fixture: fixture{resource: resource(0, inUse), store: fine, liveCRD: established()}},
		"own, in use or not":          {fixture: fixture{resource: resource(0, inUse), store: fine, errs: map[string]error{"liveDefinition": errors.New("down")}}, wantErr: "check"},
		"own, defined in main only":   {fixture: fixture{resource: resource(0, awaited), store: fine}, want: []string{"updateStatus"}, wantPhase: hostingv1alpha1.HostedResourcePending},
		"own, definition made again":  {fixture: fixture{resource: resource(0, own), store: fine, liveCRD: established()}},
		"own, definition not read":    {fixture: fixture{resource: resource(0, own), store: fine, errs: map[string]error{"liveDefinition": errors.New("down")}}, wantErr: "check"},
		"own, changed meanwhile":      {fixture: fixture{resource: resource(0, own), store: fine, errs: map[string]error{"delete": conflict}}, want: []string{"delete"}, wantErr: "delete hosted resource"},
		"own, deleted meanwhile":      {fixture: fixture{resource: resource(0, own), store: fine, errs: map[string]error{"delete": gone}}, want: []string{"delete"}},
		"own, held by a finalizer":    {fixture: fixture{resource: resource(0, ending), store: fine}, want: []string{"updateStatus"}, wantPhase: hostingv1alpha1.HostedResourcePending},
		"user's, not defined":         {fixture: fixture{resource: resource(0, nil), store: fine}, want: []string{"updateStatus"}, wantPhase: hostingv1alpha1.HostedResourcePending},
		"user's, not defined, placed": {fixture: fixture{resource: resource(0, unplaced), store: fine}, want: []string{"updateStatus"}, wantPhase: hostingv1alpha1.HostedResourcePending},
		"definition not read":         {fixture: fixture{errs: map[string]error{"definition": errors.New("broken")}}, wantErr: "read custom resource definition"},
		"resource not read":           {fixture: fixture{errs: map[string]error{"hosted": errors.New("broken")}}, wantErr: "read hosted resource"},
		"store not read":              {fixture: fixture{crd: established(), resource: resource(3, own), errs: map[string]error{"store": errors.New("broken")}}, wantErr: "read store"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := tc.fixture
			cached := w.resource.DeepCopy()
			result, err := w.reconciler().reconcile(t.Context(), widgets)
			expect.ErrorOrNone(t, err, tc.wantErr)
			expect.Equal(t, tc.want, w.done, "done")
			if result.RequeueAfter != tc.wantRequeue {
				t.Errorf("requeued after %s, want %s", result.RequeueAfter, tc.wantRequeue)
			}
			if tc.wantPhase != "" && w.written != nil && w.written.Status.Phase != tc.wantPhase {
				t.Errorf("phase %s, want %s", w.written.Status.Phase, tc.wantPhase)
			}
			expect.Equal(t, cached, w.resource, "the cached object was changed")
		})
	}
}

func TestReconcileMarksWhatItMakes(t *testing.T) {
	t.Parallel()
	w := fixture{crd: established()}
	if _, err := w.reconciler().reconcile(t.Context(), widgets); err != nil {
		t.Fatal(err)
	}
	want := &hosted{
		ObjectMeta: metav1.ObjectMeta{Name: widgets, Labels: map[string]string{"annex.dev/automanaged": "true"}},
	}
	expect.Equal(t, want, w.written, "made")
}

// TestReconcileSetsStoreReadyOfADefinition has a definition whose objects cannot be
// deleted because their Store is unavailable.
func TestReconcileSetsStoreReadyOfADefinition(t *testing.T) {
	t.Parallel()
	storeReady := func(status apiextensionsv1.ConditionStatus, reason string) apiextensionsv1.CustomResourceDefinitionCondition {
		return conditionOf(definitionStoreReady, status, reason, "")
	}
	down := ready(metav1.ConditionFalse, "no endpoint answers")
	for name, tc := range map[string]struct {
		crd   *definition
		store *hostingv1alpha1.Store
		err   error
		want  string
	}{
		"not being deleted": {crd: established(), store: down},
		"always available":  {crd: terminating(established()), store: ready(metav1.ConditionTrue, "")},
		"not probed":        {crd: terminating(established()), store: ready(metav1.ConditionUnknown, "")},
		"unavailable":       {crd: terminating(established()), store: down, want: `False StoreNotReady: Store "default" is not ready: no endpoint answers`},
		"still unavailable": {crd: terminating(defined(storeReady(apiextensionsv1.ConditionFalse, reasonStoreNotReady))), store: down},
		"unknown":           {crd: terminating(established()), want: `False StoreNotFound: There is no store "default"`},
		"back":              {crd: terminating(defined(storeReady(apiextensionsv1.ConditionFalse, reasonStoreNotReady))), store: ready(metav1.ConditionTrue, ""), want: `True StoreReady: Store "default" holds the objects`},
		"unavailable again": {crd: terminating(defined(storeReady(apiextensionsv1.ConditionTrue, reasonStoreReady))), store: down, want: `False StoreNotReady: Store "default" is not ready: no endpoint answers`},
		"changed meanwhile": {crd: terminating(established()), store: down, err: errors.New("conflict"), want: `False StoreNotReady: Store "default" is not ready: no endpoint answers`},
		"gone meanwhile":    {crd: terminating(established()), store: down, err: apierrors.NewNotFound(schema.GroupResource{}, widgets), want: `False StoreNotReady: Store "default" is not ready: no endpoint answers`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := fixture{crd: tc.crd, store: tc.store, resource: resource(0, nil), errs: map[string]error{"updateDefinitionStatus": tc.err}}
			_, err := w.reconciler().reconcile(t.Context(), widgets)
			if wantErr := tc.err != nil && !apierrors.IsNotFound(tc.err); (err != nil) != wantErr {
				t.Errorf("error %v, want one: %v", err, wantErr)
			}
			got := ""
			if w.writtenCRD != nil {
				condition := apiextensionshelpers.FindCRDCondition(w.writtenCRD, definitionStoreReady)
				got = string(condition.Status) + " " + condition.Reason + ": " + condition.Message
			}
			if got != tc.want {
				t.Errorf("the condition is %q, want %q", got, tc.want)
			}
		})
	}
}

// TestReconcileNamesTheDefinition checks what requests for the resource wait for, and what
// keeps the HostedResource from being deleted.
func TestReconcileNamesTheDefinition(t *testing.T) {
	t.Parallel()
	defined := func(uid types.UID) *definition {
		crd := established()
		crd.UID = uid
		return crd
	}
	for name, tc := range map[string]struct {
		before types.UID
		crd    *definition
		want   types.UID
	}{
		"new":        {crd: defined("7"), want: "7"},
		"made again": {before: "7", crd: defined("8"), want: "8"},
		"going":      {before: "7", crd: terminating(defined("8")), want: "8"},
		"gone":       {before: "7"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := fixture{crd: tc.crd, store: ready(metav1.ConditionTrue, ""), resource: resource(0, func(r *hosted) { r.Status.DefinitionUID = tc.before })}
			if _, err := w.reconciler().reconcile(t.Context(), widgets); err != nil {
				t.Fatal(err)
			}
			if w.written == nil || w.written.Status.DefinitionUID != tc.want {
				t.Errorf("written %+v, want definition %q", w.written, tc.want)
			}
		})
	}
}

func TestReconcileDeletesOnlyWhatItSaw(t *testing.T) {
	t.Parallel()
	w := fixture{resource: resource(0, func(r *hosted) { r.Labels = map[string]string{hostingv1alpha1.AutomanagedLabel: automanaged} })}
	if _, err := w.reconciler().reconcile(t.Context(), widgets); err != nil {
		t.Fatal(err)
	}
	want := &metav1.Preconditions{UID: &w.resource.UID, ResourceVersion: new("5")}
	expect.Equal(t, want, w.options.Preconditions, "preconditions")
}
