// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/storage/etcd/embeddedetcd/etcdtest"
	"github.com/annex-dev/annex/pkg/storage/layer/corruption"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// damage replaces the value of a Widget in etcd.
func (r *resource) damage(t *testing.T, annexEtcd *clientv3.Client, name string) {
	t.Helper()
	etcdPut(t, annexEtcd, r.key(name), "\x00damaged")
}

// waitForUnreadable waits until lists fail with an error that names the Widgets.
func (r *resource) waitForUnreadable(t *testing.T, names ...string) {
	t.Helper()
	for i, name := range names {
		names[i] = r.namespace + "/" + name
	}
	poll.Until(t, "lists of "+r.name+" fail", func() string {
		// A list with a selector is served by the watch cache.
		for _, options := range []metav1.ListOptions{{}, {LabelSelector: "!x"}} {
			_, err := r.in("v1").List(t.Context(), options)
			if !apierrors.IsStoreReadError(err) || !strings.Contains(err.Error(), strings.Join(names, ", ")) {
				return fmt.Sprintf("a list with %v got: %v", options, err)
			}
		}
		return ""
	})
}

// waitForNames waits until these Widgets are listed.
func (r *resource) waitForNames(t *testing.T, want ...string) {
	t.Helper()
	poll.UntilDone(t, "the list of "+r.name, func() (bool, string) {
		list, err := r.in("v1").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return false, err.Error()
		}
		var names []string
		for _, item := range list.Items {
			names = append(names, item.GetName())
		}
		slices.Sort(names)
		return slices.Equal(names, want), strings.Join(names, ",") + " are listed, want " + strings.Join(want, ",")
	})
}

// unsafeDelete deletes a Widget with the option for unreadable objects.
func (r *resource) unsafeDelete(t *testing.T, name string) response {
	t.Helper()
	return r.annex.request(t, http.MethodDelete, r.path("v1")+"/"+name+"?"+corruption.UnsafeDelete+"=true", "")
}

// waitForObjectsReadable waits for status and message of the condition.
func (r *resource) waitForObjectsReadable(t *testing.T, a *annex, want string) {
	t.Helper()
	expect.Eventually(t, a.HostedResources(), r.name, "the condition ObjectsReadable", func(hosted *hostingv1alpha1.HostedResource) bool {
		intact := meta.FindStatusCondition(hosted.Status.Conditions, hostingv1alpha1.HostedResourceObjectsReadable)
		return intact != nil && strings.HasPrefix(string(intact.Status)+" "+intact.Message, want)
	})
}

// TestCorruptObject damages one of three objects.
func TestCorruptObject(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	annexEtcd := a.etcd(t)
	widgets := a.installCRD(t, newCRD(t, anySchema))
	for _, name := range []string{"a", "b", "c"} {
		widgets.create(t, "v1", name, "spec: {}")
	}
	informer := widgets.startInformer(t)

	widgets.damage(t, annexEtcd, "b")
	widgets.waitForUnreadable(t, "b")
	_, err := widgets.in("v1").Get(t.Context(), "b", metav1.GetOptions{})
	if !apierrors.IsStoreReadError(err) || !strings.Contains(err.Error(), widgets.namespace+"/b cannot be read: object not decodable") {
		t.Errorf("read it: got %v, want the reason", err)
	}
	widgets.waitForObjectsReadable(t, a, "False 1 object cannot be read, so lists fail. "+widgets.namespace+"/b: object not decodable")
	widgets.create(t, "v1", "d", "spec: {}")
	if _, err := widgets.in("v1").Get(t.Context(), "a", metav1.GetOptions{}); err != nil {
		t.Errorf("read another: %v", err)
	}
	if err := widgets.in("v1").Delete(t.Context(), "b", metav1.DeleteOptions{}); err == nil {
		t.Error("it was deleted without the option")
	}
	if err := widgets.in("v1").DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err == nil || !strings.Contains(err.Error(), widgets.namespace+"/b") {
		t.Errorf("delete all: got %v, want a refusal that names b", err)
	}
	// The verb delete does not allow deleting unreadable objects.
	a.bind(t, widgets.namespace+":deleters", widgets.namespace,
		rbacv1.PolicyRule{Verbs: []string{"get", "delete"}, APIGroups: []string{widgets.group}, Resources: []string{"widgets"}})
	poll.UntilDone(t, "deleters may not delete it", func() (bool, string) {
		got := a.request(t, http.MethodDelete, widgets.path("v1")+"/b?"+corruption.UnsafeDelete+"=true", "",
			"Impersonate-User", "deleter", "Impersonate-Group", widgets.namespace+":deleters")
		return got.Code == http.StatusForbidden && strings.Contains(string(got.Body), "unsafe-delete-ignore-read-errors"), got.String()
	})
	if unsafe := widgets.unsafeDelete(t, "a"); unsafe.Code < 400 {
		t.Errorf("delete a readable object with the option: got %s", unsafe)
	}
	informer.waitForNames(t, "a", "b", "c")
	if deleted := informer.deleted.Load(); deleted > 0 {
		t.Errorf("the informer received %d deletions before there was one", deleted)
	}

	if unsafe := widgets.unsafeDelete(t, "b"); unsafe.Code != http.StatusOK {
		t.Fatalf("delete it: %s", unsafe)
	}
	widgets.waitForNames(t, "a", "c", "d")
	informer.waitForNames(t, "a", "c", "d")
	widgets.waitForObjectsReadable(t, a, "True Every object can be read")
	widgets.create(t, "v1", "b", "spec: {}")
	widgets.waitForNames(t, "a", "b", "c", "d")
	expect.Succeeds(t, widgets.in("v1").DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}), "delete all")
}

