// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package namespace

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsfake "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/fake"
	apiextensionsinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/annex-dev/annex/pkg/controller/framework/controllertest"
	"github.com/annex-dev/annex/pkg/test/expect"
)

func TestCanGoOn(t *testing.T) {
	t.Parallel()
	active := deleted(0, corev1.FinalizerKubernetes)
	active.DeletionTimestamp = nil
	terminating := deleted(time.Second, corev1.FinalizerKubernetes)
	withStatus := terminating.DeepCopy()
	withStatus.Status.Phase = corev1.NamespaceTerminating
	handedOver := terminating.DeepCopy()
	handedOver.Spec.Finalizers = append(handedOver.Spec.Finalizers, "example.com/hold")
	other := terminating.DeepCopy()
	other.UID = "2"

	for name, tc := range map[string]struct {
		before, after *corev1.Namespace
		want          bool
	}{
		"made":                     {after: active},
		"changed":                  {before: active, after: active},
		"found terminating":        {after: terminating, want: true},
		"deletion requested":       {before: active, after: terminating, want: true},
		"own status written":       {before: terminating, after: withStatus},
		"finalizers changed":       {before: terminating, after: handedOver, want: true},
		"another of the same name": {before: terminating, after: other, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := canGoOn(tc.before, tc.after); got != tc.want {
				t.Errorf("canGoOn = %v, want %v", got, tc.want)
			}
		})
	}
}

// TestController runs the whole controller: what the informers show makes it
// empty and release the one namespace that is being deleted.
func TestController(t *testing.T) {
	t.Parallel()
	active := &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: "stays"},
		Spec:       corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{corev1.FinalizerKubernetes}},
	}
	annex := fake.NewClientset(active, deleted(time.Hour, corev1.FinalizerKubernetes))
	finalized := make(chan string, 10)
	annex.PrependReactor("create", "namespaces", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.GetSubresource() == "finalize" {
			finalized <- action.(clienttesting.CreateAction).GetObject().(*corev1.Namespace).Name
		}
		return false, nil, nil
	})
	// Discovery lists nothing of the custom resource; its definition does.
	server := &apiServer{objects: map[string][]*metav1.PartialObjectMetadata{"widgets": objects(2, nil)}}
	definitions := apiextensionsinformers.NewSharedInformerFactory(apiextensionsfake.NewClientset(widgets(nil)), 0)
	namespaces := informers.NewSharedInformerFactory(annex, 0)

	c, err := New(Config{
		AnnexNamespaces: annex.CoreV1().Namespaces(),
		AnnexMetadata:   server.deleter(t).annexMetadata,
		Discover: func(context.Context) ([]*metav1.APIResourceList, error) {
			return []*metav1.APIResourceList{apiResources("example.com/v1", "gadgets")}, nil
		},
		Namespaces:                namespaces.Core().V1().Namespaces(),
		CustomResourceDefinitions: definitions.Apiextensions().V1().CustomResourceDefinitions(),
	})
	expect.NoError(t, err)
	controllertest.Run(t, c, 2, namespaces, definitions)

	select {
	case name := <-finalized:
		if name != "team" {
			t.Errorf("finalized namespace %s, want team", name)
		}
	case <-time.After(time.Minute):
		t.Fatal("the namespace was not finalized within a minute")
	}
	server.mu.Lock()
	defer server.mu.Unlock()
	if left := server.objects["widgets"]; len(left) > 0 {
		t.Errorf("%d custom resources outlived their namespace", len(left))
	}
}
