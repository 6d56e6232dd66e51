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

// none is a resource without objects.
var none observation

var found = observation{object: "ns/old"}

func forbidden() observation {
	return observation{err: apierrors.NewForbidden(schema.GroupResource{Group: groupName, Resource: "widgets"}, "", errors.New("no"))}
}

// planCase is a group and its plan.
type planCase struct {
	group group
	// order is "observe", "move" or "forget".
	order string
	// statuses are "<name> <status> <reason>".
	statuses []string
	// message is part of every message.
	message string
	// write are "<name> withdrawn", then "<name>" with "+" if it is new, then
	// "<name> cleared".
	write    []string
	giveBack []string
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
	order := ""
	for i, is := range []bool{p.forget != nil, p.observe, p.move} {
		if is {
			order += []string{"forget", "observe", "move"}[i]
		}
	}
	expect.Equal(t, tc.order, order, "order")
}

// TestPlanFresh is about groups that the main cluster serves.
func TestPlanFresh(t *testing.T) {
	t.Parallel()
	main, both := byName(crd(widgets, labelled)), byName(crd(widgets, labelled), crd(gadgets, labelled))
	seesNone := map[string]observation{widgets: none}
	objects := map[string]observation{widgets: found}
	takingOver := []string{widgets + " Unknown TakingOver"}
	ordered := func(phase hostingv1alpha1.MigrationPhase) *hostingv1alpha1.Migration {
		migration := migrationIn(hostingv1alpha1.MigrationMove, phase)
		migration.Name = orderedName(groupName)
		return migration
	}
	waiting := migrationIn(hostingv1alpha1.MigrationMove, "")
	waiting.Status.StartTime = nil
	waiting.Status.Conditions = []metav1.Condition{{Type: hostingv1alpha1.MigrationComplete, Message: "no rights"}}
	for name, tc := range map[string]planCase{
		"nothing":                     {},
		"nothing labelled":            {group: group{main: byName(crd(widgets))}},
		"nothing to do with main":     {group: group{annex: byName(crd(widgets))}},
		"labelled with another value": {group: group{main: byName(crd(widgets, func(c *definition) { c.Labels = map[string]string{hostingv1alpha1.HostedLabel: "yes"} }))}},
		"labelled, not observed":      {group: group{main: main}, order: "observe"},
		"labelled, no objects": {
			group: group{main: main, observed: seesNone},
			order: "move", statuses: takingOver, message: "annex moves the group",
		},
		"two, no objects": {
			group: group{main: both, observed: map[string]observation{widgets: none, gadgets: none}},
			order: "move", statuses: []string{gadgets + " Unknown TakingOver", widgets + " Unknown TakingOver"},
		},
		"defined in annex, not taken over": {
			group: group{main: main, annex: byName(crd(widgets, follower)), observed: seesNone},
			order: "move", statuses: takingOver,
		},
		"its Migration has not begun": {
			group:    group{main: main, migration: waiting},
			statuses: takingOver, message: `Waiting for the Migration "m": no rights`,
		},
		"its Migration failed": {
			group:    group{main: main, ordered: ordered(hostingv1alpha1.MigrationFailed), observed: seesNone},
			statuses: []string{widgets + " False MoveFailed"}, message: `The Migration "example.com-hosted" did not move the group`,
		},
		"its Migration failed, two": {
			group:    group{main: both, ordered: ordered(hostingv1alpha1.MigrationFailed)},
			statuses: []string{gadgets + " False MoveFailed", widgets + " False MoveFailed"},
		},
		"its Migration completed, and was rolled back, not observed": {group: group{main: main, ordered: ordered(hostingv1alpha1.MigrationCompleted)}, order: "forgetobserve"},
		"its Migration completed, and was rolled back": {
			group: group{main: main, ordered: ordered(hostingv1alpha1.MigrationCompleted), observed: seesNone},
			order: "forget", statuses: takingOver,
		},
		"mixed": {
			group:    group{main: byName(crd(widgets, labelled), crd(gadgets), crd("gizmos.example.com"))},
			statuses: []string{widgets + " False GroupIncomplete"},
			message:  "kubectl label crd gadgets.example.com gizmos.example.com annex.dev/hosted=true",
		},
		"objects": {
			group:    group{main: main, observed: objects},
			statuses: []string{widgets + " False ObjectsExist"}, message: `among them "ns/old". annex has changed nothing there. Move the group with its objects: kubectl annex move example.com`,
		},
		"objects of one of two": {
			group:    group{main: both, observed: map[string]observation{widgets: found, gadgets: none}},
			statuses: []string{gadgets + " False ObjectsExist", widgets + " False ObjectsExist"}, message: `"ns/old"`,
		},
		"objects, forged in annex": {
			group:    group{main: main, annex: byName(crd(widgets, withMainCopy)), observed: objects},
			statuses: []string{widgets + " False ObjectsExist"},
		},
		"objects may not be seen": {
			group:    group{main: both, observed: map[string]observation{widgets: forbidden(), gadgets: forbidden()}},
			statuses: []string{gadgets + " False Forbidden", widgets + " False Forbidden"}, message: "kubectl annex move example.com --print-rights | kubectl apply -f -",
		},
		"objects cannot be seen now": {
			group:    group{main: main, observed: map[string]observation{widgets: {err: errors.New("timeout")}}},
			statuses: takingOver, message: "timeout",
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
			group: group{main: main, annex: byName(crd(gadgets)), observed: seesNone},
			order: "move", statuses: takingOver,
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
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.check(t)
		})
	}
}

