// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package group

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	apiregistrationhelper "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

// NotCheckedMessage applies from the write of an APIService to the main cluster's first availability check.
const NotCheckedMessage = "The main cluster has not checked yet whether it reaches annex"

// reasonLocal is the reason for which the main cluster reports APIServices without a Service as available.
const reasonLocal = "Local"

// Gate permits that APIServices are written, depending on whether the main cluster reaches this annex: an
// APIService without a working backend breaks discovery for all clients of the main cluster.
type Gate struct {
	// Proven reports whether the main cluster reaches this annex. If so, APIServices of annex are restored.
	Proven bool
	// Settled reports whether it did so for the settle period once during this leadership.
	Settled bool
	// Why is the reason for which the gate is closed.
	Why Status
}

// Open reports whether APIServices may be created or taken over.
func (g Gate) Open() bool { return g.Proven && g.Settled }

// Operation is the write that an APIService needs.
type Operation int

const (
	// Keep needs no write.
	Keep Operation = iota
	// Create makes an APIService.
	Create
	// TakeOver turns an APIService of the main cluster into one of annex.
	TakeOver
	// Update restores an APIService of annex.
	Update
)

// Version has the write that a group version needs, and its state.
type Version struct {
	Name      string
	Operation Operation
	// APIService is the object to write, or the present one.
	APIService *APIService
	// Status is the state before the write.
	Status Status
	// Ours reports whether requests go to annex already.
	Ours bool
	// Inherited marks a status that applies to all groups.
	Inherited bool
}

func (s *State) planVersions(p *Plan) {
	if s.Name == hostingv1alpha1.GroupName {
		return // PlanHosting does
	}
	versions := map[string]bool{}
	for _, crd := range s.Annex {
		for _, name := range ServedVersions(crd) {
			versions[name] = true
		}
	}
	for _, name := range s.routedTo(RouteDataReplaced) {
		versions[name] = true
	}
	for _, name := range ByMaturity(slices.Collect(maps.Keys(versions))) {
		p.Versions = append(p.Versions, s.version(name))
	}
	for _, name := range s.routedTo(RouteAnnex, RouteReverted) {
		if current := s.APIServices[name]; !versions[name] && !s.isAwaited(name) && !slices.Contains(p.GiveBack, current) {
			p.Remove = append(p.Remove, current)
		}
	}
}

func (s *State) version(name string) Version {
	of := Version{Name: name, APIService: s.APIServices[name]}
	route, inTheWay := s.Route(name), s.NotTakenOver()
	switch {
	case route == RouteDataReplaced && (len(inTheWay) > 0 || !s.IsServed(name)):
		// It is kept: an annex with the data restored needs it, and without it the main cluster might serve the
		// group itself.
		of.Status = no(ReasonDataReplaced, "APIService %s was published by an annex whose store %q had the UID %q, and this one does not serve it: check --data-dir and --etcd-servers of annex, or restore that data. docs/publishing.md describes how to start without it",
			of.APIService.Name, hostingv1alpha1.DefaultStoreName, of.APIService.Annotations[hostingv1alpha1.PublishedStoreAnnotation])
		return of
	case route == RouteDataReplaced || route == RouteAnnex:
		of.Status, of.Ours = availability(of.APIService), true
		if wanted := s.desiredVersion(name); s.Gate.Proven && !s.isWithheld() && apiServiceDiffers(of.APIService, wanted) {
			of.Operation, of.APIService = Update, wanted
		}
		return of
	}
	if why := s.blocked(name, inTheWay); why != nil {
		of.Status = *why
		return of
	}
	if !s.isReady(name) {
		of.Status = no(ReasonNotServed, "No CustomResourceDefinition of %s is established in annex yet", s.GroupVersion(name))
		return of
	}
	if !s.Gate.Open() {
		of.Status, of.Inherited = s.Gate.Why, true
		return of
	}
	of.Operation = Create
	if of.APIService != nil {
		of.Operation = TakeOver
	}
	of.APIService, of.Status = s.desiredVersion(name), no(ReasonUnavailable, NotCheckedMessage)
	return of
}

// isReady reports whether annex serves a version, and its definition is not being deleted.
func (s *State) isReady(version string) bool {
	return slices.ContainsFunc(serving(s.Annex, version), func(name string) bool { return !isTerminating(s.Annex[name]) && isEstablished(s.Annex[name]) })
}

// blocked returns the state of the main cluster that forbids publishing a version, or nil.
func (s *State) blocked(name string, inTheWay []string) *Status {
	version := s.GroupVersion(name)
	others := ByMaturity(s.routedTo(RouteForeign, RouteBuiltIn))
	var why Status
	switch {
	case len(others) > 0 && s.Route(others[0]) == RouteForeign:
		why = no(ReasonForeignAPIService, "%s", s.foreignMessage(s.APIServices[others[0]]))
	case len(others) > 0:
		why = no(ReasonGroupInMain, "The main cluster serves %s/%s itself, not from a CustomResourceDefinition that annex could take over", s.Name, others[0])
	case len(inTheWay) > 0:
		why = no(ReasonGroupInMain, "%s", s.notTakenOverMessage(inTheWay))
	case s.isWithheld():
		why = no(ReasonGroupInMain, "The Migration %q moves the group", s.Migration.Name)
	case s.Route(name) == RouteMain && len(serving(s.Main, name)) == 0:
		// kube-apiserver deletes it if its definition was just deleted.
		why = no(ReasonGroupInMain, "The main cluster still has the local APIService %s, whose CustomResourceDefinition is gone", APIServiceName(version))
	default:
		return nil
	}
	return &why
}

