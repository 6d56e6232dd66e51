// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package group decides everything about an API group that concerns who serves it. State holds what the main cluster
// and annex have of the group, and Plan returns what to write: definitions in annex, finalizers, takeovers,
// APIServices, deletions, the Migration that labels order, and the conditions DefinitionSynced and Published.
//
// The main cluster routes requests per group version, so the definitions of a group are handled together. A Migration
// takes a group over; package groupmove runs it. Once all definitions of a group are labelled annex.dev/hosted, and
// the main cluster stores no object of any, the plan orders one. What a Migration needs here depends on its phase:
// definitions in annex, the takeover in the status of their HostedResources, without which no definition of the main
// cluster is hidden by an APIService, or that the main cluster serves the group again.
//
// From then on annex's definition follows the main cluster's, which gets annex's finalizer. As long as annex serves
// the group, a policy freezes it in the main cluster, so that versions and definitions that are added have no objects
// there. When a definition is deleted, annex deletes its own with its objects, and removes the finalizer after the
// main cluster no longer lists the resource. A definition that loses its label or is missing causes no deletion.
//
// APIServices of annex carry its label, and are restored when they are changed or deleted. Others are reported and
// not changed, except the local APIService of a definition whose takeover is recorded. One is deleted only when annex
// no longer serves its version, or a Migration returns it, never because annex stops.
//
// All state is in the objects. Nothing here reads a clock or a client.
package group

import (
	"maps"
	"slices"

	apiextensionshelpers "k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apimachineryversion "k8s.io/apimachinery/pkg/version"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

// Short names for signatures.
type (
	// Definition is a CustomResourceDefinition of either cluster.
	Definition = apiextensionsv1.CustomResourceDefinition
	// APIService is one of the main cluster.
	APIService = apiregistrationv1.APIService
	// HostedResource is one of annex.
	HostedResource = hostingv1alpha1.HostedResource
	// Migration is one of annex.
	Migration = hostingv1alpha1.Migration
)

// State holds the objects of an API group. They must not be changed.
type State struct {
	Name string
	Identity
	// Main and Annex are the definitions of both clusters, by name.
	Main, Annex map[string]*Definition
	// APIServices has the main cluster's, by version.
	APIServices map[string]*APIService
	// Hosted are the HostedResources, by name.
	Hosted map[string]*HostedResource
	// Migration is the unfinished Migration of the group, preferably the one that has begun, or nil.
	Migration *Migration
	// Ordered is the Migration that annex created because of the labels, if it has finished, or nil.
	Ordered *Migration

	// Gate permits that APIServices are written.
	Gate Gate
	// Observed are the observations of the main cluster's objects, by definition. Nil if they were not needed yet.
	Observed map[string]Observation
	// Remaining describes the objects that an annex definition's deletion waits for, by definition.
	Remaining map[string]string
}

// Observation reports an object of a resource that the main cluster stores.
type Observation struct {
	// Err is the error of an observation that failed.
	Err error
	// Object is the name of one object, empty if there is none.
	Object string
}

// Objects are the input of New. Objects of other groups are ignored.
type Objects struct {
	Main, Annex []*Definition
	APIServices []*APIService
	Hosted      []*HostedResource
	Migrations  []*Migration
}

// New returns the State of a group.
func New(name string, identity Identity, all Objects) *State {
	s := &State{
		Name: name, Identity: identity, Main: definitionsOf(name, all.Main), Annex: definitionsOf(name, all.Annex),
		APIServices: map[string]*APIService{}, Hosted: map[string]*HostedResource{},
	}
	for _, current := range all.APIServices {
		if current.Spec.Group == name {
			s.APIServices[current.Spec.Version] = current
		}
	}
	for _, resource := range all.Hosted {
		if schema.ParseGroupResource(resource.Name).Group == name {
			s.Hosted[resource.Name] = resource
		}
	}
	for _, m := range all.Migrations {
		switch {
		case m.Spec.Group != name:
		case !m.Status.Phase.Finished():
			if s.Migration == nil || m.Status.StartTime != nil {
				s.Migration = m
			}
		case m.Name == orderedName(name):
			s.Ordered = m
		}
	}
	return s
}

func definitionsOf(group string, all []*Definition) map[string]*Definition {
	of := map[string]*Definition{}
	for _, crd := range all {
		if crd.Spec.Group == group {
			of[crd.Name] = crd
		}
	}
	return of
}

// Route names the server to which the main cluster sends requests for a group version.
type Route int

const (
	// RouteNone means that there is no APIService. The main cluster serves its definitions.
	RouteNone Route = iota
	// RouteMain means that kube-apiserver keeps the APIService for its definitions.
	RouteMain
	// RouteBuiltIn means that the main cluster serves the version itself, not from definitions.
	RouteBuiltIn
	// RouteAnnex means that requests go to this annex.
	RouteAnnex
	// RouteReverted means that another writer removed the Service from an APIService of annex.
	RouteReverted
	// RouteDataReplaced means that this annex published the version when it had other data.
	RouteDataReplaced
	// RouteForeign means that another server gets the requests.
	RouteForeign
)

// byMain are the routes of versions that the main cluster serves.
var byMain = []Route{RouteNone, RouteMain, RouteBuiltIn, RouteReverted}

// Route returns the route of a version. An APIService that has annex's Service but lacks its
// label is foreign: a user created it, or removed the label.
func (s *State) Route(version string) Route {
	current := s.APIServices[version]
	switch {
	case current == nil:
		return RouteNone
	case s.PublishedBy != "" && current.Labels[hostingv1alpha1.PublishedByLabel] == s.PublishedBy:
		switch {
		case current.Annotations[hostingv1alpha1.PublishedStoreAnnotation] != string(s.Store):
			return RouteDataReplaced
		case current.Spec.Service == nil:
			return RouteReverted
		}
		return RouteAnnex
	case current.Spec.Service != nil:
		return RouteForeign
	case current.Labels[automanagedLabel] == automanaged:
		return RouteMain
	default:
		return RouteBuiltIn
	}
}

func (s *State) routedTo(routes ...Route) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(s.APIServices)), func(version string) bool {
		return !slices.Contains(routes, s.Route(version))
	})
}

