// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/annex-dev/annex/pkg/registry/typed/typedtest"
	"github.com/annex-dev/annex/pkg/standalone/serviceaccount"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// server is the endpoints of namespaces over an etcd of the test's own.
type server struct {
	namespaces       *namespaceREST
	status, finalize rest.Updater
	etcd             *typedtest.Storage
	ctx              context.Context
	t                *testing.T
}

func newServer(t *testing.T) *server {
	t.Helper()
	etcd := typedtest.NewStorage(t, corev1.SchemeGroupVersion)
	endpoints := etcd.Endpoints(NewGroup(etcd, 0, serviceaccount.TokenConfig{}))
	return &server{
		namespaces: endpoints["namespaces"].(*namespaceREST), etcd: etcd, ctx: typedtest.Request(t, ""), t: t,
		status: endpoints["namespaces/status"].(rest.Updater), finalize: endpoints["namespaces/finalize"].(rest.Updater),
	}
}

// in is the server in a subtest.
func (s *server) in(t *testing.T) *server {
	own := *s
	own.t = t
	return &own
}

func (s *server) create(ns *corev1.Namespace) *corev1.Namespace {
	s.t.Helper()
	created, err := s.namespaces.Create(s.ctx, ns, rest.ValidateAllObjectFunc, &metav1.CreateOptions{})
	expect.NoError(s.t, err, "create namespace")
	return created.(*corev1.Namespace)
}

// update changes what is stored through one of the endpoints.
func (s *server) update(through rest.Updater, name string, mutate func(*corev1.Namespace)) *corev1.Namespace {
	s.t.Helper()
	info := rest.DefaultUpdatedObjectInfo(nil, func(_ context.Context, _, old runtime.Object) (runtime.Object, error) {
		updated := old.DeepCopyObject().(*corev1.Namespace)
		mutate(updated)
		return updated, nil
	})
	updated, _, err := through.Update(s.ctx, name, info, rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{})
	expect.NoError(s.t, err, "update namespace %s", name)
	return updated.(*corev1.Namespace)
}

func (s *server) delete(name string, options *metav1.DeleteOptions) (*corev1.Namespace, bool) {
	s.t.Helper()
	object, gone, err := s.namespaces.Delete(s.ctx, name, rest.ValidateAllObjectFunc, options)
	expect.NoError(s.t, err, "delete namespace %s", name)
	return object.(*corev1.Namespace), gone
}

func (s *server) exists(name string) bool {
	s.t.Helper()
	return s.etcd.Stored(s.t, "namespaces", name) != nil
}

// TestStorage shares one etcd; each part has namespaces of its own.
func TestStorage(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	parts := map[string]func(*testing.T, *server){
		"lifecycle":                    testLifecycle,
		"metadata finalizers hold too": testMetadataFinalizersHoldToo,
		"delete without finalizers":    testDeleteWithoutFinalizers,
		"delete refused":               testDeleteRefused,
		"propagation":                  testPropagation,
		"endpoints set their part":     testEndpointsSetTheirPart,
	}
	for name, part := range parts {
		t.Run(name, func(t *testing.T) {
			own := s.in(t)
			part(t, own)
		})
	}
}

