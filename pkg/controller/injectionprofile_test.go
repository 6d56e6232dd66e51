// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdfake "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/fake"
	crdinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/controller/framework/controllertest"
	annexfake "github.com/annex-dev/annex/pkg/generated/clientset/versioned/fake"
	annexinformers "github.com/annex-dev/annex/pkg/generated/informers/externalversions"
	"github.com/annex-dev/annex/pkg/test/expect"
)

func jobs(generation int64, field string) *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "jobs.example.com", Generation: generation},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
			Name: "v1", Served: true, Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
				Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{field: {Type: "object", XPreserveUnknownFields: new(true)}},
			}},
		}}},
	}
}

// The condition and the events follow the definition of the target.
func TestInjectionProfiles(t *testing.T) {
	t.Parallel()
	profile := &hostingv1alpha1.InjectionProfile{
		ObjectMeta: metav1.ObjectMeta{Name: "agent", Generation: 3},
		Spec: hostingv1alpha1.InjectionProfileSpec{
			Targets:    []hostingv1alpha1.InjectionTarget{{Resource: "jobs.example.com", Templates: []hostingv1alpha1.InjectionTemplate{{Path: "pod", Type: hostingv1alpha1.InjectionPodSpec}}}},
			Containers: []runtime.RawExtension{{Raw: []byte(`{"name":"agent","image":"agent:1"}`)}},
		},
	}
	annex, crds := annexfake.NewClientset(profile), crdfake.NewClientset()
	profiles, definitions := annexinformers.NewSharedInformerFactory(annex, 0), crdinformers.NewSharedInformerFactory(crds, 0)
	recorder := events.NewFakeRecorder(10)
	informer := definitions.Apiextensions().V1().CustomResourceDefinitions()
	controller, err := newInjectionProfiles(Config{
		AnnexHosting:                  annex,
		AnnexInjectionProfileInformer: profiles.Hosting().V1alpha1().InjectionProfiles(),
		AnnexDefinitionInformer:       informer,
		AnnexWholeDefinitions:         informer,
	}, recorder)
	expect.NoError(t, err)
	controllertest.Run(t, controller, 1, profiles, definitions)

	var last string
	becomes := func(status metav1.ConditionStatus, reason, message, kind string) {
		t.Helper()
		expect.Eventually(t, annex.HostingV1alpha1().InjectionProfiles(), "agent", "the reason is "+reason, func(now *hostingv1alpha1.InjectionProfile) bool {
			ready := meta.FindStatusCondition(now.Status.Conditions, hostingv1alpha1.InjectionProfileReady)
			return ready != nil && ready.Status == status && ready.Reason == reason && strings.Contains(ready.Message, message) && now.Status.ObservedGeneration == 3
		})
		event := <-recorder.Events
		for event == last { // the fake client accepts a status from a stale cache
			event = <-recorder.Events
		}
		expect.Contains(t, event, kind+" "+reason)
		last = event
	}
	becomes(metav1.ConditionFalse, reasonUndefined, "jobs.example.com", "Normal")
	expect.Create(t, crds.ApiextensionsV1().CustomResourceDefinitions(), jobs(1, "pod"))
	becomes(metav1.ConditionTrue, reasonFits, "", "Normal")
	_, err = crds.ApiextensionsV1().CustomResourceDefinitions().Update(t.Context(), jobs(2, "pods"), metav1.UpdateOptions{})
	expect.NoError(t, err)
	becomes(metav1.ConditionFalse, reasonDoesNotFit, "spec.targets[0].templates[0].path", "Warning")
	expect.Delete(t, crds.ApiextensionsV1().CustomResourceDefinitions(), "jobs.example.com")
	becomes(metav1.ConditionFalse, reasonUndefined, "jobs.example.com", "Normal")
}