// servedBy returns the served versions of a main cluster's definition with one of the routes.
func (s *State) servedBy(name string, routes ...Route) []string {
	return slices.DeleteFunc(ServedVersions(s.Main[name]), func(version string) bool {
		return !slices.Contains(routes, s.Route(version))
	})
}

// IsPublished reports whether an APIService of this annex has its Service, whatever data it was published with.
func (s *State) IsPublished() bool {
	return slices.ContainsFunc(s.routedTo(RouteAnnex, RouteDataReplaced), func(version string) bool {
		return s.APIServices[version].Spec.Service != nil
	})
}

// IsTakenOver reports whether a takeover is recorded. Its routes may be lost.
func (s *State) IsTakenOver() bool { return len(s.recorded()) > 0 }

// recorded returns the HostedResources with a takeover.
func (s *State) recorded() []string {
	return sortedNames(s.Hosted, func(resource *HostedResource) bool { return resource.Status.Takeover != nil })
}

// isHosted reports whether annex serves the group, or has to: routes may have been lost. A takeover that is
// recorded took place, because a Migration that is undone waits until it is withdrawn.
func (s *State) isHosted() bool {
	return s.isRouted() || slices.ContainsFunc(s.recorded(), func(name string) bool {
		crd := s.Annex[name]
		return crd != nil && crd.UID == s.Hosted[name].Status.Takeover.DefinitionUID
	})
}

// isRouted reports whether the main cluster sends requests for any version to annex.
func (s *State) isRouted() bool { return len(s.routedTo(RouteAnnex)) > 0 }

// TakeoverOf is the takeover that permits publishing a definition of annex in its present state.
func TakeoverOf(crd *Definition) hostingv1alpha1.HostedResourceTakeover {
	return hostingv1alpha1.HostedResourceTakeover{DefinitionUID: crd.UID, DefinitionGeneration: crd.Generation}
}

// NewHostedResource returns the HostedResource of a definition that annex may never get, on a Store if it is named.
// The annotation protects it from deletion.
func NewHostedResource(definition, store string) *HostedResource {
	return &HostedResource{
		ObjectMeta: metav1.ObjectMeta{
			Name:        definition,
			Labels:      map[string]string{hostingv1alpha1.AutomanagedLabel: "true"},
			Annotations: map[string]string{hostingv1alpha1.DefinitionFromAnnotation: hostingv1alpha1.DefinitionFromMain},
		},
		Spec: hostingv1alpha1.HostedResourceSpec{StoreName: store},
	}
}

// isRecorded reports whether the takeover of annex's definition in its present state is recorded.
func (s *State) isRecorded(name string) bool {
	crd, resource := s.Annex[name], s.Hosted[name]
	return crd != nil && resource != nil && resource.Status.Takeover != nil && *resource.Status.Takeover == TakeoverOf(crd)
}

