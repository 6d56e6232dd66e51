// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// testFinalizer delays the deletion of objects.
const testFinalizer = "example.com/hold"

// createContents puts an object of every compiled-in kind into a namespace.
func (a *annex) createContents(t *testing.T, namespace string) {
	t.Helper()
	meta := metav1.ObjectMeta{Name: "content", Namespace: namespace}
	core := a.Kube.CoreV1()
	expect.Create(t, core.ConfigMaps(namespace), &corev1.ConfigMap{ObjectMeta: meta})
	expect.Create(t, core.Secrets(namespace), &corev1.Secret{ObjectMeta: meta})
	expect.Create(t, core.ServiceAccounts(namespace), &corev1.ServiceAccount{ObjectMeta: meta})
	expect.Create(t, core.Events(namespace), &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: "old", Namespace: namespace},
		InvolvedObject: corev1.ObjectReference{Namespace: namespace},
	})
	expect.Create(t, a.Kube.EventsV1().Events(namespace), &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: "new", Namespace: namespace}, EventTime: metav1.NowMicro(),
		ReportingController: "example.com/test", ReportingInstance: "test", Action: "Testing", Reason: "Test", Type: corev1.EventTypeNormal,
		Regarding: corev1.ObjectReference{Namespace: namespace},
	})
	expect.Create(t, a.Kube.CoordinationV1().Leases(namespace), &coordinationv1.Lease{ObjectMeta: meta})
}

// keysIn lists the keys in etcd of objects in a namespace.
func (a *annex) keysIn(t *testing.T, namespace string) []string {
	t.Helper()
	found, err := a.etcd(t).Get(t.Context(), "/annex/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	expect.NoError(t, err, "list the keys in etcd")
	var keys []string
	for _, kv := range found.Kvs {
		if strings.Contains(string(kv.Key), "/"+namespace+"/") {
			keys = append(keys, string(kv.Key))
		}
	}
	return keys
}

func (a *annex) deleteNamespace(t *testing.T, name string) {
	t.Helper()
	expect.Delete(t, a.Kube.CoreV1().Namespaces(), name)
}

// waitForNamespaceDeleted waits until a namespace is deleted. Its objects must be deleted then.
func (a *annex) waitForNamespaceDeleted(t *testing.T, name string) {
	t.Helper()
	expect.Gone(t, a.Kube.CoreV1().Namespaces(), name)
	if keys := a.keysIn(t, name); len(keys) > 0 {
		t.Errorf("etcd still holds %q", keys)
	}
}

// waitForNamespaceCondition waits until a condition is true and its message contains words.
func (a *annex) waitForNamespaceCondition(t *testing.T, name string, condition corev1.NamespaceConditionType, words string) {
	t.Helper()
	expect.Eventually(t, a.Kube.CoreV1().Namespaces(), name, fmt.Sprintf("namespace %s has the condition %s", name, condition), func(namespace *corev1.Namespace) bool {
		return slices.ContainsFunc(namespace.Status.Conditions, func(c corev1.NamespaceCondition) bool {
			return c.Type == condition && c.Status == corev1.ConditionTrue && strings.Contains(c.Message, words)
		})
	})
}

// removeFinalizers removes the finalizers of a Widget.
func (r *resource) removeFinalizers(t *testing.T, name string) {
	t.Helper()
	expect.Patch(t, r.in("v1"), name, `{"metadata":{"finalizers":null}}`)
}

func TestNamespaceDeletion(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	widgets := a.installCRD(t, newCRD(t, anySchema))
	a.createContents(t, widgets.namespace)
	for i := range 3 {
		widgets.create(t, "v1", fmt.Sprintf("widget-%d", i), "spec: {}")
	}
	poll.UntilDone(t, "the namespace holds 11 objects, its default service account and its authority among them", func() (bool, string) {
		keys := a.keysIn(t, widgets.namespace)
		return len(keys) == 11, strings.Join(keys, " ")
	})
	a.deleteNamespace(t, widgets.namespace)
	a.waitForNamespaceDeleted(t, widgets.namespace)

	expect.Create(t, a.Kube.CoreV1().Namespaces(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: widgets.namespace}})
	widgets.wantNames(t, "in the new namespace of the same name")
}

