// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package controllers

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// testRetention: retention deletes annex's objects, the main cluster's garbage collector their
// dependents in the main cluster, and an owner remains until dependents that block it are gone.
func testRetention(t *testing.T, s *sharedAnnex) {
	w := widgets{group: s.known, namespace: newNamespace(t)}
	mainClients := main(t)
	for _, name := range []string{"first", "second"} {
		widget := w.object(name)
		widget.SetLabels(map[string]string{"for": "retention"})
		_, err := w.by(mainClients).Create(t.Context(), widget, metav1.CreateOptions{})
		expect.NoError(t, err)
	}
	w.create(t, "other")
	owner, err := w.by(mainClients).Get(t.Context(), "first", metav1.GetOptions{})
	expect.NoError(t, err)
	configMaps := mainClients.Kube.CoreV1().ConfigMaps(w.namespace)
	expect.Create(t, configMaps, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Name: "of-first", Finalizers: []string{"noninterference.example.com/held"},
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: w.group + "/v1", Kind: "Widget", Name: "first", UID: owner.GetUID(), BlockOwnerDeletion: new(true),
		}},
	}})

	// Through the main cluster, as its administrators set it.
	hosted := mainClients.Hosting.HostingV1alpha1().HostedResources()
	const retention = `{"spec": {"retention": {"rules": [{"name": "old", "afterSeconds": 1, "selector": {"matchLabels": {"for": "retention"}}}]}}}`
	expect.Patch(t, hosted, "widgets."+w.group, retention)
	expect.Eventually(t, hosted, "widgets."+w.group, "two objects were deleted", func(h *hostingv1alpha1.HostedResource) bool {
		return h.Status.Retention != nil && h.Status.Retention.Deleted == 2
	})
	expect.Eventually(t, configMaps, "of-first", "the dependent is being deleted", func(dependent *corev1.ConfigMap) bool {
		return dependent.DeletionTimestamp != nil
	})
	names := func() (names []string) {
		list, err := w.by(mainClients).List(t.Context(), metav1.ListOptions{})
		expect.NoError(t, err)
		for _, widget := range list.Items {
			names = append(names, widget.GetName())
		}
		return names
	}
	poll.Until(t, "second is deleted, and first waits for its dependent", func() string {
		if got := fmt.Sprint(names()); got != "[first other]" {
			return got
		}
		return ""
	})
	expect.Patch(t, configMaps, "of-first", `{"metadata": {"finalizers": null}}`)
	poll.Until(t, "first is deleted", func() string {
		if got := fmt.Sprint(names()); got != "[other]" {
			return got
		}
		return ""
	})
	poll.Until(t, "an event in the main cluster", func() string {
		events, err := mainClients.Kube.CoreV1().Events("").List(t.Context(), metav1.ListOptions{FieldSelector: "reason=ObjectsDeleted"})
		if err != nil || len(events.Items) == 0 {
			return fmt.Sprint(len(events.Items), " events, ", err)
		}
		return ""
	})
}
