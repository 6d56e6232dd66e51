// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package group

import (
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/annex-dev/annex/pkg/aggregated/group/grouptest"
	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/expect"
)

func TestDesired(t *testing.T) {
	t.Parallel()
	main := crd(widgets, labelled, shortName)
	main.UID, main.ResourceVersion = "main", "77"
	main.Labels["team"] = "a"
	main.Annotations = map[string]string{
		apiextensionsv1.KubeAPIApprovedAnnotation:          "https://example.com/1",
		"kubectl.kubernetes.io/last-applied-configuration": "{}",
		hostingv1alpha1.DeletionPolicyAnnotation:           hostingv1alpha1.DeletionPolicyKeep,
	}
	main.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{
		Strategy: apiextensionsv1.WebhookConverter,
		Webhook: &apiextensionsv1.WebhookConversion{
			ConversionReviewVersions: []string{"v1"},
			ClientConfig:             &apiextensionsv1.WebhookClientConfig{Service: &apiextensionsv1.ServiceReference{Namespace: "ns", Name: "converter"}},
		},
	}
	before := main.DeepCopy()
	current := crd(widgets)
	current.UID, current.ResourceVersion = "annex", "5"
	current.Labels = map[string]string{"stale": "x", "annex.dev/own": "y"}
	current.Annotations = map[string]string{"note": "kept", "controller-gen.kubebuilder.io/version": "v0"}

	got := desired(main, current)
	if got.UID != "annex" || got.ResourceVersion != "5" || len(got.Status.Conditions) != len(current.Status.Conditions) {
		t.Errorf("identity and status became those of the main cluster: %+v", got)
	}
	expect.Equal(t, map[string]string{"team": "a", "annex.dev/own": "y"}, got.Labels, "labels")
	expect.Equal(t, map[string]string{
		"note": "kept", apiextensionsv1.KubeAPIApprovedAnnotation: "https://example.com/1", "annex.dev/definition-uid": "main", "annex.dev/definition-from": "main",
	}, got.Annotations, "annotations")
	want := main.Spec.DeepCopy()
	want.Conversion.Webhook.ClientConfig.Service.Port = new(int32(443))
	expect.Equal(t, want, &got.Spec, "spec")
	expect.Equal(t, before, main, "the cached definition was changed")
	if !differs(current, got) || differs(got, desired(main, got)) {
		t.Error("what is as desired differs, or what is not does not")
	}
	if made := desired(main, nil); made.Name != widgets || made.UID != "" || !isFollower(made) || !differs(nil, made) {
		t.Errorf("a new one is %+v", made.ObjectMeta)
	}
}

func TestObstacles(t *testing.T) {
	t.Parallel()
	const notServedMessage = "The definition serves no version, so annex cannot list its objects in the main cluster"
	for name, test := range map[string]struct {
		group       string
		definitions []*Definition
		apiServices []*APIService
		want        []string
	}{
		"none":            {groupName, []*Definition{crd(widgets), crd(gadgets, v2)}, []*APIService{grouptest.Local(groupName, "v1"), grouptest.Local(groupName, "v2")}, nil},
		"annex's group":   {hostingv1alpha1.GroupName, []*Definition{crd(widgets)}, nil, []string{"The group is annex's own"}},
		"another server":  {groupName, []*Definition{crd(widgets), crd(gadgets)}, []*APIService{grouptest.Local(groupName, "v1"), routed(&State{Name: groupName}, "v2", RouteForeign)}, []string{"The main cluster sends requests for v2 to another server: see its APIServices"}},
		"built-in":        {groupName, []*Definition{crd(widgets)}, []*APIService{grouptest.Local(groupName, "v1"), routed(&State{Name: groupName}, "v2", RouteBuiltIn)}, []string{"The main cluster serves example.com/v2 itself, not from a definition"}},
		"one not served":  {groupName, []*Definition{crd(widgets), crd(gadgets, unserved)}, nil, []string{gadgets + ": " + notServedMessage}},
		"none is served":  {groupName, []*Definition{crd(widgets, unserved), crd(gadgets, unserved)}, nil, []string{notServedMessage}},
		"not established": {groupName, []*Definition{crd(widgets, condition(apiextensionsv1.NamesAccepted, apiextensionsv1.ConditionFalse, "taken"), notEstablishedYet)}, nil, []string{"The main cluster does not serve the definition: taken"}},
		"one is deleted":  {groupName, []*Definition{crd(widgets), crd(gadgets, leaving)}, nil, []string{widgets + ": Waiting until the main cluster has deleted other definitions of the group: " + gadgets}},
		"all are deleted": {groupName, []*Definition{crd(gadgets, leaving)}, nil, []string{"The main cluster is deleting the definitions of the group"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			expect.Equal(t, test.want, New(test.group, Identity{}, Objects{Main: test.definitions, APIServices: test.apiServices}).Obstacles())
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
		return func(crd *Definition) {
			crd.Spec.Versions[0].Schema = &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", Properties: properties}}
		}
	}
	structural := schema(map[string]apiextensionsv1.JSONSchemaProps{"spec": {Type: "object"}})
	approved := func(value string) change {
		return func(crd *Definition) { setAnnotation(crd, apiextensionsv1.KubeAPIApprovedAnnotation, value) }
	}
	for name, test := range map[string]struct {
		crd  *Definition
		want string
	}{
		"valid":              {crd(widgets, structural), ""},
		"not structural":     {crd(widgets, schema(map[string]apiextensionsv1.JSONSchemaProps{"spec": {}})), "must not be empty for specified object fields"},
		"unknown fields":     {crd(widgets, structural, func(crd *Definition) { crd.Spec.PreserveUnknownFields = true }), "preserveUnknownFields"},
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
