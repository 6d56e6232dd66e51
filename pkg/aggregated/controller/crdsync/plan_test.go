// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package crdsync

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"

	"github.com/annex-dev/annex/pkg/test/expect"
)

const (
	groupName = "example.com"
	widgets   = "widgets.example.com"
	gadgets   = "gadgets.example.com"
)

// change alters a definition under test.
type change func(*definition)

// crd is an established definition with version v1.
func crd(name string, changes ...change) *definition {
	plural, group, _ := strings.Cut(name, ".")
	kind := strings.ToUpper(plural[:1]) + strings.TrimSuffix(plural[1:], "s")
	made := &definition{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group:    group,
			Names:    apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Kind: kind},
			Scope:    apiextensionsv1.NamespaceScoped,
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true}},
		},
	}
	apiextensionsv1.SetObjectDefaults_CustomResourceDefinition(made)
	condition(apiextensionsv1.Established, apiextensionsv1.ConditionTrue, "")(made)
	for _, apply := range changes {
		apply(made)
	}
	return made
}

func condition(kind apiextensionsv1.CustomResourceDefinitionConditionType, status apiextensionsv1.ConditionStatus, message string) change {
	return func(crd *definition) {
		crd.Status.Conditions = append(slices.DeleteFunc(crd.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
			return c.Type == kind
		}), apiextensionsv1.CustomResourceDefinitionCondition{Type: kind, Status: status, Message: message})
	}
}

// labelled is what annex is asked to follow, and has put its finalizer on.
func labelled(crd *definition) {
	metav1.SetMetaDataLabel(&crd.ObjectMeta, hostingv1alpha1.HostedLabel, "true")
	withFinalizer(crd)
}

func withFinalizer(crd *definition) {
	crd.Finalizers = append(crd.Finalizers, hostingv1alpha1.Finalizer(publishedBy))
}

func withoutFinalizer(crd *definition) { crd.Finalizers = nil }

func leaving(crd *definition) { crd.DeletionTimestamp = ptr.To(metav1.NewTime(time.Unix(1, 0))) }

func notEstablishedYet(crd *definition) {
	condition(apiextensionsv1.Established, apiextensionsv1.ConditionFalse, "")(crd)
}

func follower(crd *definition) {
	setAnnotation(crd, hostingv1alpha1.DefinitionFromAnnotation, hostingv1alpha1.DefinitionFromMain)
}

// clearedInTest marks the definitions whose HostedResources have a takeover.
const clearedInTest = "test/cleared"

func cleared(crd *definition) {
	follower(crd)
	setAnnotation(crd, clearedInTest, "yes")
}

// v2 adds a version.
func v2(crd *definition) {
	crd.Spec.Versions = append(crd.Spec.Versions, apiextensionsv1.CustomResourceDefinitionVersion{Name: "v2", Served: true})
}

func unserved(crd *definition) { crd.Spec.Versions[0].Served = false }

func shortName(crd *definition) { crd.Spec.Names.ShortNames = []string{"new"} }

// byName is what a group holds.
func byName(crds ...*definition) map[string]*definition {
	named := map[string]*definition{}
	for _, crd := range crds {
		named[crd.Name] = crd
	}
	return named
}

func to(routes ...any) map[string]route {
	of := map[string]route{}
	for i := 0; i < len(routes); i += 2 {
		of[routes[i].(string)] = routes[i+1].(route)
	}
	return of
}

// none is a watched resource without objects.
func none(versions ...string) observation { return observation{versions: versions} }

func appeared(versions ...string) observation {
	return observation{object: "ns/late", appeared: true, versions: versions}
}

var found = observation{object: "ns/old", versions: []string{"v1"}}

func forbidden() observation {
	return observation{err: apierrors.NewForbidden(schema.GroupResource{Group: groupName, Resource: "widgets"}, "", errors.New("no"))}
}

