// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package crdsync

import (
	"maps"
	"slices"

	apiextensionshelpers "k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

// Short names for signatures.
type (
	definition = apiextensionsv1.CustomResourceDefinition
	hosted     = hostingv1alpha1.HostedResource
	apiService = apiregistrationv1.APIService
)

// route is who answers the main cluster's requests for a group version.
type route int

const (
	// routeMain: the main cluster itself, out of its own etcd.
	routeMain route = iota
	// routeAnnex: this annex.
	routeAnnex
	// routeForeign: somebody else.
	routeForeign
	// routeDataReplaced: this annex, but it published the version when it had other
	// data.
	routeDataReplaced
)

// identity is what tells this annex from others.
type identity struct {
	// publishedBy is the label value of its APIServices.
	publishedBy string
	// store is the UID of its Store "default".
	store string
}

// routeOf says where an APIService of the main cluster leads. Without one the main
// cluster answers for its definitions itself.
func (i identity) routeOf(current *apiService) route {
	switch {
	case current == nil || current.Spec.Service == nil:
		return routeMain
	case current.Labels[hostingv1alpha1.PublishedByLabel] != i.publishedBy:
		return routeForeign
	case current.Annotations[hostingv1alpha1.PublishedStoreAnnotation] != i.store:
		return routeDataReplaced
	default:
		return routeAnnex
	}
}

// observation is what was seen of the objects that the main cluster keeps of a
// resource.
type observation struct {
	// err is why nothing was seen.
	err error
	// object is the name of one, empty if there is none.
	object string
	// appeared: the object came while annex was watching, after there was none.
	appeared bool
	// versions are those whose takeover the watch guards.
	versions []string
}

// watchRequest is an order to see to it that the main cluster keeps no objects of a
// resource, and gets none.
type watchRequest struct {
	name     string
	resource schema.GroupVersionResource
	versions []string
}

// group is everything that matters to an API group, as one pass sees it. Nothing
// in it may be changed.
type group struct {
	name string
	// main and annex are the definitions on either side, by name.
	main, annex map[string]*definition
	// finalizer is what annex puts on the main cluster's definitions.
	finalizer string
	// apiServices are those of the main cluster, by version, and routes where they lead.
	apiServices map[string]*apiService
	routes      map[string]route
	// listed are the plural names of the resources that annex has the main cluster
	// list, by version.
	listed map[string][]string
	// observed are the objects that the main cluster keeps, by definition, as far as
	// somebody looked.
	observed map[string]observation
	// takeovers are those that are cleared, by HostedResource.
	takeovers map[string]hostingv1alpha1.HostedResourceTakeover
	// reported are the present conditions DefinitionSynced, by HostedResource.
	reported map[string]metav1.Condition
	// remaining says which objects keep a definition of annex's from being gone, by
	// definition.
	remaining map[string]string
	// returning: somebody has begun to give the group back.
	returning bool
	// annexHasObjects is whether annex keeps any object of the group; nil if nobody
	// looked. If it is false the group is frozen.
	annexHasObjects *bool
}

// labelled are the names of the main cluster's definitions that annex is to follow.
func (g *group) labelled() []string {
	return g.filterMain(func(crd *definition) bool { return isLabelled(crd) && !isTerminating(crd) })
}

// unlabelled are the names of those that it is not.
func (g *group) unlabelled() []string {
	return g.filterMain(func(crd *definition) bool { return !isLabelled(crd) && !isTerminating(crd) })
}

// terminating are the names of those that are being deleted.
func (g *group) terminating() []string { return g.filterMain(isTerminating) }

func (g *group) filterMain(matches func(*definition) bool) []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(g.main)) {
		if matches(g.main[name]) {
			names = append(names, name)
		}
	}
	return names
}

// followers are the names of annex's definitions that come from the main cluster.
func (g *group) followers() []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(g.annex)) {
		if isFollower(g.annex[name]) {
			names = append(names, name)
		}
	}
	return names
}

// isHosted reports whether the main cluster sends any of the group's requests to
// annex.
func (g *group) isHosted() bool {
	return slices.Contains(slices.Collect(maps.Values(g.routes)), routeAnnex)
}

// servedBy are the versions that a definition of the main cluster serves and whose
// requests go a certain way.
func (g *group) servedBy(name string, by route) []string {
	var versions []string
	for _, version := range g.main[name].Spec.Versions {
		if version.Served && g.routes[version.Name] == by {
			versions = append(versions, version.Name)
		}
	}
	return versions
}

// watchRequestFor is how to look at the main cluster's objects of a resource through one of
// the versions that the main cluster answers for. The version that objects are
// stored in is best, since that converts none.
func (g *group) watchRequestFor(name string, versions []string) watchRequest {
	crd := g.main[name]
	through := versions[0]
	for _, version := range crd.Spec.Versions {
		if version.Storage && slices.Contains(versions, version.Name) {
			through = version.Name
		}
	}
	resource := schema.GroupVersionResource{Group: g.name, Version: through, Resource: crd.Spec.Names.Plural}
	return watchRequest{name: name, resource: resource, versions: versions}
}

func isLabelled(crd *definition) bool { return crd.Labels[hostingv1alpha1.HostedLabel] == "true" }

// isCleared reports whether annex's definition may be published as it is now, although
// the main cluster has one too.
func (g *group) isCleared(name string) bool {
	of, cleared := g.takeovers[name]
	return cleared && g.annex[name] != nil && of == takeoverOf(g.annex[name])
}

// takeoverOf clears a definition of annex's.
func takeoverOf(crd *definition) hostingv1alpha1.HostedResourceTakeover {
	return hostingv1alpha1.HostedResourceTakeover{DefinitionUID: crd.UID, DefinitionGeneration: crd.Generation}
}

// hasFinalizer reports whether a definition of the main cluster has annex's finalizer.
func (g *group) hasFinalizer(crd *definition) bool {
	return slices.Contains(crd.Finalizers, g.finalizer)
}

// follows reports whether a definition of annex's follows this one of the main cluster,
// and not another of its name.
func follows(follower, main *definition) bool {
	return follower != nil && isFollower(follower) && follower.Annotations[hostingv1alpha1.DefinitionUIDAnnotation] == string(main.UID)
}

func isTerminating(crd *definition) bool { return !crd.DeletionTimestamp.IsZero() }

func isFollower(crd *definition) bool {
	return crd.Annotations[hostingv1alpha1.DefinitionFromAnnotation] == hostingv1alpha1.DefinitionFromMain
}

func isEstablished(crd *definition) bool {
	return apiextensionshelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established)
}
