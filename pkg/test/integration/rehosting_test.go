// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/etcdcluster"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// TestHostedResourceRecreatedOnAnotherStore deletes a HostedResource and recreates it on
// another Store while objects are written. No acknowledged object may be missing.
func TestHostedResourceRecreatedOnAnotherStore(t *testing.T) {
	t.Parallel()
	a := startAnnex(t)
	one, two := etcdcluster.Start(t, etcdcluster.Config{Members: 1}), etcdcluster.Start(t, etcdcluster.Config{Members: 1})
	a.addStore(t, "one", one)
	a.addStore(t, "two", two)
	hosted := a.HostedResources()
	crd := newCRD(t, anySchema)
	first := &hostingv1alpha1.HostedResource{
		ObjectMeta: metav1.ObjectMeta{Name: crd.Name, Finalizers: []string{"example.com/hold"}},
		Spec:       hostingv1alpha1.HostedResourceSpec{StoreName: "one"},
	}
	expect.Create(t, hosted, first)
	expect.Delete(t, hosted, crd.Name)
	widgets := a.installCRD(t, crd)
	written, stopWriting := widgets.keepWriting(t)
	widgets.waitForHostedResource(t, "is not used", func(hosted *hostingv1alpha1.HostedResource) bool {
		ready := meta.FindStatusCondition(hosted.Status.Conditions, hostingv1alpha1.HostedResourceReady)
		return hosted.Status.DefinitionUID == "" && ready != nil && ready.Reason == "Terminating"
	})

	// The scheduler may recreate it first.
	a.patchStore(t, "one", `{"spec": {"unschedulable": true}}`)
	free := []byte(`{"metadata": {"finalizers": null}}`)
	expect.Patch(t, hosted, crd.Name, string(free))
	second := &hostingv1alpha1.HostedResource{ObjectMeta: metav1.ObjectMeta{Name: crd.Name}, Spec: hostingv1alpha1.HostedResourceSpec{StoreName: "two"}}
	if _, err := hosted.Create(t.Context(), second, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	for range 20 {
		<-written
	}
	acknowledged := sets.New(stopWriting()...)
	if missing := acknowledged.Difference(sets.New(widgets.names(t, "v1", metav1.ListOptions{})...)); missing.Len() > 0 {
		t.Errorf("of %d acknowledged objects, missing: %v", acknowledged.Len(), sets.List(missing))
	}
	if got := widgets.keysOf(t, one.Client(t)); got > 0 {
		t.Errorf("the first Store has %d objects", got)
	}

	// In use it cannot be deleted, whatever its finalizers are.
	expect.Patch(t, hosted, crd.Name, `{"metadata": {"finalizers": ["example.com/hold"]}}`)
	if err := hosted.Delete(t.Context(), crd.Name, metav1.DeleteOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("delete a HostedResource in use: %v", err)
	}
}

// keepWriting creates objects until it is stopped, and returns the names of the
// acknowledged ones. Each name is also sent.
func (r *resource) keepWriting(t *testing.T) (written <-chan string, stop func() []string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	sent, done := make(chan string), make(chan []string)
	go func() {
		var names []string
		defer func() { done <- names }()
		for i := 0; ctx.Err() == nil; i++ {
			name := fmt.Sprintf("w%06d", i)
			if err := r.tryCreate(t, name); err != nil {
				continue
			}
			names = append(names, name)
			select {
			case sent <- name:
			case <-ctx.Done():
			}
		}
	}()
	return sent, func() []string {
		cancel()
		return <-done
	}
}
