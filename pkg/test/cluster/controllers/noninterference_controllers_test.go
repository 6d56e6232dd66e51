// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package controllers

import (
	"context"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// testNamespaceDeletion: deleting a namespace of the main cluster deletes annex's objects in
// it, and waits for their finalizers.
func testNamespaceDeletion(t *testing.T, s *sharedAnnex) {
	w := s.newWidgets(t)
	mainClients := main(t)
	for i := range 3 {
		w.create(t, fmt.Sprintf("widget-%d", i))
	}
	held := w.object("held")
	held.SetFinalizers([]string{"noninterference.example.com/held"})
	if _, err := w.by(mainClients).Create(t.Context(), held, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	namespaces := mainClients.Kube.CoreV1().Namespaces()
	expect.Delete(t, namespaces, w.namespace)
	expect.Eventually(t, namespaces, w.namespace, "the namespace reports remaining finalizers", func(namespace *corev1.Namespace) bool {
		return slices.ContainsFunc(namespace.Status.Conditions, func(condition corev1.NamespaceCondition) bool {
			return condition.Type == corev1.NamespaceFinalizersRemaining && condition.Status == corev1.ConditionTrue
		})
	})
	_, err := w.by(mainClients).Create(t.Context(), w.object("late"), metav1.CreateOptions{})
	if problem := expect.MissingFrom(err, w.namespace, "being terminated"); problem != "" || !apierrors.IsForbidden(err) {
		t.Errorf("create in a terminating namespace: %v", err)
	}
	left, err := w.by(mainClients).List(t.Context(), metav1.ListOptions{})
	expect.NoError(t, err)
	if len(left.Items) != 1 || left.Items[0].GetName() != "held" {
		t.Errorf("left in the namespace: %v, want only the object with a finalizer", left.Items)
	}
	left.Items[0].SetFinalizers(nil)
	if _, err := w.by(mainClients).Update(t.Context(), &left.Items[0], metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	expect.Gone(t, namespaces, w.namespace)
	nowhere := widgets{group: w.group, namespace: "nowhere"}
	if _, err := nowhere.by(mainClients).Create(t.Context(), nowhere.object("any"), metav1.CreateOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("create in a missing namespace: %v", err)
	}
}

// testGarbageCollection: the main cluster's garbage collector follows owner references
// between its objects and annex's, and among annex's.
func testGarbageCollection(t *testing.T, s *sharedAnnex) {
	w := widgets{group: s.known, namespace: newNamespace(t)}
	mainClients := main(t)
	configMaps := mainClients.Kube.CoreV1().ConfigMaps(w.namespace)
	ofConfigMap := expect.Create(t, configMaps, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner"}})
	owner := w.create(t, "owner")
	ownedBy := func(apiVersion, kind string, object metav1.Object, name string) *unstructured.Unstructured {
		widget := w.object(name)
		widget.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: object.GetName(), UID: object.GetUID(), BlockOwnerDeletion: new(true)}})
		created, err := w.by(mainClients).Create(t.Context(), widget, metav1.CreateOptions{})
		expect.NoError(t, err)
		return created
	}
	ownedBy("v1", "ConfigMap", ofConfigMap, "of-a-config-map")
	child := ownedBy(w.group+"/v1", "Widget", owner, "of-a-widget")
	dependent := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "of-a-widget", OwnerReferences: []metav1.OwnerReference{
		{APIVersion: w.group + "/v1", Kind: "Widget", Name: child.GetName(), UID: child.GetUID()},
	}}}
	expect.Create(t, configMaps, dependent)
	unowned := w.create(t, "unowned")

	expect.Delete(t, configMaps, "owner")
	w.untilGone(t, mainClients, "of-a-config-map")
	foreground := metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationForeground)}
	expect.NoError(t, w.by(mainClients).Delete(t.Context(), "owner", foreground))
	poll.Until(t, "the widget is deleted, after the widget that it owned and the ConfigMap that this one owned", func() string {
		if _, err := w.by(mainClients).Get(t.Context(), "owner", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Sprint("owner: ", err)
		}
		if _, err := w.by(mainClients).Get(t.Context(), "of-a-widget", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Fatalf("the owner was deleted before its dependent: %v", err)
		}
		_, err := configMaps.Get(t.Context(), "of-a-widget", metav1.GetOptions{})
		return wantGone(err)
	})
	if again, err := w.by(mainClients).Get(t.Context(), "unowned", metav1.GetOptions{}); err != nil || again.GetUID() != unowned.GetUID() {
		t.Errorf("an object without owner was collected: %v", err)
	}
}

