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

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/storage/corruption"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// damage replaces what etcd has of a Widget.
func (r *resource) damage(t *testing.T, annexEtcd *clientv3.Client, name string) {
	t.Helper()
	etcdPut(t, annexEtcd, r.key(name), "\x00damaged")
}

// waitForUnreadable waits until lists fail and name the Widgets.
func (r *resource) waitForUnreadable(t *testing.T, names ...string) {
	t.Helper()
	for i, name := range names {
		names[i] = r.namespace + "/" + name
	}
	poll.Until(t, "lists of "+r.name+" fail", func() string {
		// With a selector it is the watch cache that answers.
		for _, options := range []metav1.ListOptions{{}, {LabelSelector: "!x"}} {
			_, err := r.in("v1").List(t.Context(), options)
			if !apierrors.IsStoreReadError(err) || !strings.Contains(err.Error(), strings.Join(names, ", ")) {
				return fmt.Sprintf("a list with %v got: %v", options, err)
			}
		}
		return ""
	})
}

// waitForNames waits until the Widgets that are listed are those.
func (r *resource) waitForNames(t *testing.T, want ...string) {
	t.Helper()
	poll.Until(t, "the list of "+r.name, func() string {
		list, err := r.in("v1").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}
		var names []string
		for _, item := range list.Items {
			names = append(names, item.GetName())
		}
		slices.Sort(names)
		if !slices.Equal(names, want) {
			return strings.Join(names, ",") + " are listed, want " + strings.Join(want, ",")
		}
		return ""
	})
}

// unsafeDelete asks for the deletion of a Widget as of one that cannot be read.
func (r *resource) unsafeDelete(t *testing.T, name string) response {
	t.Helper()
	return r.annex.request(t, http.MethodDelete, r.path("v1")+"/"+name+"?"+corruption.UnsafeDelete+"=true", "")
}