// mayHide reports whether an APIService of annex may hide a definition of the main cluster: it is
// labelled, annex follows it, and a takeover of annex's present definition, which hides no objects, is recorded.
// Annotations prove nothing, since authors of definitions can write them; only annex writes the status of a
// HostedResource.
func (s *State) mayHide(name string) bool {
	return !s.isWithheld() && isLabelled(s.Main[name]) && s.isRecorded(name) && isFollower(s.Annex[name])
}

// NotTakenOver returns the definitions of the main cluster that forbid publishing the group, which is taken over as a
// whole.
func (s *State) NotTakenOver() []string {
	return sortedNames(s.Main, func(crd *Definition) bool { return len(ServedVersions(crd)) > 0 && !s.mayHide(crd.Name) })
}

// labelled returns the definitions of the main cluster that annex follows.
func (s *State) labelled() []string {
	return sortedNames(s.Main, func(crd *Definition) bool { return isLabelled(crd) && !isTerminating(crd) })
}

// unlabelled returns those that it does not follow.
func (s *State) unlabelled() []string {
	return sortedNames(s.Main, func(crd *Definition) bool { return !isLabelled(crd) && !isTerminating(crd) })
}

// terminating returns those that are being deleted.
func (s *State) terminating() []string { return sortedNames(s.Main, isTerminating) }

// IsServed reports whether annex has a definition that serves a version.
func (s *State) IsServed(version string) bool { return len(serving(s.Annex, version)) > 0 }

// isAwaited reports whether annex is about to serve a version, because a labelled definition of the main cluster
// has it. Without its APIService the main cluster would serve it in the meantime, and store new objects.
func (s *State) isAwaited(version string) bool {
	return slices.ContainsFunc(s.labelled(), func(name string) bool { return apiextensionshelpers.HasServedCRDVersion(s.Main[name], version) })
}

// Readable returns the resources of the definitions that annex follows, each in a version that the main cluster
// serves. The storage version is best: it needs no conversion.
func (s *State) Readable() map[string]schema.GroupVersionResource {
	readable := map[string]schema.GroupVersionResource{}
	for _, name := range s.labelled() {
		crd, through := s.Main[name], ""
		for _, version := range crd.Spec.Versions {
			if version.Served && slices.Contains(byMain, s.Route(version.Name)) && (through == "" || version.Storage) {
				through = version.Name
			}
		}
		readable[name] = schema.GroupVersionResource{Group: s.Name, Version: through, Resource: crd.Spec.Names.Plural}
	}
	return readable
}

func sortedNames[T any](objects map[string]T, matches func(T) bool) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(objects)), func(name string) bool { return !matches(objects[name]) })
}

func serving(definitions map[string]*Definition, version string) []string {
	return sortedNames(definitions, func(crd *Definition) bool { return apiextensionshelpers.HasServedCRDVersion(crd, version) })
}

// ServedVersions returns the names of the versions that a definition serves.
func ServedVersions(crd *Definition) []string {
	var served []string
	for _, version := range crd.Spec.Versions {
		if version.Served {
			served = append(served, version.Name)
		}
	}
	return served
}

// ByMaturity sorts versions as Kubernetes does: v2, v1, v1beta1.
func ByMaturity(versions []string) []string {
	slices.SortFunc(versions, func(a, b string) int { return apimachineryversion.CompareKubeAwareVersionStrings(b, a) })
	return versions
}

func isLabelled(crd *Definition) bool { return crd.Labels[hostingv1alpha1.HostedLabel] == "true" }

func isTerminating(crd *Definition) bool { return !crd.DeletionTimestamp.IsZero() }

func isFollower(crd *Definition) bool {
	return crd.Annotations[hostingv1alpha1.DefinitionFromAnnotation] == hostingv1alpha1.DefinitionFromMain
}

// follows reports whether annex's definition follows exactly this one of the main cluster.
func follows(follower, main *Definition) bool {
	return follower != nil && isFollower(follower) && follower.Annotations[hostingv1alpha1.DefinitionUIDAnnotation] == string(main.UID)
}

func isEstablished(crd *Definition) bool {
	return apiextensionshelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established)
}

func (s *State) hasFinalizer(crd *Definition) bool {
	return slices.Contains(crd.Finalizers, hostingv1alpha1.Finalizer(s.PublishedBy))
}
