// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package injection

import (
	"errors"
	"testing"

	crdlisters "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/expect"
)

var jobs = schema.GroupResource{Group: "example.com", Resource: "jobs"}

// newSource has profiles, and a definition of jobs.
func newSource(t *testing.T, profiles ...*v1alpha1.InjectionProfile) (*Source, cache.Indexer) {
	t.Helper()
	s := &Source{Profiles: cache.NewIndexer(cache.MetaNamespaceKeyFunc, Indexers())}
	for _, profile := range profiles {
		expect.NoError(t, s.Profiles.Add(profile))
	}
	definitions := cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)
	expect.NoError(t, definitions.Add(newCRD(t, `{template: {type: object, properties: {spec: `+anything+`}}}`)))
	s.Definitions = crdlisters.NewCustomResourceDefinitionLister(definitions)
	s.Outlines = s.Definitions
	return s, definitions
}

func named(name string, change func(*v1alpha1.InjectionProfileSpec)) *v1alpha1.InjectionProfile {
	profile := newProfile(podTemplate)
	profile.Name, profile.Spec.Mode = name, v1alpha1.InjectionOptOut
	change(&profile.Spec)
	return profile
}

func TestFind(t *testing.T) {
	t.Parallel()
	same := func(*v1alpha1.InjectionProfileSpec) {}
	priority := func(value int32) func(*v1alpha1.InjectionProfileSpec) {
		return func(spec *v1alpha1.InjectionProfileSpec) { spec.Priority = value }
	}
	optIn := func(spec *v1alpha1.InjectionProfileSpec) { spec.Mode = v1alpha1.InjectionOptIn }
	ofTeam := func(spec *v1alpha1.InjectionProfileSpec) {
		spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}
	}
	ofApp := func(spec *v1alpha1.InjectionProfileSpec) {
		spec.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}}
	}
	elsewhere := func(spec *v1alpha1.InjectionProfileSpec) {
		spec.Priority, spec.Targets[0].Templates = 9, []v1alpha1.InjectionTemplate{{Path: "spec.other", Type: v1alpha1.InjectionPodTemplate}}
	}
	failing := func() (map[string]string, error) { return nil, errors.New("unavailable") }
	team := func() (map[string]string, error) { return map[string]string{"team": "a"}, nil }
	for name, test := range map[string]struct {
		profiles []*v1alpha1.InjectionProfile
		object   Object
		// want is the profile, misfit a part of the reason against it, err of an error.
		want, misfit, err string
	}{
		"none":                           {},
		"another resource":               {profiles: []*v1alpha1.InjectionProfile{named("a", func(s *v1alpha1.InjectionProfileSpec) { s.Targets[0].Resource = "other.example.com" })}},
		"by name":                        {profiles: []*v1alpha1.InjectionProfile{named("b", same), named("a", same)}, want: "a"},
		"by priority":                    {profiles: []*v1alpha1.InjectionProfile{named("a", same), named("b", priority(2)), named("c", priority(-1))}, want: "b"},
		"selected by labels":             {profiles: []*v1alpha1.InjectionProfile{named("a", ofApp)}, object: Object{Labels: map[string]string{"app": "a"}}, want: "a"},
		"not selected by labels":         {profiles: []*v1alpha1.InjectionProfile{named("a", ofApp), named("b", same)}, want: "b"},
		"selected by namespace":          {profiles: []*v1alpha1.InjectionProfile{named("a", ofTeam)}, object: Object{Namespace: "n", NamespaceLabels: team}, want: "a"},
		"cluster-scoped":                 {profiles: []*v1alpha1.InjectionProfile{named("a", ofTeam)}, want: "a"},
		"unknown namespace":              {profiles: []*v1alpha1.InjectionProfile{named("a", ofTeam)}, object: Object{Namespace: "n", NamespaceLabels: failing}, err: "read the labels of namespace n: unavailable"},
		"opted out":                      {profiles: []*v1alpha1.InjectionProfile{named("a", same)}, object: Object{Annotations: map[string]string{v1alpha1.InjectAnnotation: "false"}}},
		"not opted in":                   {profiles: []*v1alpha1.InjectionProfile{named("a", optIn)}},
		"opted in":                       {profiles: []*v1alpha1.InjectionProfile{named("a", optIn)}, object: Object{Annotations: map[string]string{v1alpha1.InjectAnnotation: "true"}}, want: "a"},
		"opted in, not selected":         {profiles: []*v1alpha1.InjectionProfile{named("a", ofApp)}, object: Object{Annotations: map[string]string{v1alpha1.InjectAnnotation: "true"}}},
		"bad annotation":                 {profiles: []*v1alpha1.InjectionProfile{named("a", same)}, object: Object{Annotations: map[string]string{v1alpha1.InjectAnnotation: "yes"}}, err: "metadata.annotations[annex.dev/inject]: Unsupported value"},
		"does not fit":                   {profiles: []*v1alpha1.InjectionProfile{named("a", elsewhere), named("b", same)}, misfit: `InjectionProfile "a" is not injected: spec.targets[0].templates[0].path`},
		"another one that does not fits": {profiles: []*v1alpha1.InjectionProfile{named("a", elsewhere), named("b", priority(10))}, want: "b"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			source, _ := newSource(t, test.profiles...)
			test.object.Resource = jobs
			got, err := source.Find(test.object)
			expect.ErrorOrNone(t, err, test.err)
			expect.ErrorOrNone(t, got.Misfit, test.misfit)
			found := ""
			if got.Target != nil {
				found = got.Target.Profile
			}
			expect.Equal(t, test.want, found, "profile")
		})
	}
}

// What a Source keeps follows changes of profiles and definitions.
func TestFindFollowsChanges(t *testing.T) {
	t.Parallel()
	source, definitions := newSource(t, named("a", func(*v1alpha1.InjectionProfileSpec) {}))
	find := func() Injection {
		found, err := source.Find(Object{Resource: jobs})
		expect.NoError(t, err)
		return found
	}
	if first := find(); first.Target == nil || find().Target != first.Target {
		t.Error("the profile is not found, or decoded twice")
	}
	before := find().Target.revision
	expect.NoError(t, source.Profiles.Update(named("a", func(spec *v1alpha1.InjectionProfileSpec) { spec.Env = nil })))
	if find().Target.revision == before {
		t.Error("the changed profile has the revision of the previous one")
	}
	changed := newCRD(t, `{}`)
	changed.Generation = 2
	expect.NoError(t, definitions.Update(changed))
	expect.Error(t, find().Misfit, "has no spec.template")
	expect.NoError(t, definitions.Delete(changed))
	if found := find(); found.Target == nil || found.Misfit != nil {
		t.Errorf("without a definition: %v", found)
	}
	expect.NoError(t, source.Profiles.Delete(named("a", func(*v1alpha1.InjectionProfileSpec) {})))
	if found := find(); found.Target != nil || found.Misfit != nil {
		t.Errorf("the deleted profile is found: %v", found)
	}
}

func TestCheckProfile(t *testing.T) {
	t.Parallel()
	source, _ := newSource(t)
	profile := newProfile(podTemplate)
	profile.Spec.Targets = append(profile.Spec.Targets, v1alpha1.InjectionTarget{Resource: "later.example.com", Templates: profile.Spec.Targets[0].Templates})
	errs, undefined, err := CheckProfile(profile, source.Definitions.Get)
	expect.NoError(t, err)
	expect.NoError(t, errs.ToAggregate())
	expect.Equal(t, []string{"later.example.com"}, undefined, "undefined")
}
