// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package namespace

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	"github.com/annex-dev/annex/pkg/test/expect"
)

var (
	epoch         = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	configMaps    = schema.GroupResource{Resource: "configmaps"}
	everything    = []*metav1.APIResourceList{apiResources("v1", "configmaps", "secrets")}
	someDiscovery = &discovery.ErrGroupDiscoveryFailed{Groups: map[schema.GroupVersion]error{
		{Group: "example.com", Version: "v1"}: apierrors.NewServiceUnavailable("not yet"),
	}}
)

// apiResources is the discovery of a group version whose resources can all
// be deleted, one by one and as collections.
func apiResources(groupVersion string, names ...string) *metav1.APIResourceList {
	list := &metav1.APIResourceList{GroupVersion: groupVersion}
	for _, name := range names {
		list.APIResources = append(list.APIResources, metav1.APIResource{
			Name: name, Namespaced: true, Verbs: metav1.Verbs{"create", "delete", "deletecollection", "get", "list"},
		})
	}
	return list
}

// deleted is a namespace whose deletion was requested age ago.
func deleted(age time.Duration, finalizers ...corev1.FinalizerName) *corev1.Namespace {
	at := metav1.NewTime(epoch.Add(-age))
	return &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: "team", UID: "1", ResourceVersion: "1", DeletionTimestamp: &at},
		Spec:       corev1.NamespaceSpec{Finalizers: finalizers},
		Status:     corev1.NamespaceStatus{Phase: corev1.NamespaceActive},
	}
}

// fixture is the reconciler's surroundings in a test: what they answer, and what
// was done to them.
type fixture struct {
	namespace   *corev1.Namespace
	lists       []*metav1.APIResourceList
	discoverErr error
	listErr     error
	left        leftover
	contentErrs []error
	statusErr   error
	finalizeErr error

	asked         []string // resources that were to be deleted
	deletions     int
	statusUpdates int
	finalized     *corev1.Namespace
}

func (w *fixture) reconciler() *reconciler {
	return &reconciler{
		getNamespace: func(_ context.Context, name string, _ metav1.GetOptions) (*corev1.Namespace, error) {
			if w.namespace == nil {
				return nil, apierrors.NewNotFound(corev1.Resource("namespaces"), name)
			}
			return w.namespace.DeepCopy(), nil
		},
		updateStatus: func(_ context.Context, namespace *corev1.Namespace, _ metav1.UpdateOptions) (*corev1.Namespace, error) {
			if w.statusErr != nil {
				return nil, w.statusErr
			}
			w.statusUpdates++
			w.namespace = namespace.DeepCopy()
			return namespace, nil
		},
		finalize: func(_ context.Context, namespace *corev1.Namespace, _ metav1.UpdateOptions) (*corev1.Namespace, error) {
			w.finalized = namespace.DeepCopy()
			return namespace, w.finalizeErr
		},
		discover:        func(context.Context) ([]*metav1.APIResourceList, error) { return w.lists, w.discoverErr },
		listDefinitions: func() ([]*definition, error) { return nil, w.listErr },
		deleteContents: func(_ context.Context, _ string, resources []resource) (leftover, []error) {
			w.deletions++
			for _, item := range resources {
				w.asked = append(w.asked, item.gvr.Resource)
			}
			return w.left, w.contentErrs
		},
		now: func() time.Time { return epoch },
	}
}

