// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package serving

import (
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	apiregistrationhelper "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/annextest"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// TestRegistration shares one annex among all tests that do not stop it.
func TestRegistration(t *testing.T) {
	annex := annextest.Start(t, mainCluster)
	t.Run("order", func(t *testing.T) { testOrder(t, annex) })
	t.Run("while it runs", func(t *testing.T) {
		for name, test := range map[string]func(*testing.T, *annextest.Annex){
			"served through the main cluster": testServed,
			"foreign APIService":              testForeign,
			"built in":                        testBuiltIn,
			"defined in the main cluster":     testDefinedInMain,
			"two annexes":                     testTwoAnnexes,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t, annex)
			})
		}
	})
	// After the tests that compare the APIServices it edits.
	t.Run("edited", func(t *testing.T) { testEdited(t, annex) })
	t.Run("stopped", func(t *testing.T) { testStopped(t, annex) })
}

// testOrder: annex's own group is available for a while before another group is published, even
// if its CRD is created at once.
func testOrder(t *testing.T, annex *annextest.Annex) {
	const group = "order.example.com"
	define(t, annex.AnnexConfig, newDefinition(group, "v1"))
	waitPublished(t, annex.AnnexConfig, "widgets."+group, metav1.ConditionFalse, "WaitingForAnnex")
	expect.NoError(t, annex.WaitPublished(t.Context(), group, "v1"))
	hosting := apiregistrationhelper.GetAPIServiceConditionByType(getAPIService(t, hostingName), apiregistrationv1.Available)
	// Both times are truncated to seconds.
	if first, then := hosting.LastTransitionTime, getAPIService(t, "v1."+group).CreationTimestamp; then.Sub(first.Time) < 4*time.Second {
		t.Errorf("hosting.annex.dev is available since %s, and %s was already published at %s", first, group, then)
	}
	waitPublished(t, annex.AnnexConfig, "widgets."+group, metav1.ConditionTrue, "Published", "v1")
}

// testServed: a CRD of annex's own endpoint is served through the main cluster, its objects are
// stored only in annex, and it is unpublished when it is deleted.
func testServed(t *testing.T, annex *annextest.Annex) {
	const group = "served.example.com"
	define(t, annex.AnnexConfig, newDefinition(group, "v2", "v1beta1"))
	for _, version := range []string{"v2", "v1beta1"} {
		expect.NoError(t, annex.WaitPublished(t.Context(), group, version))
	}
	waitPublished(t, annex.AnnexConfig, "widgets."+group, metav1.ConditionTrue, "Published", "v2, v1beta1")
	through := widgets(t, mainCluster.Config, group, "v2")
	made, err := through.Create(t.Context(), newWidget(group, "v2", "a"), metav1.CreateOptions{})
	expect.NoError(t, err)
	direct, err := widgets(t, annex.AnnexConfig, group, "v1beta1").Get(t.Context(), "a", metav1.GetOptions{})
	if err != nil || direct.GetUID() != made.GetUID() {
		t.Errorf("annex has %v (%v), made through the main cluster was %v", direct, err, made)
	}
	if keys, err := mainCluster.EtcdKeys(t.Context(), "/registry/"+group); err != nil || len(keys) > 0 {
		t.Errorf("the main cluster's etcd has %v (%v)", keys, err)
	}
	service := getAPIService(t, "v2."+group)
	if service.Spec.InsecureSkipTLSVerify || len(service.Spec.CABundle) == 0 || service.Labels["annex.dev/published-by"] != "annex-system.annex" {
		t.Errorf("published as %+v", service)
	}

	expect.Delete(t, definitions(t, annex.AnnexConfig), "widgets."+group)
	for _, name := range []string{"v2." + group, "v1beta1." + group} {
		expect.Gone(t, apiServices(t), name)
	}
	poll.UntilDone(t, "the main cluster no longer serves the resource", func() (bool, string) {
		_, err := through.List(t.Context(), metav1.ListOptions{})
		return apierrors.IsNotFound(err), fmt.Sprint(err)
	})
}

// testEdited: annex corrects APIServices that were edited or deleted.
func testEdited(t *testing.T, annex *annextest.Annex) {
	const group = "right.example.com"
	define(t, annex.AnnexConfig, newDefinition(group, "v1"))
	expect.NoError(t, annex.WaitPublished(t.Context(), group, "v1"))
	for _, name := range []string{"v1." + group, hostingName} {
		right := getAPIService(t, name)
		delete(right.Annotations, hostingv1alpha1.RecheckAnnotation) // annex triggers probes of the main cluster
		for what, edit := range map[string]func(*apiregistrationv1.APIService){
			"wrong port":      func(s *apiregistrationv1.APIService) { s.Spec.Service.Port = new(int32(1)) },
			"wrong service":   func(s *apiregistrationv1.APIService) { s.Spec.Service.Name = "missing" },
			"wrong CA bundle": func(s *apiregistrationv1.APIService) { s.Spec.CABundle = mainCluster.CA() },
			"not verified": func(s *apiregistrationv1.APIService) {
				s.Spec.CABundle, s.Spec.InsecureSkipTLSVerify = nil, true
			},
			"local": func(s *apiregistrationv1.APIService) { s.Spec.CABundle, s.Spec.Service = nil, nil },
		} {
			edited := getAPIService(t, name)
			edit(edited)
			if _, err := apiServices(t).Update(t.Context(), edited, metav1.UpdateOptions{}); err != nil {
				// A conflict with a write of the status.
				if !apierrors.IsConflict(err) {
					t.Fatal(err)
				}
			}
			waitCorrected(t, annex, name, what, right)
		}
		expect.Delete(t, apiServices(t), name)
		waitCorrected(t, annex, name, "deleted", right)
	}
	waitPublished(t, annex.AnnexConfig, "widgets."+group, metav1.ConditionTrue, "Published")
}

