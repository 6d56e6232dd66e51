// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/expect"
)

func parts(texts ...string) []runtime.RawExtension {
	var all []runtime.RawExtension
	for _, text := range texts {
		all = append(all, runtime.RawExtension{Raw: []byte(text)})
	}
	return all
}

func injectionProfile() *hostingv1alpha1.InjectionProfile {
	return &hostingv1alpha1.InjectionProfile{
		ObjectMeta: metav1.ObjectMeta{Name: "agent", ResourceVersion: "1"},
		Spec: hostingv1alpha1.InjectionProfileSpec{
			Mode: hostingv1alpha1.InjectionOptOut,
			Targets: []hostingv1alpha1.InjectionTarget{{Resource: "jobs.example.com", Templates: []hostingv1alpha1.InjectionTemplate{
				{Path: "spec.groups[*].template", Type: hostingv1alpha1.InjectionPodTemplate},
			}}},
			Containers:   parts(`{"name":"agent","image":"agent:1","resources":{"limits":{"cpu":"1"}},"ports":[{"containerPort":80}]}`),
			Volumes:      parts(`{"name":"logs","emptyDir":{}}`),
			VolumeMounts: parts(`{"name":"logs","mountPath":"/logs"}`),
			Env:          parts(`{"name":"NODE","valueFrom":{"fieldRef":{"fieldPath":"spec.nodeName"}}}`),
		},
		Status: hostingv1alpha1.InjectionProfileStatus{ObservedGeneration: 1, Conditions: []metav1.Condition{readyCondition}},
	}
}

func TestValidateInjectionProfile(t *testing.T) {
	t.Parallel()
	type spec = hostingv1alpha1.InjectionProfileSpec
	for name, test := range map[string]struct {
		change func(*spec)
		want   []string
	}{
		"valid": {change: func(*spec) {}},
		"nothing": {func(s *spec) { *s = spec{} },
			[]string{"spec.mode: Required value", "spec.targets: Required value", "spec: Required value"}},
		"no templates": {func(s *spec) { s.Targets[0].Templates = nil }, []string{"spec.targets[0].templates: Required value"}},
		"too many templates": {func(s *spec) { s.Targets[0].Templates = make([]hostingv1alpha1.InjectionTemplate, 17) },
			[]string{"spec.targets[0].templates: Too many"}},
		"bad resource": {func(s *spec) { s.Targets[0].Resource = "jobs" }, []string{"spec.targets[0].resource: Invalid value"}},
		"the same resource twice": {func(s *spec) { s.Targets = append(s.Targets, s.Targets[0]) },
			[]string{"spec.targets[1].resource: Duplicate value"}},
		"the same path twice": {func(s *spec) { s.Targets[0].Templates = append(s.Targets[0].Templates, s.Targets[0].Templates[0]) },
			[]string{"spec.targets[0].templates[1].path: Duplicate value"}},
		"no path":  {func(s *spec) { s.Targets[0].Templates[0].Path = "" }, []string{"spec.targets[0].templates[0].path: Required value"}},
		"bad path": {func(s *spec) { s.Targets[0].Templates[0].Path = "spec[0]" }, []string{"spec.targets[0].templates[0].path: Invalid value"}},
		"bad type": {func(s *spec) { s.Targets[0].Templates[0].Type = "Pod" }, []string{"spec.targets[0].templates[0].type: Unsupported value"}},
		"bad mode": {func(s *spec) { s.Mode = "Always" }, []string{"spec.mode: Unsupported value"}},
		"bad selectors": {func(s *spec) {
			s.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a b": "c"}}
			s.ObjectSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "is"}}}
		}, []string{"spec.namespaceSelector.matchLabels: Invalid value", "spec.objectSelector.matchExpressions[0].operator: Invalid value"}},
		"no image":          {func(s *spec) { s.Containers = parts(`{"name":"a"}`) }, []string{"spec.containers[0].image: Required value"}},
		"no name":           {func(s *spec) { s.InitContainers = parts(`{"image":"a"}`) }, []string{"spec.initContainers[0].name: Required value"}},
		"bad name":          {func(s *spec) { s.InitContainers = parts(`{"name":"A","image":"a"}`) }, []string{"spec.initContainers[0].name: Invalid value"}},
		"the same name":     {func(s *spec) { s.InitContainers = parts(`{"name":"agent","image":"a"}`) }, []string{"spec.containers[0].name: Duplicate value"}},
		"unknown field":     {func(s *spec) { s.Containers = parts(`{"name":"a","image":"a","imagee":"b"}`) }, []string{"spec.containers[0]: Invalid value"}},
		"wrong case":        {func(s *spec) { s.Containers = parts(`{"name":"a","Image":"a"}`) }, []string{"spec.containers[0]: Invalid value"}},
		"wrong type":        {func(s *spec) { s.Containers = parts(`{"name":"a","image":1}`) }, []string{"spec.containers[0]: Invalid value"}},
		"bad quantity":      {func(s *spec) { s.Containers = parts(`{"name":"a","image":"a","resources":{"limits":{"cpu":"x"}}}`) }, []string{"spec.containers[0]: Invalid value"}},
		"no object":         {func(s *spec) { s.Containers = parts(`"a"`, `null`, ``) }, []string{"spec.containers[0]: Invalid value", "spec.containers[1]: Invalid value", "spec.containers[2]: Invalid value"}},
		"unknown volume":    {func(s *spec) { s.VolumeMounts = parts(`{"name":"data","mountPath":"/data"}`) }, []string{"spec.volumeMounts[0].name: Unsupported value"}},
		"no mount path":     {func(s *spec) { s.VolumeMounts = parts(`{"name":"logs"}`) }, []string{"spec.volumeMounts[0].mountPath: Required value"}},
		"the same path":     {func(s *spec) { s.VolumeMounts = append(s.VolumeMounts, s.VolumeMounts[0]) }, []string{"spec.volumeMounts[1].mountPath: Duplicate value"}},
		"the same volume":   {func(s *spec) { s.Volumes = append(s.Volumes, s.Volumes[0]) }, []string{"spec.volumes[1].name: Duplicate value"}},
		"the same variable": {func(s *spec) { s.Env = append(s.Env, s.Env[0]) }, []string{"spec.env[1].name: Duplicate value"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			profile := injectionProfile()
			test.change(&profile.Spec)
			expect.FieldErrors(t, ValidateInjectionProfile(profile), test.want...)
			expect.FieldErrors(t, ValidateInjectionProfileUpdate(profile, injectionProfile()), test.want...)
		})
	}
}

func TestValidateInjectionProfileStatusUpdate(t *testing.T) {
	t.Parallel()
	expect.FieldErrors(t, ValidateInjectionProfileStatusUpdate(injectionProfile(), injectionProfile()))
	bad := injectionProfile()
	bad.Status.ObservedGeneration, bad.Status.Conditions[0].Status = -1, "Maybe"
	expect.FieldErrors(t, ValidateInjectionProfileStatusUpdate(bad, injectionProfile()), "status.observedGeneration: Invalid value", "status.conditions[0].status: Unsupported value")
}
