// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package crdsync

import (
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// version is the APIService of a version, for definitions unless it is changed.
func version(name string, changes ...func(*apiService)) *apiService {
	made := &apiService{
		ObjectMeta: metav1.ObjectMeta{Name: name + "." + groupName, Labels: map[string]string{automanagedLabel: automanaged}},
		Spec:       apiregistrationv1.APIServiceSpec{Group: groupName, Version: name},
	}
	for _, apply := range changes {
		apply(made)
	}
	return made
}

func withService(a *apiService) { a.Spec.Service = &apiregistrationv1.ServiceReference{Name: "other"} }

func builtIn(a *apiService) { a.Labels[automanagedLabel] = "onstart" }

func TestObstacles(t *testing.T) {
	t.Parallel()
	const notServedMessage = "The definition serves no version, so annex cannot list its objects in the main cluster"
	for name, test := range map[string]struct {
		group       string
		definitions []*definition
		apiServices []*apiService
		want        []string
	}{
		"none":            {groupName, []*definition{crd(widgets), crd(gadgets, v2)}, []*apiService{version("v1"), version("v2")}, nil},
		"annex's group":   {hostingv1alpha1.GroupName, []*definition{crd(widgets)}, nil, []string{"The group is annex's own"}},
		"another server":  {groupName, []*definition{crd(widgets), crd(gadgets)}, []*apiService{version("v1"), version("v2", withService)}, []string{"The main cluster sends requests for v2 to another server: see its APIServices"}},
		"built-in":        {groupName, []*definition{crd(widgets)}, []*apiService{version("v1"), version("v2", builtIn)}, []string{"The main cluster serves example.com/v2 itself, not from a definition"}},
		"one not served":  {groupName, []*definition{crd(widgets), crd(gadgets, unserved)}, nil, []string{gadgets + ": " + notServedMessage}},
		"none is served":  {groupName, []*definition{crd(widgets, unserved), crd(gadgets, unserved)}, nil, []string{notServedMessage}},
		"not established": {groupName, []*definition{crd(widgets, condition(apiextensionsv1.NamesAccepted, apiextensionsv1.ConditionFalse, "taken"), notEstablishedYet)}, nil, []string{"The main cluster does not serve the definition: taken"}},
		"one is deleted":  {groupName, []*definition{crd(widgets), crd(gadgets, leaving)}, nil, []string{widgets + ": Waiting until the main cluster has deleted other definitions of the group: " + gadgets}},
		"all are deleted": {groupName, []*definition{crd(gadgets, leaving)}, nil, []string{"The main cluster is deleting the definitions of the group"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			expect.Equal(t, test.want, Obstacles(test.group, test.definitions, test.apiServices))
			for _, crd := range test.definitions {
				if isLabelled(crd) {
					t.Errorf("%s was changed", crd.Name)
				}
			}
		})
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	schema := func(properties map[string]apiextensionsv1.JSONSchemaProps) change {
		return func(crd *definition) {
			crd.Spec.Versions[0].Schema = &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", Properties: properties}}
		}
	}
	structural := schema(map[string]apiextensionsv1.JSONSchemaProps{"spec": {Type: "object"}})
	approved := func(value string) change {
		return func(crd *definition) { setAnnotation(crd, apiextensionsv1.KubeAPIApprovedAnnotation, value) }
	}
	for name, test := range map[string]struct {
		crd  *definition
		want string
	}{
		"valid":              {crd(widgets, structural), ""},
		"not structural":     {crd(widgets, schema(map[string]apiextensionsv1.JSONSchemaProps{"spec": {}})), "must not be empty for specified object fields"},
		"unknown fields":     {crd(widgets, structural, func(crd *definition) { crd.Spec.PreserveUnknownFields = true }), "preserveUnknownFields"},
		"protected":          {crd("widgets.example.k8s.io", structural), "protected groups must have approval annotation"},
		"protected, allowed": {crd("widgets.example.k8s.io", structural, approved("unapproved, for a test")), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := Validate(t.Context(), test.crd)
			expect.ErrorOrNone(t, err, test.want)
		})
	}
}