func named(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func withoutFinalizers(ns *corev1.Namespace) { ns.Spec.Finalizers = nil }

func testLifecycle(t *testing.T, s *server) {
	created := s.create(named("lived"))

	marked, gone := s.delete("lived", &metav1.DeleteOptions{})
	if gone || marked.DeletionTimestamp.IsZero() || marked.Status.Phase != corev1.NamespaceTerminating {
		t.Fatalf("first delete: gone %t, deleted at %v, phase %s; want it to be terminating", gone, marked.DeletionTimestamp, marked.Status.Phase)
	}
	if marked.UID != created.UID || !s.exists("lived") {
		t.Fatal("first delete removed the namespace")
	}
	again, gone := s.delete("lived", &metav1.DeleteOptions{})
	if gone || again.ResourceVersion != marked.ResourceVersion {
		t.Fatalf("second delete: gone %t, resource version %s; want nothing to change", gone, again.ResourceVersion)
	}
	if _, err := s.namespaces.Create(s.ctx, named("lived"), rest.ValidateAllObjectFunc, &metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		t.Fatalf("create a terminating namespace: %v, want already exists", err)
	}
	s.update(s.status, "lived", func(ns *corev1.Namespace) {
		ns.Status.Conditions = []corev1.NamespaceCondition{{Type: corev1.NamespaceContentRemaining, Status: corev1.ConditionTrue}}
	})
	s.update(s.finalize, "lived", withoutFinalizers)
	if s.exists("lived") {
		t.Fatal("the namespace is still there after the last finalizer is gone")
	}
	if _, err := s.namespaces.Get(s.ctx, "lived", &metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Fatalf("Get: %v, want not found", err)
	}
}

func testMetadataFinalizersHoldToo(t *testing.T, s *server) {
	ns := named("held")
	ns.Finalizers = []string{"example.com/hold"}
	s.create(ns)
	s.delete("held", &metav1.DeleteOptions{})
	s.update(s.finalize, "held", withoutFinalizers)
	if !s.exists("held") {
		t.Fatal("the namespace is gone although metadata.finalizers is not empty")
	}
	s.update(s.namespaces, "held", func(ns *corev1.Namespace) { ns.Finalizers = nil })
	if s.exists("held") {
		t.Fatal("the namespace is still there without any finalizer")
	}
}

func testDeleteWithoutFinalizers(t *testing.T, s *server) {
	s.create(named("bare"))
	s.update(s.finalize, "bare", withoutFinalizers)
	if !s.exists("bare") {
		t.Fatal("finalizing a namespace without deletion timestamp removed it")
	}
	if _, gone := s.delete("bare", nil); gone || !s.exists("bare") {
		t.Fatal("the first delete removed the namespace")
	}
	if _, gone := s.delete("bare", nil); !gone || s.exists("bare") {
		t.Fatal("the second delete did not remove the namespace, which has no finalizers")
	}
}

func testDeleteRefused(t *testing.T, s *server) {
	created := s.create(named("refused"))
	denied := errors.New("denied")
	tests := []struct {
		name     string
		object   string
		validate rest.ValidateObjectFunc
		options  *metav1.DeleteOptions
		want     func(error) bool
	}{
		{name: "absent", object: "absent", want: apierrors.IsNotFound},
		{name: "other UID", options: deleteUID("other"), want: apierrors.IsConflict},
		{
			name: "other resource version", want: apierrors.IsConflict,
			options: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: new("1")}},
		},
		{
			name: "by admission", want: func(err error) bool { return errors.Is(err, denied) || apierrors.IsForbidden(err) },
			validate: func(context.Context, runtime.Object) error {
				return apierrors.NewForbidden(corev1.Resource("namespaces"), "refused", denied)
			},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			name, validate := "refused", rest.ValidateObjectFunc(rest.ValidateAllObjectFunc)
			if test.object != "" {
				name = test.object
			}
			if test.validate != nil {
				validate = test.validate
			}
			if _, _, err := s.namespaces.Delete(s.ctx, name, validate, test.options); !test.want(err) {
				t.Errorf("unexpected error %v", err)
			}
		})
	}

	if _, gone := s.delete("refused", &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}); gone {
		t.Error("a dry run deleted the namespace")
	}
	object, err := s.namespaces.Get(s.ctx, "refused", &metav1.GetOptions{})
	expect.NoError(t, err, "Get")
	expect.Equal(t, created, object.(*corev1.Namespace), "refused and dry-run deletes changed the namespace")
	s.delete("refused", nil)
	if _, _, err := s.namespaces.Delete(s.ctx, "refused", rest.ValidateAllObjectFunc, deleteUID("other")); !apierrors.IsConflict(err) {
		t.Errorf("delete a terminating namespace with another UID: %v, want a conflict", err)
	}
}

