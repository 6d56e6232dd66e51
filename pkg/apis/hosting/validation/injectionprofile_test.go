// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
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
			[]string{at("spec.mode", required), at("spec.targets", required), at("spec", required)}},
		"no templates": {func(s *spec) { s.Targets[0].Templates = nil }, []string{at("spec.targets[0].templates", required)}},
		"too many templates": {func(s *spec) { s.Targets[0].Templates = make([]hostingv1alpha1.InjectionTemplate, 17) },
			[]string{at("spec.targets[0].templates", tooMany)}},
		"bad resource": {func(s *spec) { s.Targets[0].Resource = "jobs" }, []string{at("spec.targets[0].resource", invalid)}},
		"the same resource twice": {func(s *spec) { s.Targets = append(s.Targets, s.Targets[0]) },
			[]string{at("spec.targets[1].resource", duplicate)}},
		"the same path twice": {func(s *spec) { s.Targets[0].Templates = append(s.Targets[0].Templates, s.Targets[0].Templates[0]) },
			[]string{at("spec.targets[0].templates[1].path", duplicate)}},
		"no path":  {func(s *spec) { s.Targets[0].Templates[0].Path = "" }, []string{at("spec.targets[0].templates[0].path", required)}},
		"bad path": {func(s *spec) { s.Targets[0].Templates[0].Path = "spec[0]" }, []string{at("spec.targets[0].templates[0].path", invalid)}},
		"bad type": {func(s *spec) { s.Targets[0].Templates[0].Type = "Pod" }, []string{at("spec.targets[0].templates[0].type", notSupported)}},
		"bad mode": {func(s *spec) { s.Mode = "Always" }, []string{at("spec.mode", notSupported)}},
		"bad selectors": {func(s *spec) {
			s.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a b": "c"}}
			s.ObjectSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "is"}}}
		}, []string{at("spec.namespaceSelector.matchLabels", invalid), at("spec.objectSelector.matchExpressions[0].operator", invalid)}},
		"no image":          {func(s *spec) { s.Containers = parts(`{"name":"a"}`) }, []string{at("spec.containers[0].image", required)}},
		"no name":           {func(s *spec) { s.InitContainers = parts(`{"image":"a"}`) }, []string{at("spec.initContainers[0].name", required)}},
		"bad name":          {func(s *spec) { s.InitContainers = parts(`{"name":"A","image":"a"}`) }, []string{at("spec.initContainers[0].name", invalid)}},
		"the same name":     {func(s *spec) { s.InitContainers = parts(`{"name":"agent","image":"a"}`) }, []string{at("spec.containers[0].name", duplicate)}},
		"unknown field":     {func(s *spec) { s.Containers = parts(`{"name":"a","image":"a","imagee":"b"}`) }, []string{at("spec.containers[0]", invalid)}},
		"wrong case":        {func(s *spec) { s.Containers = parts(`{"name":"a","Image":"a"}`) }, []string{at("spec.containers[0]", invalid)}},
		"wrong type":        {func(s *spec) { s.Containers = parts(`{"name":"a","image":1}`) }, []string{at("spec.containers[0]", invalid)}},
		"bad quantity":      {func(s *spec) { s.Containers = parts(`{"name":"a","image":"a","resources":{"limits":{"cpu":"x"}}}`) }, []string{at("spec.containers[0]", invalid)}},
		"no object":         {func(s *spec) { s.Containers = parts(`"a"`, `null`, ``) }, []string{at("spec.containers[0]", invalid), at("spec.containers[1]", invalid), at("spec.containers[2]", invalid)}},
		"unknown volume":    {func(s *spec) { s.VolumeMounts = parts(`{"name":"data","mountPath":"/data"}`) }, []string{at("spec.volumeMounts[0].name", notSupported)}},
		"no mount path":     {func(s *spec) { s.VolumeMounts = parts(`{"name":"logs"}`) }, []string{at("spec.volumeMounts[0].mountPath", required)}},
		"the same path":     {func(s *spec) { s.VolumeMounts = append(s.VolumeMounts, s.VolumeMounts[0]) }, []string{at("spec.volumeMounts[1].mountPath", duplicate)}},
		"the same volume":   {func(s *spec) { s.Volumes = append(s.Volumes, s.Volumes[0]) }, []string{at("spec.volumes[1].name", duplicate)}},
		"the same variable": {func(s *spec) { s.Env = append(s.Env, s.Env[0]) }, []string{at("spec.env[1].name", duplicate)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			profile := injectionProfile()
			test.change(&profile.Spec)
			expectErrors(t, test.want, ValidateInjectionProfile(profile))
			expectErrors(t, test.want, ValidateInjectionProfileUpdate(profile, injectionProfile()))
		})
	}
}

func TestValidateInjectionProfileStatusUpdate(t *testing.T) {
	t.Parallel()
	expectErrors(t, nil, ValidateInjectionProfileStatusUpdate(injectionProfile(), injectionProfile()))
	bad := injectionProfile()
	bad.Status.ObservedGeneration, bad.Status.Conditions[0].Status = -1, "Maybe"
	expectErrors(t, []string{at("status.observedGeneration", invalid), at("status.conditions[0].status", notSupported)}, ValidateInjectionProfileStatusUpdate(bad, injectionProfile()))
}