// TestReplicaWithoutTheKey encrypts on one of two replicas with a key that the other does
// not have yet.
func TestReplicaWithoutTheKey(t *testing.T) {
	t.Parallel()
	endpoint := etcdtest.Start(t, nil).Endpoint()
	crd := newCRD(t, anySchema)
	file := func(keys ...string) string {
		return writeFile(t, "encryption.yaml", encryptionConfig(crd.Name, provider("secretbox", keys...), "{identity: {}}"))
	}
	ahead, behind := file("new", "old"), file("old")
	flag := "--encryption-provider-config="
	first := startAnnex(t, "--etcd-servers="+endpoint, flag+ahead)
	second := startAnnex(t, "--etcd-servers="+endpoint, flag+behind)

	written := first.installCRD(t, crd)
	read := written.on(second)
	poll.UntilNoError(t, "the other replica serves the definition", func() error {
		_, err := read.in("v1").List(t.Context(), metav1.ListOptions{})
		return err
	})
	read.create(t, "v1", "a", "spec: {}")
	informer := read.startInformer(t)
	written.create(t, "v1", "b", "spec: {}")
	label := []byte(`{"metadata":{"labels":{"x":"y"}}}`)
	expect.Patch(t, written.in("v1"), "a", string(label))
	written.waitForNames(t, "a", "b")
	read.waitForUnreadable(t, "a", "b")
	if err := read.in("v1").DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err == nil {
		t.Error("a replica deleted what it cannot read")
	}
	metric := fmt.Sprintf("annex_unreadable_objects{resource=%q} ", read.name)
	poll.UntilDone(t, "the metric counts both objects", func() (bool, string) {
		_, after, found := strings.Cut(string(read.annex.get(t, "/metrics").Body), metric)
		count, _, _ := strings.Cut(after, "\n")
		return found && count == "2", metric + count
	})
	informer.waitForNames(t, "a")

	key, err := os.ReadFile(ahead)
	expect.NoError(t, err)
	mustWrite(t, behind, key)
	read.waitForNames(t, "a", "b")
	informer.waitForNames(t, "a", "b")
	if deleted := informer.deleted.Load(); deleted > 0 {
		t.Errorf("the informer received %d deletions, nothing was deleted", deleted)
	}
}

// TestCorruptObjectBlocksDeletion deletes the namespace and the CRD of an unreadable object.
func TestCorruptObjectBlocksDeletion(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	annexEtcd := a.etcd(t)
	widgets := a.installCRD(t, newCRD(t, anySchema))
	for _, name := range []string{"a", "b", "c"} {
		widgets.create(t, "v1", name, "spec: {}")
	}
	widgets.damage(t, annexEtcd, "b")
	widgets.waitForUnreadable(t, "b")

	expect.Delete(t, a.Kube.CoreV1().Namespaces(), widgets.namespace)
	expect.Eventually(t, a.Kube.CoreV1().Namespaces(), widgets.namespace, "a condition of the namespace names the object", func(namespace *corev1.Namespace) bool {
		return strings.Contains(namespace.Status.String(), widgets.namespace+"/b")
	})
	widgets.deleteCRD(t)
	widgets.waitForCRDCondition(t, apiextensionsv1.Terminating, apiextensionsv1.ConditionTrue, "InstanceDeletionFailed", "")
	if value := etcdValue(t, annexEtcd, widgets.key("b")); string(value) != "\x00damaged" {
		t.Errorf("etcd has %q", value)
	}
	if unsafe := widgets.unsafeDelete(t, "b"); unsafe.Code != http.StatusOK {
		t.Fatalf("delete it: %s", unsafe)
	}
	widgets.waitForCRDDeleted(t)
	a.waitForNamespaceDeleted(t, widgets.namespace)
}
