// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package hostedresource

import (
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/storage/etcd/usage"
	"github.com/annex-dev/annex/pkg/test/expect"
)

const widgets = "widgets.example.com"

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// defined is a definition with the given conditions.
func defined(conditions ...apiextensionsv1.CustomResourceDefinitionCondition) *definition {
	return &definition{
		ObjectMeta: metav1.ObjectMeta{Name: widgets},
		Status:     apiextensionsv1.CustomResourceDefinitionStatus{Conditions: conditions},
	}
}

// conditionOf is a condition of a definition.
func conditionOf(kind apiextensionsv1.CustomResourceDefinitionConditionType, status apiextensionsv1.ConditionStatus, reason, message string) apiextensionsv1.CustomResourceDefinitionCondition {
	return apiextensionsv1.CustomResourceDefinitionCondition{Type: kind, Status: status, Reason: reason, Message: message}
}

// established is a definition that is served.
func established() *definition {
	return defined(
		conditionOf(apiextensionsv1.NamesAccepted, apiextensionsv1.ConditionTrue, "NoConflicts", "no conflicts found"),
		conditionOf(apiextensionsv1.Established, apiextensionsv1.ConditionTrue, "InitialNamesAccepted", "the initial names have been accepted"),
	)
}

func terminating(crd *definition) *definition {
	at := metav1.NewTime(epoch)
	crd.DeletionTimestamp = &at
	return crd
}

// ready is the default store, with the given readiness.
func ready(status metav1.ConditionStatus, message string) *hostingv1alpha1.Store {
	return &hostingv1alpha1.Store{
		ObjectMeta: metav1.ObjectMeta{Name: "default"},
		Status: hostingv1alpha1.StoreStatus{Conditions: []metav1.Condition{
			{Type: hostingv1alpha1.StoreReady, Status: status, Reason: "Whatever", Message: message},
		}},
	}
}

func TestSetState(t *testing.T) {
	t.Parallel()
	const (
		pending = hostingv1alpha1.HostedResourcePending
		hosting = hostingv1alpha1.HostedResourceHosted
		ending  = hostingv1alpha1.HostedResourceTerminating
	)
	fine := ready(metav1.ConditionTrue, "")
	stored := `StoreReady=True StoreReady: Store "default" holds the objects`

	for name, tc := range map[string]struct {
		storeName  string
		crd        *definition
		store      *hostingv1alpha1.Store
		wantPhase  hostingv1alpha1.HostedResourcePhase
		wantStates []string
	}{
		"served": {
			storeName: "default", crd: established(), store: fine, wantPhase: hosting,
			wantStates: []string{
				"Established=True InitialNamesAccepted: the initial names have been accepted", stored,
				"Ready=True Served: The resource is served",
			},
		},
		"not defined, not placed": {
			wantPhase: pending,
			wantStates: []string{
				`Established=False NotDefined: There is no CustomResourceDefinition "widgets.example.com"`,
				"StoreReady=False NoStore: No store has been chosen yet",
				`Ready=False NotDefined: There is no CustomResourceDefinition "widgets.example.com"`,
			},
		},
		"served, not placed": {
			crd: established(), wantPhase: pending,
			wantStates: []string{
				"Established=True InitialNamesAccepted: the initial names have been accepted",
				"StoreReady=False NoStore: No store has been chosen yet",
				"Ready=False NoStore: No store has been chosen yet",
			},
		},
		"just defined": {
			storeName: "default", crd: defined(), store: fine, wantPhase: pending,
			wantStates: []string{
				"Established=False NotEstablished: The names of the resource have not been checked yet", stored,
				"Ready=False NotEstablished: The names of the resource have not been checked yet",
			},
		},
		"names refused": {
			storeName: "default", store: fine, wantPhase: pending,
			crd: defined(
				conditionOf(apiextensionsv1.NamesAccepted, apiextensionsv1.ConditionFalse, "PluralConflict", `"widgets" is already in use`),
				conditionOf(apiextensionsv1.Established, apiextensionsv1.ConditionFalse, "NotAccepted", "not all names are accepted"),
			),
			wantStates: []string{
				`Established=False PluralConflict: "widgets" is already in use`, stored,
				`Ready=False PluralConflict: "widgets" is already in use`,
			},
		},
		"short name refused later: it is still served": {
			storeName: "default", store: fine, wantPhase: hosting,
			crd: defined(
				conditionOf(apiextensionsv1.NamesAccepted, apiextensionsv1.ConditionFalse, "ShortNamesConflict", `"w" is already in use`),
				conditionOf(apiextensionsv1.Established, apiextensionsv1.ConditionTrue, "", ""),
			),
			wantStates: []string{"Established=True Established: ", stored, "Ready=True Served: The resource is served"},
		},
		"being established": {
			storeName: "default", store: fine, wantPhase: pending,
			crd: defined(
				conditionOf(apiextensionsv1.NamesAccepted, apiextensionsv1.ConditionTrue, "NoConflicts", "no conflicts found"),
				conditionOf(apiextensionsv1.Established, apiextensionsv1.ConditionFalse, "Installing", "the initial names have been accepted"),
			),
			wantStates: []string{
				"Established=False Installing: the initial names have been accepted", stored,
				"Ready=False Installing: the initial names have been accepted",
			},
		},
		"being deleted": {
			storeName: "default", crd: terminating(established()), store: fine, wantPhase: ending,
			wantStates: []string{
				"Established=True InitialNamesAccepted: the initial names have been accepted", stored,
				"Ready=False Terminating: The definition of the resource is being deleted, and its objects with it",
			},
		},
		"store missing": {
			storeName: "other", crd: established(), wantPhase: pending,
			wantStates: []string{
				"Established=True InitialNamesAccepted: the initial names have been accepted",
				`StoreReady=False StoreNotFound: There is no store "other"`,
				`Ready=False StoreNotFound: There is no store "other"`,
			},
		},
		"store down": {
			storeName: "default", crd: established(), store: ready(metav1.ConditionFalse, "no endpoint answers"), wantPhase: hosting,
			wantStates: []string{
				"Established=True InitialNamesAccepted: the initial names have been accepted",
				`StoreReady=False StoreNotReady: Store "default" is not ready: no endpoint answers`,
				`Ready=False StoreNotReady: Store "default" is not ready: no endpoint answers`,
			},
		},
		"store not probed": {
			storeName: "default", crd: established(), store: &hostingv1alpha1.Store{}, wantPhase: hosting,
			wantStates: []string{
				"Established=True InitialNamesAccepted: the initial names have been accepted",
				`StoreReady=Unknown StoreStatusUnknown: Whether store "default" is ready is not known`,
				`Ready=Unknown StoreStatusUnknown: Whether store "default" is ready is not known`,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			resource := &hosted{ObjectMeta: metav1.ObjectMeta{Name: widgets, Generation: 7}, Spec: hostingv1alpha1.HostedResourceSpec{StoreName: tc.storeName}}
			var status hostingv1alpha1.HostedResourceStatus
			setState(&status, resource, tc.crd, tc.store, epoch)
			if status.Phase != tc.wantPhase {
				t.Errorf("phase %s, want %s", status.Phase, tc.wantPhase)
			}
			var states []string
			for _, c := range status.Conditions {
				states = append(states, c.Type+"="+string(c.Status)+" "+c.Reason+": "+c.Message)
				if c.ObservedGeneration != 7 {
					t.Errorf("condition %s observed generation %d, want 7", c.Type, c.ObservedGeneration)
				}
			}
			expect.Equal(t, tc.wantStates, states, "conditions")
			before := status.DeepCopy()
			setState(&status, resource, tc.crd, tc.store, epoch.Add(time.Hour))
			expect.Equal(t, before, &status, "the same state an hour later changed the status")
		})
	}
}