// planCase is a group and its plan.
type planCase struct {
	group group
	// requests are "<definition> <watched version>: <covered versions>".
	requests []string
	// statuses are "<name> <status> <reason>".
	statuses []string
	// message is part of every message.
	message string
	// write are "<name> withdrawn", then "<name>" with "+" if it is new, then
	// "<name> cleared".
	write    []string
	giveBack []string
	count    bool
}

// complete sets fields that the definitions of a group imply.
func (g *group) complete() {
	g.name, g.finalizer = groupName, hostingv1alpha1.Finalizer(publishedBy)
	g.apiServices = map[string]*apiService{}
	for version := range g.routes {
		g.apiServices[version] = &apiService{ObjectMeta: metav1.ObjectMeta{Name: version}}
	}
	g.takeovers = map[string]hostingv1alpha1.HostedResourceTakeover{}
	for name, crd := range g.annex {
		if crd.Annotations[clearedInTest] != "" {
			g.takeovers[name] = takeoverOf(crd)
		}
	}
}

// check compares a plan with a case.
func (tc *planCase) check(t *testing.T) {
	t.Helper()
	g := &tc.group
	g.complete()
	var requests []string
	for _, l := range g.watchRequests() {
		requests = append(requests, l.name+" "+l.resource.Version+": "+strings.Join(l.versions, ","))
	}
	expect.Equal(t, tc.requests, requests, "requests")
	p := g.plan()
	var statuses, write []string
	for _, name := range slices.Sorted(maps.Keys(p.statuses)) {
		of := p.statuses[name]
		statuses = append(statuses, name+" "+string(of.status)+" "+of.reason)
		if !strings.Contains(of.message, tc.message) {
			t.Errorf("%s: message %q, want one with %q", name, of.message, tc.message)
		}
	}
	for _, name := range p.withdraw {
		write = append(write, name+" withdrawn")
	}
	for _, crd := range p.write {
		line := crd.Name
		if g.annex[crd.Name] == nil {
			line = "+" + line
		} else if !differs(g.annex[crd.Name], crd) {
			t.Errorf("%s is written although nothing changes", crd.Name)
		}
		write = append(write, line)
	}
	for _, name := range p.clear {
		write = append(write, name+" cleared")
	}
	var giveBack []string
	for _, current := range p.giveBack {
		giveBack = append(giveBack, current.Name)
	}
	expect.Equal(t, tc.statuses, statuses, "statuses")
	expect.Equal(t, tc.write, write, "write")
	expect.Equal(t, tc.giveBack, giveBack, "give back")
	expect.Equal(t, tc.count, p.needsObjectCount, "count")
}