// TestReadable: objects are read in the storage version, if it is served.
func TestReadable(t *testing.T) {
	t.Parallel()
	stored := func(c *definition) { c.Spec.Versions[0].Storage, c.Spec.Versions[1].Storage = false, true }
	for version, changes := range map[string][]change{"v1": {v2, stored, func(c *definition) { c.Spec.Versions[1].Served = false }}, "v2": {v2, stored}} {
		g := group{name: groupName, main: byName(crd(widgets, changes...))}
		expect.Equal(t, schema.GroupVersionResource{Group: groupName, Version: version, Resource: "widgets"}, g.readable(widgets))
	}
}

// TestPlanHosted is about groups of which annex serves version v1.
func TestPlanHosted(t *testing.T) {
	t.Parallel()
	switched := to("v1", routeAnnex)
	for name, tc := range map[string]planCase{
		"followed": {
			group:    group{main: byName(crd(widgets, labelled)), annex: byName(crd(widgets, cleared)), routes: switched},
			statuses: []string{widgets + " True Synced"},
		},
		"all routes lost": {
			group:    group{main: byName(crd(widgets, labelled)), annex: byName(crd(widgets, cleared)), routes: to("v1", routeMain)},
			statuses: []string{widgets + " Unknown TakingOver"}, message: "Waiting until the main cluster sends requests for v1",
		},
		"all routes lost, label removed": {
			group:    group{main: byName(crd(widgets)), annex: byName(crd(widgets, cleared))},
			statuses: []string{widgets + " False NotLabelled"}, message: "kubectl label crd " + widgets,
		},
		"all routes lost, one of two labelled": {
			group:    group{main: byName(crd(widgets, labelled), crd(gadgets)), annex: byName(crd(widgets, cleared))},
			statuses: []string{widgets + " False GroupIncomplete"},
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
		"new version": {
			group: group{main: byName(crd(widgets, labelled, v2)), annex: byName(crd(widgets, cleared)), routes: switched},
			write: []string{widgets}, statuses: []string{widgets + " Unknown TakingOver"}, message: "v2",
		},
		"new version, in annex": {
			group: group{main: byName(crd(widgets, labelled, v2)), annex: byName(crd(widgets, follower, v2)), routes: switched},
			write: []string{widgets + " cleared"}, statuses: []string{widgets + " Unknown TakingOver"}, message: "v2",
		},
		"new version, with a definition that follows no more": {
			group: group{main: byName(crd(gadgets), crd(widgets, labelled, v2)), annex: byName(crd(widgets, cleared), crd(gadgets, cleared)), routes: switched},
			write: []string{widgets}, statuses: []string{gadgets + " False NotLabelled", widgets + " False GroupIncomplete"}, message: "kubectl label crd " + gadgets,
		},
		"new version in annex, with a definition that follows no more": {
			group:    group{main: byName(crd(gadgets), crd(widgets, labelled, v2)), annex: byName(crd(widgets, follower, v2), crd(gadgets, cleared)), routes: switched},
			statuses: []string{gadgets + " False NotLabelled", widgets + " False GroupIncomplete"}, message: "kubectl label crd " + gadgets,
		},
		"another one, in another version": {
			group: group{main: byName(crd(widgets, labelled), crd(gadgets, labelled, func(c *definition) { c.Spec.Versions[0].Name = "v3" })), annex: byName(crd(widgets, cleared)), routes: switched},
			write: []string{"+" + gadgets}, statuses: []string{gadgets + " Unknown TakingOver", widgets + " True Synced"},
		},
		"new version, taken over": {
			group:    group{main: byName(crd(widgets, labelled, v2)), annex: byName(crd(widgets, cleared, v2)), routes: to("v1", routeAnnex, "v2", routeAnnex)},
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
		"an APIService deleted by hand": {
			group:    group{main: byName(crd(widgets, labelled, v2)), annex: byName(crd(widgets, cleared, v2)), routes: to("v1", routeMain, "v2", routeAnnex)},
			statuses: []string{widgets + " Unknown TakingOver"},
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
