// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package crdsync

import (
	"maps"
	"slices"

	apiextensionshelpers "k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

// Short names for signatures.
type (
	definition        = apiextensionsv1.CustomResourceDefinition
	definitionVersion = apiextensionsv1.CustomResourceDefinitionVersion
	hosted            = hostingv1alpha1.HostedResource
	apiService        = apiregistrationv1.APIService
)

// route is the server of the main cluster's requests for a group version.
type route int

const (
	// routeMain is the main cluster itself.
	routeMain route = iota
	// routeAnnex is this annex.
	routeAnnex
	// routeForeign is another server.
	routeForeign
	// routeDataReplaced is this annex, which published the version when it had other
	// data.
	routeDataReplaced
)

// identity distinguishes this annex from others.
type identity struct {
	// publishedBy is the label value of its APIServices.
	publishedBy string
	// store is the UID of its Store "default".
	store string
}

// routeOf returns the route that an APIService of the main cluster sets. Without one the
// main cluster serves its definitions itself.
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

// observation reports an object of a resource that the main cluster stores.
type observation struct {
	// err is the error of an observation that failed.
	err error
	// object is the name of one object, empty if there is none.
	object string
}

// group holds the objects of an API group for one reconcile. They must not be changed.
type group struct {
	name string
	// main and annex are the definitions of both clusters, by name.
	main, annex map[string]*definition
	// finalizer is annex's, on definitions of the main cluster.
	finalizer string
	// apiServices are those of the main cluster, by version, and routes their routes.
	apiServices map[string]*apiService
	routes      map[string]route
	// listed are the plural names of the resources that annex lists on its APIServices,
	// by version.
	listed map[string][]string
	// observed are the observations of the main cluster's objects, by definition. Nil if they were not
	// needed yet.
	observed map[string]observation
	// takeovers are the cleared takeovers, by HostedResource.
	takeovers map[string]hostingv1alpha1.HostedResourceTakeover
	// migration is the unfinished Migration of the group, preferably the one that has begun, or nil.
	migration *hostingv1alpha1.Migration
	// ordered is the Migration that annex created because of the labels, or nil.
	ordered *hostingv1alpha1.Migration
	// remaining describes the objects that an annex definition's deletion waits for, by
	// definition.
	remaining map[string]string
}

// labelled returns the definitions of the main cluster that annex follows.
func (g *group) labelled() []string {
	return g.filterMain(func(crd *definition) bool { return isLabelled(crd) && !isTerminating(crd) })
}

// unlabelled returns those that it does not follow.
func (g *group) unlabelled() []string {
	return g.filterMain(func(crd *definition) bool { return !isLabelled(crd) && !isTerminating(crd) })
}

// terminating returns those that are being deleted.
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

// followers returns annex's definitions that come from the main cluster.
func (g *group) followers() []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(g.annex)) {
		if isFollower(g.annex[name]) {
			names = append(names, name)
		}
	}
	return names
}

// isHosted reports whether annex serves the group, or has to: routes may have been lost. A takeover that is
// recorded took place, because a Migration that is undone waits until it is withdrawn.
func (g *group) isHosted() bool {
	for name, of := range g.takeovers {
		if crd := g.annex[name]; crd != nil && crd.UID == of.DefinitionUID {
			return true
		}
	}
	return g.isRouted()
}

// isRouted reports whether the main cluster sends requests for any of the group's versions to annex.
func (g *group) isRouted() bool { return len(g.routedTo(routeAnnex)) > 0 }

// servedBy returns the served versions of a main cluster's definition that have a route.
func (g *group) servedBy(name string, by route) []string {
	var versions []string
	for _, version := range g.main[name].Spec.Versions {
		if version.Served && g.routes[version.Name] == by {
			versions = append(versions, version.Name)
		}
	}
	return versions
}

// readable returns a definition's resource in a version that the main cluster serves. The storage version is
// best: it needs no conversion.
func (g *group) readable(name string) schema.GroupVersionResource {
	crd, versions := g.main[name], g.servedBy(name, routeMain)
	through := versions[0]
	for _, version := range crd.Spec.Versions {
		if version.Storage && slices.Contains(versions, version.Name) {
			through = version.Name
		}
	}
	return schema.GroupVersionResource{Group: g.name, Version: through, Resource: crd.Spec.Names.Plural}
}

func isLabelled(crd *definition) bool { return crd.Labels[hostingv1alpha1.HostedLabel] == "true" }

// isCleared reports whether annex's definition may be published in its present state,
// although the main cluster has one too.
func (g *group) isCleared(name string) bool {
	of, cleared := g.takeovers[name]
	return cleared && g.annex[name] != nil && of == takeoverOf(g.annex[name])
}

// takeoverOf is the takeover that clears a definition of annex.
func takeoverOf(crd *definition) hostingv1alpha1.HostedResourceTakeover {
	return hostingv1alpha1.HostedResourceTakeover{DefinitionUID: crd.UID, DefinitionGeneration: crd.Generation}
}

// hasFinalizer reports whether a definition of the main cluster has annex's finalizer.
func (g *group) hasFinalizer(crd *definition) bool {
	return slices.Contains(crd.Finalizers, g.finalizer)
}

// follows reports whether annex's definition follows exactly this one of the main
// cluster.
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