// TestStoreReadyHasTheReasonOfTheScheduler covers a resource without a Store.
func TestStoreReadyHasTheReasonOfTheScheduler(t *testing.T) {
	t.Parallel()
	status := hostingv1alpha1.HostedResourceStatus{Conditions: []metav1.Condition{{
		Type: hostingv1alpha1.HostedResourceScheduled, Status: metav1.ConditionFalse, Reason: "Unschedulable", Message: "0/1 Stores fit",
	}}}
	setState(&status, &hosted{ObjectMeta: metav1.ObjectMeta{Name: widgets}}, established(), nil, epoch)
	for _, kind := range []string{hostingv1alpha1.HostedResourceStoreReady, hostingv1alpha1.HostedResourceReady} {
		condition := meta.FindStatusCondition(status.Conditions, kind)
		want := "No store has been chosen yet: 0/1 Stores fit"
		if condition.Status != metav1.ConditionFalse || condition.Reason != reasonNoStore || condition.Message != want {
			t.Errorf("%s: %s %s: %s, want False %s: %s", kind, condition.Status, condition.Reason, condition.Message, reasonNoStore, want)
		}
	}
}

// TestADeletedHostedResourceIsNotPutToUse: the one that follows may name another Store.
func TestADeletedHostedResourceIsNotPutToUse(t *testing.T) {
	t.Parallel()
	crd := established()
	crd.UID = "new"
	for before, want := range map[types.UID]types.UID{"": "", "old": "", "new": "new"} {
		resource := &hosted{
			ObjectMeta: metav1.ObjectMeta{Name: widgets, DeletionTimestamp: new(metav1.NewTime(epoch)), Finalizers: []string{"a.com/x"}},
			Spec:       hostingv1alpha1.HostedResourceSpec{StoreName: "default"},
		}
		status := hostingv1alpha1.HostedResourceStatus{DefinitionUID: before}
		setState(&status, resource, crd, ready(metav1.ConditionTrue, ""), epoch)
		if status.DefinitionUID != want {
			t.Errorf("from the definition %q it came to be of %q, want %q", before, status.DefinitionUID, want)
		}
		served := meta.FindStatusCondition(status.Conditions, hostingv1alpha1.HostedResourceReady)
		if got := served.Reason; (got == reasonTerminating) != (want == "") {
			t.Errorf("from the definition %q: Ready is %s %s", before, served.Status, got)
		}
	}
}