func TestReconcile(t *testing.T) {
	t.Parallel()
	conflict := apierrors.NewConflict(corev1.Resource("namespaces"), "team", errors.New("changed"))
	gone := apierrors.NewNotFound(corev1.Resource("namespaces"), "team")
	active := deleted(0, corev1.FinalizerKubernetes)
	active.DeletionTimestamp = nil

	for name, tc := range map[string]struct {
		fixture        fixture
		wantErr        string
		wantRequeue    time.Duration
		wantFinalizers []corev1.FinalizerName // nil: not finalized
		wantUntouched  bool                   // nothing deleted, nothing written
		wantTrue       []corev1.NamespaceConditionType
	}{
		"gone":        {wantUntouched: true},
		"not deleted": {fixture: fixture{namespace: active}, wantUntouched: true},
		"released already, held by another finalizer": {
			fixture: fixture{namespace: deleted(time.Hour, "example.com/hold")}, wantUntouched: true,
		},
		"empty": {
			fixture:        fixture{namespace: deleted(time.Hour, corev1.FinalizerKubernetes), lists: everything},
			wantFinalizers: []corev1.FinalizerName{},
		},
		"empty, other finalizers are kept": {
			fixture:        fixture{namespace: deleted(time.Hour, "example.com/a", corev1.FinalizerKubernetes, "example.com/b"), lists: everything},
			wantFinalizers: []corev1.FinalizerName{"example.com/a", "example.com/b"},
		},
		"empty, but writes from before the deletion may still arrive": {
			fixture:     fixture{namespace: deleted(2*time.Second, corev1.FinalizerKubernetes), lists: everything},
			wantRequeue: 3 * time.Second,
		},
		"contents remain": {
			fixture: fixture{namespace: deleted(3*time.Second, corev1.FinalizerKubernetes), lists: everything,
				left: leftover{objects: map[schema.GroupResource]int{configMaps: 2}, finalizers: map[string]int{"example.com/hold": 1}}},
			wantRequeue: 3 * time.Second,
			wantTrue:    []corev1.NamespaceConditionType{corev1.NamespaceContentRemaining, corev1.NamespaceFinalizersRemaining},
		},
		"partial discovery: what is known is deleted, the namespace stays": {
			fixture:  fixture{namespace: deleted(time.Hour, corev1.FinalizerKubernetes), lists: everything, discoverErr: someDiscovery},
			wantErr:  "example.com/v1",
			wantTrue: []corev1.NamespaceConditionType{corev1.NamespaceDeletionDiscoveryFailure},
		},
		"no discovery": {
			fixture:  fixture{namespace: deleted(time.Hour, corev1.FinalizerKubernetes), discoverErr: apierrors.NewTooManyRequests("busy", 1)},
			wantErr:  "busy",
			wantTrue: []corev1.NamespaceConditionType{corev1.NamespaceDeletionDiscoveryFailure},
		},
		"discovery of nothing at all": {
			fixture:  fixture{namespace: deleted(time.Hour, corev1.FinalizerKubernetes)},
			wantErr:  errNothingDiscovered.Error(),
			wantTrue: []corev1.NamespaceConditionType{corev1.NamespaceDeletionDiscoveryFailure},
		},
		"definitions unknown": {
			fixture:  fixture{namespace: deleted(time.Hour, corev1.FinalizerKubernetes), lists: everything, listErr: errors.New("no cache")},
			wantErr:  "no cache",
			wantTrue: []corev1.NamespaceConditionType{corev1.NamespaceDeletionDiscoveryFailure},
		},
		"bad group version in discovery": {
			fixture: fixture{namespace: deleted(time.Hour, corev1.FinalizerKubernetes),
				lists: append([]*metav1.APIResourceList{apiResources("a/b/c", "widgets")}, everything...)},
			wantErr:  "a/b/c",
			wantTrue: []corev1.NamespaceConditionType{corev1.NamespaceDeletionGVParsingFailure},
		},
		"a resource that fails": {
			fixture: fixture{namespace: deleted(time.Hour, corev1.FinalizerKubernetes), lists: everything,
				contentErrs: []error{errors.New("deleting widgets.example.com: webhook is down")}},
			wantErr:  "webhook is down",
			wantTrue: []corev1.NamespaceConditionType{corev1.NamespaceDeletionContentFailure},
		},
		"status conflicts": {
			fixture: fixture{namespace: deleted(time.Hour, corev1.FinalizerKubernetes), lists: everything, statusErr: conflict},
			wantErr: "write status",
		},
		"gone while it was emptied": {
			fixture: fixture{namespace: deleted(time.Hour, corev1.FinalizerKubernetes), lists: everything, statusErr: gone},
		},
		"gone while it was finalized": {
			fixture:        fixture{namespace: deleted(time.Hour, corev1.FinalizerKubernetes), lists: everything, finalizeErr: gone},
			wantFinalizers: []corev1.FinalizerName{},
		},
		"finalizing fails": {
			fixture:        fixture{namespace: deleted(time.Hour, corev1.FinalizerKubernetes), lists: everything, finalizeErr: conflict},
			wantErr:        "finalize namespace team",
			wantFinalizers: []corev1.FinalizerName{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := tc.fixture
			result, err := w.reconciler().reconcile(t.Context(), "team")
			expect.ErrorOrNone(t, err, tc.wantErr)
			if result.RequeueAfter != tc.wantRequeue {
				t.Errorf("requeued after %s, want %s", result.RequeueAfter, tc.wantRequeue)
			}
			if tc.wantUntouched && (w.deletions > 0 || w.statusUpdates > 0 || w.finalized != nil) {
				t.Errorf("%d deletions, %d status updates, finalized %v; want the namespace untouched", w.deletions, w.statusUpdates, w.finalized)
			}
			if (w.finalized != nil) != (tc.wantFinalizers != nil) {
				t.Fatalf("finalized: %v, want %v", w.finalized != nil, tc.wantFinalizers != nil)
			}
			if w.finalized != nil {
				expect.Equal(t, tc.wantFinalizers, w.finalized.Spec.Finalizers, "finalizers left")
			}
			if w.statusUpdates > 0 {
				if w.namespace.Status.Phase != corev1.NamespaceTerminating {
					t.Errorf("phase %s, want Terminating", w.namespace.Status.Phase)
				}
				expect.Equal(t, tc.wantTrue, trueConditions(w.namespace.Status), "conditions that are true")
			}
			if len(tc.fixture.lists) > 0 && w.deletions > 0 && !slices.Contains(w.asked, "configmaps") {
				t.Errorf("only %v were to be deleted; discovery lists configmaps too", w.asked)
			}
		})
	}
}