func waitCorrected(t *testing.T, annex *annextest.Annex, name, what string, right *apiregistrationv1.APIService) {
	t.Helper()
	expect.Eventually(t, apiServices(t), name, name+", "+what, func(found *apiregistrationv1.APIService) bool {
		found.UID, found.CreationTimestamp = right.UID, right.CreationTimestamp
		delete(found.Annotations, hostingv1alpha1.RecheckAnnotation) // annex triggers probes of the main cluster
		now, before := managedContent(t, found), managedContent(t, right)
		return now == before
	})
	version, group, _ := strings.Cut(name, ".")
	expect.NoError(t, annex.WaitPublished(t.Context(), group, version), "%s", what)
}

// testForeign: annex does not change foreign APIServices.
func testForeign(t *testing.T, annex *annextest.Annex) {
	const group = "foreign.example.com"
	foreign := &apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: "v1." + group}}
	foreign.Spec = apiregistrationv1.APIServiceSpec{
		Group: group, Version: "v1", GroupPriorityMinimum: 1000, VersionPriority: 15, CABundle: mainCluster.CA(),
		Service: &apiregistrationv1.ServiceReference{Namespace: "elsewhere", Name: "server"},
	}
	expect.Create(t, apiServices(t), foreign)
	before := managedContent(t, getAPIService(t, foreign.Name))
	define(t, annex.AnnexConfig, newDefinition(group, "v1", "v2"))
	// annex publishes no part of a foreign group.
	waitPublished(t, annex.AnnexConfig, "widgets."+group, metav1.ConditionFalse, "ForeignAPIService", "elsewhere/server")
	if after := managedContent(t, getAPIService(t, foreign.Name)); after != before {
		t.Errorf("it changed from %s to %s", before, after)
	}
	if _, err := apiServices(t).Get(t.Context(), "v2."+group, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("version v2 of the group was published: %v", err)
	}
	expect.Delete(t, apiServices(t), foreign.Name)
	waitPublished(t, annex.AnnexConfig, "widgets."+group, metav1.ConditionTrue, "Published", "v2, v1")
}

// testBuiltIn: annex publishes no compiled-in group of the main cluster.
func testBuiltIn(t *testing.T, annex *annextest.Annex) {
	const group = "networking.k8s.io"
	before := managedContent(t, getAPIService(t, "v1."+group))
	crd := newDefinition(group, "v1", "v2")
	crd.Annotations = map[string]string{"api-approved.kubernetes.io": "unapproved, a test"}
	define(t, annex.AnnexConfig, crd)
	waitPublished(t, annex.AnnexConfig, crd.Name, metav1.ConditionFalse, "GroupInMain", group+"/v1 itself")
	if after := managedContent(t, getAPIService(t, "v1."+group)); after != before {
		t.Errorf("it changed from %s to %s", before, after)
	}
	if _, err := apiServices(t).Get(t.Context(), "v2."+group, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("version v2 of the group was published: %v", err)
	}
}

// testDefinedInMain: annex publishes no group of which the main cluster has CRDs, until they are
// deleted.
func testDefinedInMain(t *testing.T, annex *annextest.Annex) {
	const group = "both.example.com"
	define(t, mainCluster.Config, newDefinition(group, "v1"))
	define(t, annex.AnnexConfig, newDefinition(group, "v1", "v2"))
	waitPublished(t, annex.AnnexConfig, "widgets."+group, metav1.ConditionFalse, "GroupInMain", "kubectl label crd widgets."+group+" annex.dev/hosted=true")
	poll.UntilNoError(t, "the main cluster still serves it", func() error {
		_, err := widgets(t, mainCluster.Config, group, "v1").List(t.Context(), metav1.ListOptions{})
		return err
	})
	if service := getAPIService(t, "v1."+group); service.Spec.Service != nil {
		t.Errorf("requests go to %+v", service.Spec.Service)
	}
	expect.Delete(t, definitions(t, mainCluster.Config), "widgets."+group)
	waitPublished(t, annex.AnnexConfig, "widgets."+group, metav1.ConditionTrue, "Published", "v2, v1")
}