// TestPlanFresh is about groups that the main cluster answers for.
func TestPlanFresh(t *testing.T) {
	t.Parallel()
	watchWidgets := []string{widgets + " v1: v1"}
	watchBoth := []string{gadgets + " v1: v1", widgets + " v1: v1"}
	seesNone := map[string]observation{widgets: none("v1")}
	seesNoneOfBoth := map[string]observation{widgets: none("v1"), gadgets: none("v1")}
	for name, tc := range map[string]planCase{
		"nothing":                 {},
		"nothing labelled":        {group: group{main: byName(crd(widgets))}},
		"nothing to do with main": {group: group{annex: byName(crd(widgets))}},
		"labelled, not observed": {
			group:    group{main: byName(crd(widgets, labelled))},
			requests: watchWidgets, statuses: []string{widgets + " Unknown TakingOver"}, message: "does not know yet",
		},
		"labelled, no objects": {
			group:    group{main: byName(crd(widgets, labelled)), observed: seesNone},
			requests: watchWidgets, write: []string{"+" + widgets}, statuses: []string{widgets + " Unknown TakingOver"}, message: "not yet: " + widgets,
		},
		"labelled with another value": {group: group{main: byName(crd(widgets, func(c *definition) { c.Labels = map[string]string{hostingv1alpha1.HostedLabel: "yes"} }))}},
		"not established in annex yet": {
			group:    group{main: byName(crd(widgets, labelled)), annex: byName(crd(widgets, follower, notEstablishedYet)), observed: seesNone},
			requests: watchWidgets, statuses: []string{widgets + " Unknown TakingOver"}, message: "not yet: " + widgets,
		},
		"established in annex: cleared": {
			group:    group{main: byName(crd(widgets, labelled)), annex: byName(crd(widgets, follower)), observed: seesNone},
			requests: watchWidgets, write: []string{widgets + " cleared"}, statuses: []string{widgets + " Unknown TakingOver"}, message: "sends requests to annex",
		},
		"cleared, not switched yet": {
			group:    group{main: byName(crd(widgets, labelled)), annex: byName(crd(widgets, cleared)), observed: seesNone},
			requests: watchWidgets, statuses: []string{widgets + " Unknown TakingOver"},
		},
		"cleared, but changed meanwhile": {
			group:    group{main: byName(crd(widgets, labelled, shortName)), annex: byName(crd(widgets, cleared)), observed: seesNone},
			requests: watchWidgets, write: []string{widgets + " withdrawn", widgets}, statuses: []string{widgets + " Unknown TakingOver"},
		},
		"one of two established in annex": {
			group:    group{main: byName(crd(widgets, labelled), crd(gadgets, labelled)), annex: byName(crd(widgets, follower)), observed: seesNoneOfBoth},
			requests: watchBoth, write: []string{"+" + gadgets}, statuses: []string{gadgets + " Unknown TakingOver", widgets + " Unknown TakingOver"}, message: "not yet: " + gadgets,
		},
		"both established in annex": {
			group:    group{main: byName(crd(widgets, labelled), crd(gadgets, labelled)), annex: byName(crd(widgets, follower), crd(gadgets, follower)), observed: seesNoneOfBoth},
			requests: watchBoth, write: []string{gadgets + " cleared", widgets + " cleared"}, statuses: []string{gadgets + " Unknown TakingOver", widgets + " Unknown TakingOver"},
		},
		"mixed": {
			group:    group{main: byName(crd(widgets, labelled), crd(gadgets), crd("gizmos.example.com"))},
			statuses: []string{widgets + " False GroupIncomplete"},
			message:  "kubectl label crd gadgets.example.com gizmos.example.com annex.dev/hosted=true",
		},
		"mixed after it was cleared": {
			group: group{main: byName(crd(widgets, labelled), crd(gadgets)), annex: byName(crd(widgets, cleared)), observed: seesNone},
			write: []string{widgets + " withdrawn"}, statuses: []string{widgets + " False GroupIncomplete"},
		},
		"label removed after it was cleared": {
			group: group{main: byName(crd(widgets)), annex: byName(crd(widgets, cleared))},
			write: []string{widgets + " withdrawn"}, statuses: []string{widgets + " False NotLabelled"}, message: "kubectl label crd " + widgets,
		},
		"objects": {
			group:    group{main: byName(crd(widgets, labelled)), observed: map[string]observation{widgets: found}},
			requests: watchWidgets, statuses: []string{widgets + " False ObjectsExist"}, message: `among them "ns/old". annex has changed nothing there. Move the group with its objects: kubectl annex move example.com`,
		},
		"objects of one of two": {
			group:    group{main: byName(crd(widgets, labelled), crd(gadgets, labelled)), observed: map[string]observation{widgets: found, gadgets: none("v1")}},
			requests: watchBoth, statuses: []string{gadgets + " False ObjectsExist", widgets + " False ObjectsExist"}, message: `"ns/old"`,
		},
		"objects after it was cleared": {
			group:    group{main: byName(crd(widgets, labelled)), annex: byName(crd(widgets, cleared)), observed: map[string]observation{widgets: found}},
			requests: watchWidgets, write: []string{widgets + " withdrawn"}, statuses: []string{widgets + " False ObjectsExist"},
		},
		"an object slipped in before the switch": {
			group:    group{main: byName(crd(widgets, labelled)), annex: byName(crd(widgets, cleared)), observed: map[string]observation{widgets: appeared("v1")}},
			requests: watchWidgets, write: []string{widgets + " withdrawn"}, statuses: []string{widgets + " False ObjectsAppeared"}, message: `Delete the object, or move the group with it: kubectl annex move example.com`,
		},
		"an object of one of two slipped in": {
			group:    group{main: byName(crd(widgets, labelled), crd(gadgets, labelled)), observed: map[string]observation{widgets: appeared("v1"), gadgets: none("v1")}},
			requests: watchBoth, statuses: []string{gadgets + " False ObjectsAppeared", widgets + " False ObjectsAppeared"}, message: `"ns/late"`,
		},
		"objects may not be seen": {
			group:    group{main: byName(crd(widgets, labelled), crd(gadgets, labelled)), observed: map[string]observation{widgets: forbidden(), gadgets: forbidden()}},
			requests: watchBoth, statuses: []string{gadgets + " False Forbidden", widgets + " False Forbidden"},
			message: "kubectl create clusterrole annex-hosted-example.com --verb=list,watch --resource=gadgets.example.com,widgets.example.com && kubectl label clusterrole annex-hosted-example.com annex.dev/aggregate-to-annex=true",
		},
		"objects cannot be seen now": {
			group:    group{main: byName(crd(widgets, labelled)), annex: byName(crd(widgets, cleared)), observed: map[string]observation{widgets: {err: errors.New("timeout")}}},
			requests: watchWidgets, write: []string{widgets + " withdrawn"}, statuses: []string{widgets + " Unknown TakingOver"}, message: "timeout",
		},
		"served by main in no version": {
			group:    group{main: byName(crd(widgets, labelled, unserved))},
			statuses: []string{widgets + " False NotServed"},
		},
		"not established in main": {
			group: group{main: byName(crd(widgets, labelled, notEstablishedYet,
				condition(apiextensionsv1.NamesAccepted, apiextensionsv1.ConditionFalse, "name is taken")))},
			statuses: []string{widgets + " False NotEstablished"}, message: "name is taken",
		},
		"one of two not established in main": {
			group:    group{main: byName(crd(widgets, labelled, notEstablishedYet), crd(gadgets, labelled))},
			statuses: []string{gadgets + " False GroupNotReady", widgets + " False NotEstablished"}, message: "does not serve the definition yet",
		},
		"being deleted in main": {group: group{main: byName(crd(widgets, labelled, leaving))}},
		"another being deleted in main": {
			group:    group{main: byName(crd(widgets, labelled), crd(gadgets, leaving))},
			statuses: []string{widgets + " False GroupNotReady"}, message: gadgets,
		},
		"defined in annex by a user": {
			group:    group{main: byName(crd(widgets, labelled), crd(gadgets, labelled)), annex: byName(crd(widgets))},
			statuses: []string{gadgets + " False GroupNotReady", widgets + " False DefinedInAnnex"}, message: "kubectl annotate crd widgets.example.com annex.dev/definition-from=main",
		},
		"another of the group defined in annex": {
			group:    group{main: byName(crd(widgets, labelled)), annex: byName(crd(gadgets)), observed: seesNone},
			requests: watchWidgets, write: []string{"+" + widgets}, statuses: []string{widgets + " Unknown TakingOver"},
		},
		"being deleted in annex": {
			group:    group{main: byName(crd(widgets, labelled)), annex: byName(crd(widgets, follower, leaving))},
			statuses: []string{widgets + " False Terminating"},
		},
		"served by another server": {
			group:    group{main: byName(crd(widgets, labelled)), routes: to("v1", routeForeign)},
			statuses: []string{widgets + " False ForeignAPIService"}, message: "requests for v1",
		},
		"published by annex when it had other data": {
			group:    group{main: byName(crd(widgets, labelled)), routes: to("v1", routeDataReplaced)},
			statuses: []string{widgets + " False DataReplaced"}, message: "Check --data-dir and --etcd-servers",
		},
		"never taken over and gone from main": {
			group:    group{annex: byName(crd(widgets, follower))},
			statuses: []string{widgets + " False MainDefinitionDeleted"},
		},
		"requests through the stored version": {
			group:    group{main: byName(crd(widgets, labelled, v2, func(c *definition) { c.Spec.Versions[0].Storage, c.Spec.Versions[1].Storage = false, true }))},
			requests: []string{widgets + " v2: v1,v2"}, statuses: []string{widgets + " Unknown TakingOver"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.check(t)
		})
	}
}