// untilGone waits until the garbage collector has deleted a widget.
func (w widgets) untilGone(t *testing.T, c *endpoint, name string) {
	t.Helper()
	poll.Until(t, "widget "+name+" is deleted", func() string {
		_, err := w.by(c).Get(t.Context(), name, metav1.GetOptions{})
		return wantGone(err)
	})
}

func wantGone(err error) string {
	if apierrors.IsNotFound(err) {
		return ""
	}
	return fmt.Sprint("it still exists: ", err)
}

// testResourceQuota: a count quota of the main cluster applies to annex's Widgets, annex
// charges it, and its controller counts deletions.
func testResourceQuota(t *testing.T, s *sharedAnnex) {
	w := widgets{group: s.known, namespace: newNamespace(t)}
	mainClients := main(t)
	counted := corev1.ResourceName("count/widgets." + w.group)
	quotas := mainClients.Kube.CoreV1().ResourceQuotas(w.namespace)
	expect.Create(t, quotas, &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{counted: resource.MustParse("2")}},
	})
	used := func(want int64) string {
		quota, err := quotas.Get(t.Context(), "widgets", metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		if used, known := quota.Status.Used[counted]; !known || used.Value() != want {
			return fmt.Sprintf("status %+v, want %d used", quota.Status, want)
		}
		return ""
	}
	poll.Until(t, "the quota controller has synced the quota", func() string { return used(0) })
	poll.Until(t, "annex enforces the quota", func() string {
		tried := w.object("zeroth")
		if _, err := w.by(mainClients).Create(t.Context(), tried, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return err.Error()
		}
		return used(1)
	})
	// Once the controller has counted a deletion, its initial full sync is done.
	expect.NoError(t, w.by(mainClients).Delete(t.Context(), "zeroth", metav1.DeleteOptions{}))
	poll.Until(t, "the quota controller has counted a deletion", func() string { return used(0) })

	watching, err := quotas.Watch(t.Context(), metav1.ListOptions{ResourceVersion: expect.Get(t, quotas, "widgets").ResourceVersion})
	expect.NoError(t, err)
	defer watching.Stop()
	w.create(t, "first")
	w.create(t, "second")
	within, cancel := context.WithTimeout(t.Context(), poll.Timeout)
	defer cancel()
	_, err = watchtools.UntilWithoutRetry(within, watching, func(event watch.Event) (bool, error) {
		return chargedByAnnex(event.Object, counted), nil
	})
	expect.NoError(t, err, "wait until annex charges the quota")
	for side, by := range map[string]*endpoint{"the main cluster": mainClients, "its own endpoint": s.own(t)} {
		// The controller resyncs every five seconds. While it has not seen the second widget, it may undo
		// what annex has charged for it.
		poll.Until(t, "annex refuses the third widget through "+side, func() string {
			_, err := w.by(by).Create(t.Context(), w.object("third"), metav1.CreateOptions{})
			if err == nil {
				expect.NoError(t, w.by(by).Delete(t.Context(), "third", metav1.DeleteOptions{}))
				return "it was created"
			}
			if !apierrors.IsForbidden(err) {
				return err.Error()
			}
			return expect.MissingFrom(err, "exceeded quota: widgets", string(counted)+"=1", "used: "+string(counted)+"=2", "limited: "+string(counted)+"=2")
		})
	}
	expect.NoError(t, w.by(mainClients).Delete(t.Context(), "first", metav1.DeleteOptions{}))
	poll.Until(t, "the quota controller counts the deletion", func() string { return used(1) })
	w.create(t, "third")
}

// chargedByAnnex returns whether another writer than the quota controller has raised what is used.
func chargedByAnnex(object runtime.Object, counted corev1.ResourceName) bool {
	quota, is := object.(*corev1.ResourceQuota)
	if !is {
		return false
	}
	used := quota.Status.Used[counted]
	return used.Sign() > 0 && slices.ContainsFunc(quota.ManagedFields, func(entry metav1.ManagedFieldsEntry) bool {
		return entry.Subresource == "status" && entry.Manager != "kube-controller-manager"
	})
}