// notTakenOverMessage lists the definitions, and how to label those without a label if the condition
// DefinitionSynced does not say what to do: a Migration may be labelling them.
func (s *State) notTakenOverMessage(inTheWay []string) string {
	unlabelled := slices.DeleteFunc(slices.Clone(inTheWay), func(name string) bool { return isLabelled(s.Main[name]) })
	message := fmt.Sprintf("The main cluster serves %s from CustomResourceDefinitions of its own that annex has not taken over: %s",
		s.Name, strings.Join(inTheWay, ", "))
	for _, resource := range s.Hosted {
		if SyncedOf(resource) != nil {
			return message + ". See the condition " + hostingv1alpha1.HostedResourceDefinitionSynced
		}
	}
	if len(unlabelled) == 0 {
		return message
	}
	return message + ". Let annex take them over: " + hostingv1alpha1.LabelCommand(unlabelled)
}

// foreignMessage names the owner of an APIService, and how to hand it over to annex.
func (i Identity) foreignMessage(current *APIService) string {
	to := current.Spec.Service
	message := fmt.Sprintf("APIService %s in the main cluster sends requests to Service %s/%s", current.Name, to.Namespace, to.Name)
	if by := current.Labels[hostingv1alpha1.PublishedByLabel]; by != "" {
		return fmt.Sprintf("%s and belongs to the annex that publishes as %q", message, by)
	}
	if to.Namespace == i.Service.Namespace && to.Name == i.Service.Name {
		return fmt.Sprintf("%s, but annex did not make it: hand it over with kubectl label apiservice %s %s=%s",
			message, current.Name, hostingv1alpha1.PublishedByLabel, i.PublishedBy)
	}
	return message + ", not to annex"
}

// PlanHosting plans annex's own group, whose APIService comes first. It has no preconditions.
func (s *State) PlanHosting() Version {
	version := hostingv1alpha1.SchemeGroupVersion
	current := s.APIServices[version.Version]
	of := Version{Name: version.Version, APIService: current}
	wanted := s.desired(version, current)
	switch s.Route(version.Version) {
	case RouteNone:
		of.Operation, of.APIService, of.Status = Create, wanted, no(ReasonUnavailable, NotCheckedMessage)
	case RouteAnnex, RouteReverted, RouteDataReplaced:
		of.Status, of.Ours = availability(current), true
		if apiServiceDiffers(current, wanted) {
			of.Operation, of.APIService = Update, wanted
		}
	case RouteForeign:
		of.Status = no(ReasonForeignAPIService, "%s", s.foreignMessage(current))
	default:
		of.Status = no(ReasonGroupInMain, "The main cluster serves %s itself, so annex cannot be reached through it: is there a CustomResourceDefinition of that group?", version)
	}
	return of
}

// availability is the main cluster's condition Available of an APIService of annex.
func availability(current *APIService) Status {
	available := apiregistrationhelper.GetAPIServiceConditionByType(current, apiregistrationv1.Available)
	switch {
	case available == nil || current.Spec.Service == nil || available.Reason == reasonLocal:
		// APIServices that have no Service, or had none until now, are reported as available without a check.
		return no(ReasonUnavailable, NotCheckedMessage)
	case available.Status == apiregistrationv1.ConditionTrue:
		return Status{Status: metav1.ConditionTrue, Reason: ReasonPublished, Message: "The main cluster sends requests to annex"}
	default:
		return no(ReasonUnavailable, "The main cluster does not reach annex: %s: %s", available.Reason, available.Message)
	}
}

// IsUnavailable reports whether the main cluster's check of an APIService failed.
func IsUnavailable(current *APIService) bool {
	available := apiregistrationhelper.GetAPIServiceConditionByType(current, apiregistrationv1.Available)
	return available != nil && available.Status == apiregistrationv1.ConditionFalse
}

// Published returns the condition Published of a HostedResource, given the statuses of versions. It is true if
// all that its definition serves are published. Otherwise it has the reason of the first that is not.
func (s *State) Published(name string, statuses map[string]Status) Status {
	var versions []string
	if crd := s.Annex[name]; crd != nil {
		versions = ByMaturity(ServedVersions(crd))
	}
	if len(versions) == 0 {
		return no(ReasonNotServed, "annex has no CustomResourceDefinition %q that serves a version", name)
	}
	for _, version := range versions {
		if of := statuses[version]; !of.IsTrue() {
			of.Status, of.Message = metav1.ConditionFalse, version+": "+of.Message
			return of
		}
	}
	return Status{Status: metav1.ConditionTrue, Reason: ReasonPublished, Message: "The main cluster sends requests to annex: " + strings.Join(versions, ", ")}
}