// TestReadyBehindAMainCluster covers the conditions of other controllers.
func TestReadyBehindAMainCluster(t *testing.T) {
	t.Parallel()
	with := func(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message}
	}
	const published, followed = hostingv1alpha1.HostedResourcePublished, hostingv1alpha1.HostedResourceDefinitionSynced
	for name, tc := range map[string]struct {
		crd   *definition
		other []metav1.Condition
		want  string
	}{
		"published":     {established(), []metav1.Condition{with(published, metav1.ConditionTrue, "Published", "all")}, "True Served"},
		"not published": {established(), []metav1.Condition{with(published, metav1.ConditionFalse, "GroupInMain", "mixed")}, "False NotPublished: mixed"},
		"not known":     {established(), []metav1.Condition{with(published, metav1.ConditionUnknown, "Waiting", "later")}, "True Served"},
		"follows no more, but is served": {
			established(), []metav1.Condition{with(published, metav1.ConditionTrue, "Published", "all"), with(followed, metav1.ConditionFalse, "Rejected", "bad")}, "True Served",
		},
		"not taken over": {
			nil, []metav1.Condition{with(followed, metav1.ConditionFalse, "ObjectsExist", "objects"), with(published, metav1.ConditionFalse, "NotServed", "none")},
			"False ObjectsExist: objects",
		},
		"being taken over": {
			nil, []metav1.Condition{with(followed, metav1.ConditionUnknown, "TakingOver", "soon")},
			`False NotDefined: There is no CustomResourceDefinition "widgets.example.com"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			resource := &hosted{ObjectMeta: metav1.ObjectMeta{Name: widgets}, Spec: hostingv1alpha1.HostedResourceSpec{StoreName: "default"}}
			status := hostingv1alpha1.HostedResourceStatus{Conditions: tc.other}
			setState(&status, resource, tc.crd, ready(metav1.ConditionTrue, ""), epoch)
			ready := meta.FindStatusCondition(status.Conditions, hostingv1alpha1.HostedResourceReady)
			got := string(ready.Status) + " " + ready.Reason
			if ready.Status != metav1.ConditionTrue {
				got += ": " + ready.Message
			}
			if got != tc.want {
				t.Errorf("ready: %s, want %s", got, tc.want)
			}
			for _, condition := range tc.other {
				if kept := meta.FindStatusCondition(status.Conditions, condition.Type); kept == nil || *kept != condition {
					t.Errorf("condition %s became %+v", condition.Type, kept)
				}
			}
		})
	}
}

func TestReconcileWritesUsage(t *testing.T) {
	t.Parallel()
	some := hostingv1alpha1.HostedResourceStatus{Objects: 3, Bytes: 300, StoredBytes: 60}
	for name, tc := range map[string]struct {
		of      usage.Usage
		known   bool
		want    hostingv1alpha1.HostedResourceStatus
		written bool
	}{
		"the same":     {of: usage.Usage{Objects: 3, Bytes: 60, PlainBytes: 300}, known: true, want: some},
		"not known":    {want: some},
		"more":         {of: usage.Usage{Objects: 4, Bytes: 81, PlainBytes: 401}, known: true, written: true, want: hostingv1alpha1.HostedResourceStatus{Objects: 4, Bytes: 401, StoredBytes: 81}},
		"larger only":  {of: usage.Usage{Objects: 3, Bytes: 60, PlainBytes: 301}, known: true, written: true, want: hostingv1alpha1.HostedResourceStatus{Objects: 3, Bytes: 301, StoredBytes: 60}},
		"compressed":   {of: usage.Usage{Objects: 3, Bytes: 40, PlainBytes: 300}, known: true, written: true, want: hostingv1alpha1.HostedResourceStatus{Objects: 3, Bytes: 300, StoredBytes: 40}},
		"nothing left": {known: true, written: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := fixture{crd: established(), store: ready(metav1.ConditionTrue, ""), resource: resource(3, nil), used: &tc.of, unknown: !tc.known}
			if _, err := w.reconciler().reconcile(t.Context(), widgets); err != nil {
				t.Fatal(err)
			}
			if written := w.written != nil; written != tc.written {
				t.Errorf("written: %v, want %v", written, tc.written)
			}
			got := w.resource.Status
			if w.written != nil {
				got = w.written.Status
			}
			status := hostingv1alpha1.HostedResourceStatus{Objects: got.Objects, Bytes: got.Bytes, StoredBytes: got.StoredBytes}
			expect.Equal(t, tc.want, status, "status")
		})
	}
}