// TestPlanHosted is about groups of which annex answers for version v1.
func TestPlanHosted(t *testing.T) {
	t.Parallel()
	switched := to("v1", routeAnnex)
	hiddenBefore := map[string]metav1.Condition{widgets: {Status: metav1.ConditionFalse, Reason: reasonObjectsAppeared, Message: `object "ns/late"`}}
	for name, tc := range map[string]planCase{
		"followed": {
			group:    group{main: byName(crd(widgets, labelled)), annex: byName(crd(widgets, cleared)), routes: switched},
			statuses: []string{widgets + " True Synced"},
		},
		"followed, the guard still watching": {
			group:    group{main: byName(crd(widgets, labelled)), annex: byName(crd(widgets, cleared)), routes: switched, observed: map[string]observation{widgets: none("v1")}},
			statuses: []string{widgets + " True Synced"},
		},
		"changed in main": {
			group: group{main: byName(crd(widgets, labelled, shortName)), annex: byName(crd(widgets, cleared)), routes: switched},
			write: []string{widgets}, statuses: []string{widgets + " True Synced"},
		},
		"changed in annex": {
			group: group{main: byName(crd(widgets, labelled)), annex: byName(crd(widgets, cleared, shortName)), routes: switched},
			write: []string{widgets}, statuses: []string{widgets + " True Synced"},
		},
		"clearance removed by hand": {
			group: group{main: byName(crd(widgets, labelled)), annex: byName(crd(widgets, follower)), routes: switched},
			write: []string{widgets + " cleared"}, statuses: []string{widgets + " True Synced"},
		},
		"label removed": {
			group:    group{main: byName(crd(widgets)), annex: byName(crd(widgets, cleared)), routes: switched},
			statuses: []string{widgets + " False NotLabelled"},
		},
		"label removed from one of two, the other changed": {
			group: group{main: byName(crd(widgets), crd(gadgets, labelled, shortName)), annex: byName(crd(widgets, cleared), crd(gadgets, cleared)), routes: switched},
			write: []string{gadgets}, statuses: []string{gadgets + " True Synced", widgets + " False NotLabelled"},
		},
		"being deleted in main": {
			group:    group{main: byName(crd(widgets, labelled, leaving)), annex: byName(crd(widgets, cleared)), routes: switched},
			statuses: []string{widgets + " False Terminating"},
		},
		"deleted in main": {
			group:    group{annex: byName(crd(widgets, cleared)), routes: switched},
			statuses: []string{widgets + " False MainDefinitionDeleted"}, message: "all objects",
		},
		"deleted in annex": {
			group: group{main: byName(crd(widgets, labelled)), routes: switched},
			write: []string{"+" + widgets}, statuses: []string{widgets + " True Synced"},
		},
		"being deleted in annex": {
			group:    group{main: byName(crd(widgets, labelled)), annex: byName(crd(widgets, cleared, leaving)), routes: switched},
			statuses: []string{widgets + " False Terminating"}, message: "makes it again",
		},
		"another one, labelled": {
			group: group{main: byName(crd(widgets, labelled), crd(gadgets, labelled)), annex: byName(crd(widgets, cleared)), routes: switched},
			write: []string{"+" + gadgets}, statuses: []string{gadgets + " True Synced", widgets + " True Synced"},
		},
		"another one, labelled, not established in main yet": {
			group:    group{main: byName(crd(widgets, labelled), crd(gadgets, labelled, notEstablishedYet)), annex: byName(crd(widgets, cleared)), routes: switched},
			statuses: []string{gadgets + " False NotEstablished", widgets + " True Synced"},
		},
		"another one, not labelled, while the first changes": {
			group: group{main: byName(crd(widgets, labelled, shortName), crd(gadgets)), annex: byName(crd(widgets, cleared)), routes: switched},
			write: []string{widgets}, statuses: []string{gadgets + " False NotLabelled", widgets + " True Synced"},
		},
		"another one, not labelled, that main still answers for": {
			group: group{main: byName(crd(widgets, labelled), crd(gadgets, func(c *definition) { c.Spec.Versions[0].Name = "v3" })),
				annex: byName(crd(widgets, cleared)), routes: switched},
			statuses: []string{widgets + " True Synced"},
		},
		"another one, defined in annex by a user": {
			group:    group{main: byName(crd(widgets, labelled), crd(gadgets, labelled)), annex: byName(crd(widgets, cleared), crd(gadgets)), routes: switched},
			statuses: []string{gadgets + " False DefinedInAnnex", widgets + " True Synced"},
		},
		"new version, not observed": {
			group:    group{main: byName(crd(widgets, labelled, v2)), annex: byName(crd(widgets, cleared)), routes: switched},
			requests: []string{widgets + " v2: v2"}, write: []string{widgets + " withdrawn", widgets}, statuses: []string{widgets + " Unknown TakingOver"},
		},
		"new version, no objects": {
			group:    group{main: byName(crd(widgets, labelled, v2)), annex: byName(crd(widgets, cleared)), routes: switched, observed: map[string]observation{widgets: none("v2")}},
			requests: []string{widgets + " v2: v2"}, write: []string{widgets}, statuses: []string{widgets + " Unknown TakingOver"}, message: "v2",
		},
		"new version, objects: cleared nowhere before it is served": {
			group: group{main: byName(crd(gadgets, labelled, v2), crd(widgets, labelled)), annex: byName(crd(widgets, cleared), crd(gadgets, cleared)),
				routes: switched, observed: map[string]observation{gadgets: found}},
			requests: []string{gadgets + " v2: v2"}, write: []string{gadgets + " withdrawn", widgets + " withdrawn", gadgets}, statuses: []string{gadgets + " False ObjectsExist", widgets + " True Synced"},
		},
		"new version, with a definition that follows no more": {
			group: group{main: byName(crd(gadgets), crd(widgets, labelled, v2)), annex: byName(crd(widgets, cleared), crd(gadgets, cleared)), routes: switched},
			write: []string{gadgets + " withdrawn", widgets + " withdrawn", widgets}, statuses: []string{gadgets + " False NotLabelled", widgets + " False GroupIncomplete"}, message: "kubectl label crd " + gadgets,
		},
		"new version, objects": {
			group:    group{main: byName(crd(widgets, labelled, v2)), annex: byName(crd(widgets, cleared)), routes: switched, observed: map[string]observation{widgets: found}},
			requests: []string{widgets + " v2: v2"}, write: []string{widgets + " withdrawn", widgets}, statuses: []string{widgets + " False ObjectsExist"},
			message: "annex has changed nothing there, and takes the version over once they have been deleted",
		},
		"new version, objects may not be seen": {
			group:    group{main: byName(crd(widgets, labelled, v2)), annex: byName(crd(widgets, cleared)), routes: switched, observed: map[string]observation{widgets: forbidden()}},
			requests: []string{widgets + " v2: v2"}, write: []string{widgets + " withdrawn", widgets}, statuses: []string{widgets + " False Forbidden"}, message: "still answers for v2",
		},
		"new version, taken over": {
			group: group{main: byName(crd(widgets, labelled, v2)), annex: byName(crd(widgets, cleared, v2)), routes: to("v1", routeAnnex, "v2", routeAnnex),
				observed: map[string]observation{widgets: none("v2")}},
			statuses: []string{widgets + " True Synced"},
		},
		"new version, served by another server": {
			group:    group{main: byName(crd(widgets, labelled, v2)), annex: byName(crd(widgets, cleared, v2)), routes: to("v1", routeAnnex, "v2", routeForeign)},
			statuses: []string{widgets + " False ForeignAPIService"}, message: "v2",
		},
		"new version, published by annex when it had other data": {
			group:    group{main: byName(crd(widgets, labelled, v2)), annex: byName(crd(widgets, cleared, v2)), routes: to("v1", routeAnnex, "v2", routeDataReplaced)},
			statuses: []string{widgets + " False DataReplaced"}, message: "v2",
		},
		"an APIService deleted by hand, no objects": {
			group: group{main: byName(crd(widgets, labelled, v2)), annex: byName(crd(widgets, cleared, v2)), routes: to("v1", routeMain, "v2", routeAnnex),
				observed: map[string]observation{widgets: none("v1")}},
			requests: []string{widgets + " v1: v1"}, statuses: []string{widgets + " Unknown TakingOver"},
		},
		"an object slipped in, annex not asked": {
			group: group{main: byName(crd(widgets, labelled)), annex: byName(crd(widgets, cleared)), routes: switched, observed: map[string]observation{widgets: appeared("v1")}},
			count: true,
		},
		"an object slipped in, annex has none": {
			group: group{main: byName(crd(widgets, labelled), crd(gadgets, labelled)), annex: byName(crd(widgets, cleared), crd(gadgets, cleared)), routes: switched,
				observed: map[string]observation{widgets: appeared("v1"), gadgets: none("v1")}, annexHasObjects: ptr.To(false)},
			giveBack: []string{"v1"}, write: []string{gadgets + " withdrawn", widgets + " withdrawn"}, message: `"ns/late" of widgets.example.com`,
			statuses: []string{gadgets + " False ObjectsAppeared", widgets + " False ObjectsAppeared"},
		},
		"an object slipped in through a new version, annex has none": {
			group: group{main: byName(crd(widgets, labelled, v2)), annex: byName(crd(widgets, cleared, v2)), routes: to("v1", routeAnnex, "v2", routeAnnex),
				observed: map[string]observation{widgets: appeared("v2")}, annexHasObjects: ptr.To(false)},
			giveBack: []string{"v1", "v2"}, write: []string{widgets + " withdrawn"}, statuses: []string{widgets + " False ObjectsAppeared"},
		},
		"an object slipped in, annex has some": {
			group: group{main: byName(crd(widgets, labelled), crd(gadgets, labelled)), annex: byName(crd(widgets, cleared), crd(gadgets, cleared)), routes: switched,
				observed: map[string]observation{widgets: appeared("v1"), gadgets: none("v1")}, annexHasObjects: ptr.To(true)},
			statuses: []string{gadgets + " True Synced", widgets + " False ObjectsAppeared"},
		},
		"an object slipped in some time ago": {
			group:    group{main: byName(crd(widgets, labelled)), annex: byName(crd(widgets, cleared)), routes: switched, reported: hiddenBefore},
			statuses: []string{widgets + " False ObjectsAppeared"}, message: "ns/late",
		},
		"an object slipped in, its definition gone": {
			group:    group{annex: byName(crd(widgets, cleared)), routes: switched, observed: map[string]observation{widgets: appeared("v1")}},
			statuses: []string{widgets + " False MainDefinitionDeleted"},
		},
		"published from annex, then defined in main": {
			group:    group{main: byName(crd(widgets, labelled)), annex: byName(crd(widgets)), routes: switched},
			statuses: []string{widgets + " False DefinedInAnnex"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.check(t)
		})
	}
}