func TestReconcileWritesStatusOnlyWhenItChanges(t *testing.T) {
	t.Parallel()
	w := fixture{namespace: deleted(time.Hour, corev1.FinalizerKubernetes), lists: everything, discoverErr: someDiscovery}
	r := w.reconciler()
	for range 3 {
		if _, err := r.reconcile(t.Context(), "team"); err == nil {
			t.Fatal("no error in spite of partial discovery")
		}
	}
	if w.statusUpdates != 1 {
		t.Errorf("status written %d times for three passes with the same outcome, want once", w.statusUpdates)
	}
}

func TestRecheckAfter(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ age, grace, want time.Duration }{
		"just deleted":      {age: 0, want: minRecheck},
		"clock behind":      {age: -time.Minute, want: minRecheck},
		"a little while":    {age: 4 * time.Second, want: 4 * time.Second},
		"long ago":          {age: time.Hour, want: maxRecheck},
		"long grace":        {age: time.Hour, grace: time.Minute, want: 31 * time.Second},
		"grace, but recent": {age: 2 * time.Second, grace: time.Minute, want: 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := recheckAfter(tc.age, tc.grace); got != tc.want {
				t.Errorf("recheckAfter(%s, %s) = %s, want %s", tc.age, tc.grace, got, tc.want)
			}
		})
	}
}

// trueConditions lists the types of the conditions that are true.
func trueConditions(status corev1.NamespaceStatus) []corev1.NamespaceConditionType {
	var types []corev1.NamespaceConditionType
	for _, c := range status.Conditions {
		if c.Status == corev1.ConditionTrue {
			types = append(types, c.Type)
		}
	}
	return types
}
