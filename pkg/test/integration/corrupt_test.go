// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

// damage replaces what etcd has of a Widget.
func (r *resource) damage(t *testing.T, annexEtcd *clientv3.Client, name string) {
	t.Helper()
	if _, err := annexEtcd.Put(t.Context(), r.key(name), "\x00damaged"); err != nil {
		t.Fatal(err)
	}
}

// waitNames waits until the Widgets that are listed are those.
func (r *resource) waitNames(t *testing.T, want ...string) {
	t.Helper()
	eventually(t, "the list of "+r.name, func() string {
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

// waitIntact waits until the condition says so.
func (r *resource) waitIntact(t *testing.T, a *annex, want string) {
	t.Helper()
	eventually(t, "the condition Intact", func() string {
		hosted, err := a.hosting.HostingV1alpha1().HostedResources().Get(t.Context(), r.name, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		intact := meta.FindStatusCondition(hosted.Status.Conditions, hostingv1alpha1.HostedResourceIntact)
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
	widgets := a.install(t, newDefinition(t, anySchema))
	for _, name := range []string{"a", "b", "c"} {
		widgets.create(t, "v1", name, "spec: {}")
	}
	informers := dynamicinformer.NewFilteredDynamicSharedInformerFactory(a.dynamic, 0, widgets.namespace, nil)
	informer := informers.ForResource(widgets.gvr("v1")).Informer()
	ctx, stop := context.WithCancel(t.Context())
	informers.Start(ctx.Done())
	defer informers.Shutdown()
	defer stop()
	if !cache.WaitForCacheSync(t.Context().Done(), informer.HasSynced) {
		t.Fatal("the informer did not sync")
	}

	widgets.damage(t, annexEtcd, "b")
	widgets.waitNames(t, "a", "c")
	list := a.get(t, widgets.path("v1"))
	if warning := list.header.Get("Warning"); !strings.Contains(warning, widgets.name+" cannot be read and left out: "+widgets.namespace+"/b") {
		t.Errorf("the list has the warning %q, want that b is left out", warning)
	}
	_, err := widgets.in("v1").Get(t.Context(), "b", metav1.GetOptions{})
	if apierrors.ReasonForError(err) != metav1.StatusReasonStoreReadError || !strings.Contains(err.Error(), widgets.namespace+"/b cannot be read: it cannot be decoded") {
		t.Errorf("reading it: got %v, want why it cannot be read", err)
	}
	widgets.waitIntact(t, a, "False 1 object cannot be read and left out of lists. "+widgets.namespace+"/b: it cannot be decoded")
	widgets.create(t, "v1", "d", "spec: {}")
	eventually(t, "the informer", func() string {
		keys := informer.GetStore().ListKeys()
		slices.Sort(keys)
		if got := strings.Join(keys, ","); strings.ReplaceAll(got, widgets.namespace+"/", "") != "a,c,d" {
			return "it has " + got
		}
		return ""
	})

	if err := widgets.in("v1").Delete(t.Context(), "b", metav1.DeleteOptions{}); err == nil {
		t.Error("it was deleted as if it could be read")
	}
	if err := widgets.in("v1").DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err == nil || !strings.Contains(err.Error(), widgets.namespace+"/b") {
		t.Errorf("deleting all: got %v, want a refusal that names b", err)
	}
	widgets.waitNames(t, "a", "c", "d")
	unsafe := a.request(t, http.MethodDelete, widgets.path("v1")+"/a?ignoreStoreReadErrorWithClusterBreakingPotential=true", "")
	if unsafe.code < 400 {
		t.Errorf("deleting one that can be read, as if it could not: got %s", unsafe)
	}
	unsafe = a.request(t, http.MethodDelete, widgets.path("v1")+"/b?ignoreStoreReadErrorWithClusterBreakingPotential=true", "")
	if unsafe.code != http.StatusOK {
		t.Fatalf("deleting it: %s", unsafe)
	}
	widgets.waitIntact(t, a, "True Every object can be read")
	widgets.create(t, "v1", "b", "spec: {}")
	widgets.waitNames(t, "a", "b", "c", "d")
	if err := widgets.in("v1").DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Errorf("deleting all: %v", err)
	}
}

// TestCorruptObjectIsNotLeftBehind deletes the namespace and the definition of an
// object that cannot be read.
func TestCorruptObjectIsNotLeftBehind(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	annexEtcd := a.etcd(t)
	widgets := a.install(t, newDefinition(t, anySchema))
	for _, name := range []string{"a", "b", "c"} {
		widgets.create(t, "v1", name, "spec: {}")
	}
	widgets.damage(t, annexEtcd, "b")
	widgets.waitNames(t, "a", "c")

	if err := a.kube.CoreV1().Namespaces().Delete(t.Context(), widgets.namespace, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the namespace says what is in the way", func() string {
		namespace, err := a.kube.CoreV1().Namespaces().Get(t.Context(), widgets.namespace, metav1.GetOptions{})
		if err != nil {
			t.Fatalf("the namespace went: %v", err)
		}
		for _, condition := range namespace.Status.Conditions {
			if strings.Contains(condition.Message, widgets.namespace+"/b") {
				return ""
			}
		}
		return namespace.Status.String()
	})
	widgets.deleteDefinition(t)
	eventually(t, "the definition says what is in the way", func() string {
		crd, err := a.extensions.ApiextensionsV1().CustomResourceDefinitions().Get(t.Context(), widgets.name, metav1.GetOptions{})
		if err != nil {
			t.Fatalf("the definition went: %v", err)
		}
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
	unsafe := a.request(t, http.MethodDelete, widgets.path("v1")+"/b?ignoreStoreReadErrorWithClusterBreakingPotential=true", "")
	if unsafe.code != http.StatusOK {
		t.Fatalf("deleting it: %s", unsafe)
	}
	widgets.gone(t)
	eventually(t, "the namespace goes", func() string {
		if _, err := a.kube.CoreV1().Namespaces().Get(t.Context(), widgets.namespace, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return "it is still there"
		}
		return ""
	})
}
