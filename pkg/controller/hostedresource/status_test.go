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
	const accepted, stored, served = "True InitialNamesAccepted", "True StoreReady", "True Served"
	fine := ready(metav1.ConditionTrue, "")
	names := func(status apiextensionsv1.ConditionStatus, reason string) apiextensionsv1.CustomResourceDefinitionCondition {
		return conditionOf(apiextensionsv1.NamesAccepted, status, reason, "about names")
	}
	isEstablished := func(status apiextensionsv1.ConditionStatus, reason string) apiextensionsv1.CustomResourceDefinitionCondition {
		return conditionOf(apiextensionsv1.Established, status, reason, "about the definition")
	}
	refused := defined(names(apiextensionsv1.ConditionFalse, "PluralConflict"), isEstablished(apiextensionsv1.ConditionFalse, "NotAccepted"))
	shortRefused := defined(names(apiextensionsv1.ConditionFalse, "ShortNamesConflict"), isEstablished(apiextensionsv1.ConditionTrue, ""))
	installing := defined(names(apiextensionsv1.ConditionTrue, "NoConflicts"), isEstablished(apiextensionsv1.ConditionFalse, "Installing"))

	for name, tc := range map[string]struct {
		storeName string
		crd       *definition
		store     *hostingv1alpha1.Store
		phase     hostingv1alpha1.HostedResourcePhase
		// These are the status and the reason of each condition.
		established, stored, ready string
	}{
		"served":                  {"default", established(), fine, hosting, accepted, stored, served},
		"not defined, not placed": {"", nil, nil, pending, "False NotDefined", "False NoStore", "False NotDefined"},
		"served, not placed":      {"", established(), nil, pending, accepted, "False NoStore", "False NoStore"},
		"just defined":            {"default", defined(), fine, pending, "False NotEstablished", stored, "False NotEstablished"},
		"names refused":           {"default", refused, fine, pending, "False PluralConflict", stored, "False PluralConflict"},
		"short name refused later: it is still served": {"default", shortRefused, fine, hosting, "True Established", stored, served},
		"being established":                            {"default", installing, fine, pending, "False Installing", stored, "False Installing"},
		"being deleted":                                {"default", terminating(established()), fine, ending, accepted, stored, "False Terminating"},
		"store missing":                                {"other", established(), nil, pending, accepted, "False StoreNotFound", "False StoreNotFound"},
		"store down":                                   {"default", established(), ready(metav1.ConditionFalse, "no endpoint answers"), hosting, accepted, "False StoreNotReady", "False StoreNotReady"},
		"store not probed":                             {"default", established(), &hostingv1alpha1.Store{}, hosting, accepted, "Unknown StoreStatusUnknown", "Unknown StoreStatusUnknown"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			resource := &hosted{ObjectMeta: metav1.ObjectMeta{Name: widgets, Generation: 7}, Spec: hostingv1alpha1.HostedResourceSpec{StoreName: tc.storeName}}
			var status hostingv1alpha1.HostedResourceStatus
			setState(&status, resource, tc.crd, tc.store, epoch)
			if status.Phase != tc.phase {
				t.Errorf("phase %s, want %s", status.Phase, tc.phase)
			}
			got, messages := map[string]string{}, map[string]string{}
			for _, c := range status.Conditions {
				got[c.Type], messages[c.Reason] = string(c.Status)+" "+c.Reason, c.Message
				if c.ObservedGeneration != 7 {
					t.Errorf("condition %s observed generation %d, want 7", c.Type, c.ObservedGeneration)
				}
			}
			expect.Equal(t, map[string]string{"Established": tc.established, "StoreReady": tc.stored, "Ready": tc.ready}, got, "conditions")
			for _, cause := range status.Conditions[:2] {
				if messages[cause.Reason] != cause.Message {
					t.Errorf("Ready has the message %q, want that of its cause, %q", messages[cause.Reason], cause.Message)
				}
			}
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