// A custom resource is emptied although its namespace was deleted before
// discovery could list it.
func TestNamespaceDeletionWithNewCRD(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	widgets := a.installCRD(t, newCRD(t, anySchema))
	widgets.own(t, "widget", withFinalizer)
	a.deleteNamespace(t, widgets.namespace)
	a.waitForNamespaceCondition(t, widgets.namespace, corev1.NamespaceContentRemaining, "widgets."+widgets.group)
	widgets.removeFinalizers(t, "widget")
	a.waitForNamespaceDeleted(t, widgets.namespace)
}

func TestNamespaceDeletionWaitsForContents(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	widgets := a.installCRD(t, newCRD(t, anySchema))
	a.createContents(t, widgets.namespace)
	widgets.create(t, "v1", "free", "spec: {}")
	widgets.own(t, "held", withFinalizer)
	a.deleteNamespace(t, widgets.namespace)

	a.waitForNamespaceCondition(t, widgets.namespace, corev1.NamespaceContentRemaining, "widgets."+widgets.group+" has 1 resource instances")
	a.waitForNamespaceCondition(t, widgets.namespace, corev1.NamespaceFinalizersRemaining, testFinalizer+" in 1 resource instances")
	if keys := a.keysIn(t, widgets.namespace); len(keys) != 1 || keys[0] != widgets.key("held") {
		t.Errorf("etcd holds %q, want only the object with a finalizer", keys)
	}
	_, err := widgets.in("v1").Create(t.Context(), widgets.object(t, "v1", "late", "spec: {}"), metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("create an object in a terminating namespace: %v, want forbidden", err)
	}

	widgets.removeFinalizers(t, "held")
	a.waitForNamespaceDeleted(t, widgets.namespace)
}

// A namespace with unreadable objects is not deleted, and has a condition with the reason.
// Its other objects are deleted.
func TestNamespaceDeletionWithUnreadableContents(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	crd := newCRD(t, anySchema)
	// v2 is preferred and v1 is stored, so that reading takes a conversion.
	crd.Spec.Versions = append(crd.Spec.Versions, newVersion(t, "v2", anySchema))
	widgets := a.installCRD(t, crd)
	widgets.create(t, "v1", "widget", "spec: {}")
	a.createContents(t, widgets.namespace)
	widgets.updateCRD(t, func(crd *apiextensionsv1.CustomResourceDefinition) {
		crd.Spec.Conversion = unreachableConversion()
	})
	poll.UntilDone(t, "objects cannot be read", func() (bool, string) {
		_, err := widgets.in("v2").List(t.Context(), metav1.ListOptions{})
		return err != nil, "they can"
	})

	a.deleteNamespace(t, widgets.namespace)
	a.waitForNamespaceCondition(t, widgets.namespace, corev1.NamespaceDeletionContentFailure, widgets.name)
	poll.UntilDone(t, "readable objects are deleted", func() (bool, string) {
		keys := a.keysIn(t, widgets.namespace)
		return len(keys) == 1, fmt.Sprintf("etcd holds %q", keys)
	})
	widgets.updateCRD(t, func(crd *apiextensionsv1.CustomResourceDefinition) {
		crd.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter}
	})
	a.waitForNamespaceDeleted(t, widgets.namespace)
}

func TestNamespaceDeletionResumesAfterRestart(t *testing.T) {
	t.Parallel()
	a := startAnnex(t)
	widgets := a.installCRD(t, newCRD(t, anySchema))
	for i := range 20 {
		widgets.create(t, "v1", fmt.Sprintf("widget-%d", i), "spec: {}")
	}
	a.createContents(t, widgets.namespace)
	a.deleteNamespace(t, widgets.namespace)
	a = a.restart(t)
	a.waitForNamespaceDeleted(t, widgets.namespace)
}