func deleteUID(uid types.UID) *metav1.DeleteOptions {
	return &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}
}

func testPropagation(t *testing.T, s *server) {
	tests := []struct {
		name    string
		before  []string
		options metav1.DeleteOptions
		want    []string
	}{
		{name: "unsaid", before: []string{"a.com/b", "orphan"}, want: []string{"a.com/b", "orphan"}},
		{
			name: "foreground", before: []string{"a.com/b", "orphan"}, want: []string{"a.com/b", "foregroundDeletion"},
			options: metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationForeground)},
		},
		{
			name: "orphan", want: []string{"orphan"},
			options: metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationOrphan)},
		},
		{
			name: "background", before: []string{"foregroundDeletion"},
			options: metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)},
		},
		{name: "old-orphan", want: []string{"orphan"}, options: metav1.DeleteOptions{OrphanDependents: new(true)}},
		{name: "old-background", before: []string{"orphan"}, options: metav1.DeleteOptions{OrphanDependents: new(false)}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			own := s.in(t)
			ns := named(test.name)
			ns.Finalizers = test.before
			own.create(ns)
			marked, _ := own.delete(test.name, &test.options)
			if !slices.Equal(marked.Finalizers, test.want) {
				t.Errorf("finalizers %v, want %v", marked.Finalizers, test.want)
			}
		})
	}
}

func TestNamespacesHaveNoDeleteCollection(t *testing.T) {
	t.Parallel()
	if _, ok := any(&namespaceREST{}).(rest.CollectionDeleter); ok {
		t.Error("namespaces can be deleted as a collection")
	}
}

func testEndpointsSetTheirPart(t *testing.T, s *server) {
	ns := &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "a-"},
		Spec:       corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{"example.com/mine"}},
		Status:     corev1.NamespaceStatus{Phase: corev1.NamespaceTerminating},
	}
	created := s.create(ns)
	if created.Labels[corev1.LabelMetadataName] != created.Name {
		t.Errorf("labels %v of namespace %s", created.Labels, created.Name)
	}
	wantSpec := corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{"example.com/mine", corev1.FinalizerKubernetes}}
	wantStatus := corev1.NamespaceStatus{Phase: corev1.NamespaceActive}
	expect.Equal(t, wantSpec, created.Spec, "created spec")
	expect.Equal(t, wantStatus, created.Status, "created status")

	condition := corev1.NamespaceCondition{Type: corev1.NamespaceDeletionContentFailure, Status: corev1.ConditionFalse}
	change := func(ns *corev1.Namespace) {
		ns.Annotations = map[string]string{"changed": "yes"}
		ns.Spec.Finalizers = []corev1.FinalizerName{"example.com/other"}
		ns.Status.Conditions = []corev1.NamespaceCondition{condition}
	}
	tests := []struct {
		name         string
		through      rest.Updater
		spec, status bool
		reset        string
	}{
		{name: "main", through: s.namespaces, reset: "status"},
		{name: "status", through: s.status, status: true, reset: "spec"},
		{name: "finalize", through: s.finalize, spec: true, reset: "status"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			own := s.in(t)
			before := own.update(s.namespaces, created.Name, func(*corev1.Namespace) {})
			after := own.update(test.through, created.Name, change)
			if after.Annotations["changed"] != "yes" {
				t.Error("metadata was not updated")
			}
			if got := !cmp.Equal(before.Spec, after.Spec); got != test.spec {
				t.Errorf("spec updated: %t, want %t", got, test.spec)
			}
			if got := !cmp.Equal(before.Status, after.Status); got != test.status {
				t.Errorf("status updated: %t, want %t", got, test.status)
			}
			reset := test.through.(rest.ResetFieldsStrategy).GetResetFields()["v1"]
			if want := fieldpath.NewSet(fieldpath.MakePathOrDie(test.reset)); !want.Equals(reset) {
				t.Errorf("reset fields %v, want %v", reset, want)
			}
		})
	}
}