// waitForObjectsReadable waits until the condition says so.
func (r *resource) waitForObjectsReadable(t *testing.T, a *annex, want string) {
	t.Helper()
	poll.Until(t, "the condition ObjectsReadable", func() string {
		hosted, err := a.hosting.HostingV1alpha1().HostedResources().Get(t.Context(), r.name, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		intact := meta.FindStatusCondition(hosted.Status.Conditions, hostingv1alpha1.HostedResourceObjectsReadable)
		if intact == nil || !strings.HasPrefix(string(intact.Status)+" "+intact.Message, want) {
			return fmt.Sprintf("it is %+v", intact)
		}
		return ""
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
		t.Errorf("read it: got %v, want why it cannot be read", err)
	}
	widgets.waitForObjectsReadable(t, a, "False 1 object cannot be read, so lists fail. "+widgets.namespace+"/b: object not decodable")
	widgets.create(t, "v1", "d", "spec: {}")
	if _, err := widgets.in("v1").Get(t.Context(), "a", metav1.GetOptions{}); err != nil {
		t.Errorf("read another: %v", err)
	}
	if err := widgets.in("v1").Delete(t.Context(), "b", metav1.DeleteOptions{}); err == nil {
		t.Error("it was deleted as if it could be read")
	}
	if err := widgets.in("v1").DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err == nil || !strings.Contains(err.Error(), widgets.namespace+"/b") {
		t.Errorf("delete all: got %v, want a refusal that names b", err)
	}
	// Who may delete objects may not delete those that cannot be read.
	a.bind(t, widgets.namespace+":deleters", widgets.namespace,
		rbacv1.PolicyRule{Verbs: []string{"get", "delete"}, APIGroups: []string{widgets.group}, Resources: []string{"widgets"}})
	poll.Until(t, "deleters may not delete it", func() string {
		got := a.request(t, http.MethodDelete, widgets.path("v1")+"/b?"+corruption.UnsafeDelete+"=true", "",
			"Impersonate-User", "deleter", "Impersonate-Group", widgets.namespace+":deleters")
		if got.code != http.StatusForbidden || !strings.Contains(string(got.body), "unsafe-delete-ignore-read-errors") {
			return got.String()
		}
		return ""
	})
	if unsafe := widgets.unsafeDelete(t, "a"); unsafe.code < 400 {
		t.Errorf("delete one that can be read, as if it could not: got %s", unsafe)
	}
	informer.waitForNames(t, "a", "b", "c")
	if deleted := informer.deleted.Load(); deleted > 0 {
		t.Errorf("the informer was told of %d deletions before there was one", deleted)
	}

	if unsafe := widgets.unsafeDelete(t, "b"); unsafe.code != http.StatusOK {
		t.Fatalf("delete it: %s", unsafe)
	}
	widgets.waitForNames(t, "a", "c", "d")
	informer.waitForNames(t, "a", "c", "d")
	widgets.waitForObjectsReadable(t, a, "True Every object can be read")
	widgets.create(t, "v1", "b", "spec: {}")
	widgets.waitForNames(t, "a", "b", "c", "d")
	if err := widgets.in("v1").DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Errorf("delete all: %v", err)
	}
}

// TestReplicaWithoutTheKey has one of two replicas encrypt with a key that the other does
// not have yet.
func TestReplicaWithoutTheKey(t *testing.T) {
	t.Parallel()
	endpoint := startEtcd(t, nil)
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
	poll.Until(t, "the other replica serves the definition", func() string {
		_, err := read.in("v1").List(t.Context(), metav1.ListOptions{})
		return errorText(err)
	})
	read.create(t, "v1", "a", "spec: {}")
	informer := read.startInformer(t)
	written.create(t, "v1", "b", "spec: {}")
	label := []byte(`{"metadata":{"labels":{"x":"y"}}}`)
	if _, err := written.in("v1").Patch(t.Context(), "a", types.MergePatchType, label, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	written.waitForNames(t, "a", "b")
	read.waitForUnreadable(t, "a", "b")
	if err := read.in("v1").DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err == nil {
		t.Error("a replica deleted what it cannot read")
	}
	if metric := read.annex.get(t, "/metrics"); !strings.Contains(string(metric.body), `annex_unreadable_objects{resource="`+read.name+`"} 2`) {
		t.Error("the metrics of the replica do not count the objects")
	}
	informer.waitForNames(t, "a")

	key, err := os.ReadFile(ahead)
	expectNoError(t, err)
	mustWrite(t, behind, key)
	read.waitForNames(t, "a", "b")
	informer.waitForNames(t, "a", "b")
	if deleted := informer.deleted.Load(); deleted > 0 {
		t.Errorf("the informer was told of %d deletions where nothing was deleted", deleted)
	}
}

// TestCorruptObjectBlocksDeletion deletes the namespace and the definition of an
// object that cannot be read.
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

	mustDelete(t, a.kube.CoreV1().Namespaces(), widgets.namespace)
	poll.Until(t, "the namespace says what is in the way", func() string {
		namespace := mustGet(t, a.kube.CoreV1().Namespaces(), widgets.namespace)
		for _, condition := range namespace.Status.Conditions {
			if strings.Contains(condition.Message, widgets.namespace+"/b") {
				return ""
			}
		}
		return namespace.Status.String()
	})
	widgets.deleteCRD(t)
	poll.Until(t, "the definition says what is in the way", func() string {
		crd := mustGet(t, a.extensions.ApiextensionsV1().CustomResourceDefinitions(), widgets.name)
		for _, condition := range crd.Status.Conditions {
			if condition.Type == "Terminating" && condition.Reason == "InstanceDeletionFailed" {
				return ""
			}
		}
		return crd.Status.String()
	})
	if value := etcdValue(t, annexEtcd, widgets.key("b")); string(value) != "\x00damaged" {
		t.Errorf("etcd has %q", value)
	}
	if unsafe := widgets.unsafeDelete(t, "b"); unsafe.code != http.StatusOK {
		t.Fatalf("delete it: %s", unsafe)
	}
	widgets.waitForCRDDeleted(t)
	poll.Until(t, "the namespace goes", func() string {
		if _, err := a.kube.CoreV1().Namespaces().Get(t.Context(), widgets.namespace, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return "it is still there"
		}
		return ""
	})
}
