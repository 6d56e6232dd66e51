// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package footprint finds what annex has written to a main cluster for the groups that it serves, and which
// rights it has there. It does not need annex, so that commands also find what an annex that is gone has left.
package footprint

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

// Footprint lists the objects of a main cluster that annex has written.
type Footprint struct {
	// Hosting is the APIService of annex's own group, or nil.
	Hosting *apiregistrationv1.APIService
	// Groups have something of annex, and are sorted by name.
	Groups []*Group
}

// Group is an API group with something of annex.
type Group struct {
	Name string
	// APIServices send requests for the group to annex.
	APIServices []*apiregistrationv1.APIService
	// Open reports whether the definitions have MainCopyVersion.
	Open bool
	// Frozen, Reserved and Held report whether there is a policy FrozenPolicyName, CopyPolicyName or
	// HoldPolicyName.
	Frozen, Reserved, Held bool
	// Labelled are the names of the definitions with HostedLabel, Finalized of those with annex's
	// finalizer, and Terminating of those with the finalizer that are being deleted.
	Labelled, Finalized, Terminating []string
}

// Served reports whether the main cluster sends requests for the group to annex.
func (g *Group) Served() bool { return len(g.APIServices) > 0 }

// Group returns the group with a name, which may be empty.
func (f *Footprint) Group(name string) *Group {
	for _, g := range f.Groups {
		if g.Name == name {
			return g
		}
	}
	return &Group{Name: name}
}

// Read reads the policies of the main cluster. apiServices are its APIServices, and definitions the metadata of its
// CustomResourceDefinitions.
func Read(ctx context.Context, kube kubernetes.Interface, apiServices []apiregistrationv1.APIService, definitions []metav1.ObjectMeta) (*Footprint, error) {
	f := &Footprint{}
	policies, err := kube.AdmissionregistrationV1().ValidatingAdmissionPolicies().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list the ValidatingAdmissionPolicies of the main cluster: %w", err)
	}
	for i := range apiServices {
		f.addAPIService(&apiServices[i])
	}
	for i := range policies.Items {
		f.addPolicy(policies.Items[i].Name)
	}
	for i := range definitions {
		f.addDefinition(&definitions[i])
	}
	slices.SortFunc(f.Groups, func(a, b *Group) int { return cmp.Compare(a.Name, b.Name) })
	return f, nil
}

// of returns a group, and adds it if it is new.
func (f *Footprint) of(name string) *Group {
	g := f.Group(name)
	if !slices.Contains(f.Groups, g) {
		f.Groups = append(f.Groups, g)
	}
	return g
}

func (f *Footprint) addAPIService(of *apiregistrationv1.APIService) {
	_, published := of.Labels[hostingv1alpha1.PublishedByLabel]
	switch {
	case of.Spec.Version == hostingv1alpha1.MainCopyVersion:
		// The main cluster's own, of a version that only annex adds.
		f.of(of.Spec.Group).Open = true
	case !published || of.Spec.Service == nil:
	case of.Spec.Group == hostingv1alpha1.GroupName:
		f.Hosting = of
	default:
		g := f.of(of.Spec.Group)
		g.APIServices = append(g.APIServices, of)
	}
}

func (f *Footprint) addPolicy(name string) {
	if group, is := strings.CutPrefix(name, hostingv1alpha1.FrozenPolicyName("")); is {
		f.of(group).Frozen = true
	} else if group, is := strings.CutPrefix(name, hostingv1alpha1.CopyPolicyName("")); is {
		f.of(group).Reserved = true
	} else if group, is := strings.CutPrefix(name, hostingv1alpha1.HoldPolicyName("")); is {
		f.of(group).Held = true
	}
}

func (f *Footprint) addDefinition(definition *metav1.ObjectMeta) {
	_, labelled := definition.Labels[hostingv1alpha1.HostedLabel]
	finalized := slices.ContainsFunc(definition.Finalizers, func(name string) bool { return strings.HasPrefix(name, hostingv1alpha1.FinalizerPrefix) })
	if !labelled && !finalized {
		return
	}
	// The name of a definition is "<plural>.<group>".
	_, group, _ := strings.Cut(definition.Name, ".")
	g := f.of(group)
	if labelled {
		g.Labelled = append(g.Labelled, definition.Name)
	}
	if finalized {
		g.Finalized = append(g.Finalized, definition.Name)
	}
	if finalized && definition.DeletionTimestamp != nil {
		g.Terminating = append(g.Terminating, definition.Name)
	}
}
