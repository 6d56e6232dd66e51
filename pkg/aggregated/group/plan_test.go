// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package group

import (
	"errors"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/annex-dev/annex/pkg/aggregated/group/grouptest"
	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/expect"
)

const groupName, widgets, gadgets = grouptest.Group, grouptest.Widgets, grouptest.Gadgets

type change = grouptest.Change

var (
	crd, versions, annotated, condition    = grouptest.CRD, grouptest.Versions, grouptest.Annotated, grouptest.Condition
	labelled, withoutFinalizer, leaving    = grouptest.Labelled, grouptest.WithoutFinalizer, grouptest.Leaving
	follower, notEstablishedYet, shortName = grouptest.Follower, grouptest.NotEstablished, grouptest.ShortName
	v2, unserved                           = versions("v1", "v2"), versions("-v1")
	ours                                   = Identity{
		PublishedBy: grouptest.PublishedBy, Store: grouptest.Store, CABundle: []byte("CA"),
		Service: Service{Namespace: "annex-system", Name: "annex", Port: 443},
	}
	open     = Gate{Proven: true, Settled: true}
	settling = Gate{Proven: true, Why: No(ReasonWaitingForAnnex, "settling")}
	closed   = Gate{Settled: true, Why: No(ReasonWaitingForAnnex, "not reached")}
)

// recordedInTest marks the definitions of annex whose HostedResources have a takeover.
const recordedInTest = "test/recorded"

func cleared(crd *Definition) {
	follower(crd)
	setAnnotation(crd, recordedInTest, "yes")
}

// given has the objects of a State.
type given struct {
	main, annex        map[string]*Definition
	routes             map[string]Route
	apiServices        []*APIService
	hosted             []*HostedResource
	observed           map[string]Observation
	migration, ordered *Migration
	gate               Gate
}

func (of given) state() *State {
	s := New(groupName, ours, Objects{APIServices: of.apiServices, Hosted: of.hosted})
	s.Main, s.Annex, s.Observed, s.Migration, s.Ordered, s.Gate = of.main, of.annex, of.observed, of.migration, of.ordered, of.gate
	for name, crd := range of.annex {
		if crd.Annotations[recordedInTest] != "" {
			s.Hosted[name] = takenOver(crd)
		}
	}
	for version, route := range of.routes {
		s.APIServices[version] = routed(s, version, route)
	}
	return s
}

// takenOver is the HostedResource of a definition whose takeover is recorded.
func takenOver(crd *Definition) *HostedResource {
	of := &HostedResource{ObjectMeta: metav1.ObjectMeta{Name: crd.Name}}
	takeover := TakeoverOf(crd)
	of.Status.Takeover = &takeover
	return of
}

// routed returns an APIService with a route, or nil.
func routed(s *State, version string, route Route) *APIService {
	var of *APIService
	switch route {
	case RouteNone:
		return nil
	case RouteMain:
		return grouptest.Local(s.Name, version)
	case RouteBuiltIn:
		of = grouptest.Local(s.Name, version)
		of.Labels[automanagedLabel] = "onstart"
	case RouteForeign:
		return grouptest.Elsewhere(s.Name, version, "other", "server")
	default:
		of = grouptest.Published(s.Name, version, "")
		of.Annotations[hostingv1alpha1.ResourcesAnnotation] = s.desiredVersion(version).Annotations[hostingv1alpha1.ResourcesAnnotation]
		if route == RouteReverted {
			of.Spec.Service, of.Spec.CABundle = nil, nil
		}
		if route == RouteDataReplaced {
			of.Annotations[hostingv1alpha1.PublishedStoreAnnotation] = "old"
		}
	}
	return of
}

func routes(pairs ...any) map[string]Route {
	of := map[string]Route{}
	for i := 0; i < len(pairs); i += 2 {
		of[pairs[i].(string)] = pairs[i+1].(Route)
	}
	return of
}

func definitions(crds ...*Definition) map[string]*Definition { return definitionsOf(groupName, crds) }

// none is a resource without objects.
var none Observation

var found = Observation{Object: "ns/old"}

func forbidden() Observation {
	return Observation{Err: apierrors.NewForbidden(schema.GroupResource{Group: groupName, Resource: "widgets"}, "", errors.New("no"))}
}

// planCase is a group and its plan.
type planCase struct {
	given given
	// order is "observe", "move" or "forget".
	order string
	// statuses are "<name> <status> <reason>".
	statuses []string
	// message is part of every message.
	message string
	// write are "<name> withdrawn", then "<name>" with "+" if it is new, then "<name> recorded", then "<version> back".
	write []string
}

// check compares a plan with a case.
func (tc *planCase) check(t *testing.T) {
	t.Helper()
	s := tc.given.state()
	p := s.Plan()
	var statuses, write []string
	for _, name := range sortedNames(p.Synced, func(Status) bool { return true }) {
		of := p.Synced[name]
		statuses = append(statuses, name+" "+string(of.Status)+" "+of.Reason)
		if !strings.Contains(of.Message, tc.message) {
			t.Errorf("%s: message %q, want one with %q", name, of.Message, tc.message)
		}
	}
	for _, name := range p.Withdraw {
		write = append(write, name+" withdrawn")
	}
	for _, crd := range p.Write {
		line := crd.Name
		if s.Annex[crd.Name] == nil {
			line = "+" + line
		} else if !differs(s.Annex[crd.Name], crd) {
			t.Errorf("%s is written although nothing changes", crd.Name)
		}
		write = append(write, line)
	}
	for _, name := range p.Record {
		write = append(write, name+" recorded")
	}
	for _, current := range p.GiveBack {
		write = append(write, current.Spec.Version+" back")
	}
	expect.Equal(t, tc.statuses, statuses, "statuses")
	expect.Equal(t, tc.write, write, "write")
	order := ""
	for i, is := range []bool{p.Forget != nil, p.Observe, p.Order != nil} {
		if is {
			order += []string{"forget", "observe", "move"}[i]
		}
	}
	expect.Equal(t, tc.order, order, "order")
}

// migrationIn is a Migration that has begun.
func migrationIn(operation hostingv1alpha1.MigrationOperation, phase hostingv1alpha1.MigrationPhase) *Migration {
	now := metav1.Now()
	return &Migration{
		ObjectMeta: metav1.ObjectMeta{Name: "m"},
		Spec:       hostingv1alpha1.MigrationSpec{Group: groupName, Operation: operation},
		Status:     hostingv1alpha1.MigrationStatus{Phase: phase, StartTime: &now, Resources: []hostingv1alpha1.MigrationResourceStatus{{Name: widgets}}},
	}
}

// TestPlanFresh is about groups that the main cluster serves.
func TestPlanFresh(t *testing.T) {
	t.Parallel()
	main, both := definitions(crd(widgets, labelled)), definitions(crd(widgets, labelled), crd(gadgets, labelled))
	seesNone := map[string]Observation{widgets: none}
	objects := map[string]Observation{widgets: found}
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
		"nothing":                          {},
		"nothing labelled":                 {given: given{main: definitions(crd(widgets))}},
		"nothing to do with main":          {given: given{annex: definitions(crd(widgets))}},
		"labelled with another value":      {given: given{main: definitions(crd(widgets, func(c *Definition) { c.Labels = map[string]string{hostingv1alpha1.HostedLabel: "yes"} }))}},
		"labelled, not observed":           {given: given{main: main}, order: "observe"},
		"labelled, no objects":             {given: given{main: main, observed: seesNone}, order: "move", statuses: takingOver, message: "annex moves the group"},
		"two, no objects":                  {given: given{main: both, observed: map[string]Observation{widgets: none, gadgets: none}}, order: "move", statuses: []string{gadgets + " Unknown TakingOver", widgets + " Unknown TakingOver"}},
		"defined in annex, not taken over": {given: given{main: main, annex: definitions(crd(widgets, follower)), observed: seesNone}, order: "move", statuses: takingOver},
		"its Migration has not begun":      {given: given{main: main, migration: waiting}, statuses: takingOver, message: `Waiting for the Migration "m": no rights`},
		"its Migration failed":             {given: given{main: main, ordered: ordered(hostingv1alpha1.MigrationFailed), observed: seesNone}, statuses: []string{widgets + " False MoveFailed"}, message: `The Migration "example.com-hosted" did not move the group`},
		"its Migration failed, two":        {given: given{main: both, ordered: ordered(hostingv1alpha1.MigrationFailed)}, statuses: []string{gadgets + " False MoveFailed", widgets + " False MoveFailed"}},
		"its Migration completed, and was rolled back, not observed": {given: given{main: main, ordered: ordered(hostingv1alpha1.MigrationCompleted)}, order: "forgetobserve"},
		"its Migration completed, and was rolled back":               {given: given{main: main, ordered: ordered(hostingv1alpha1.MigrationCompleted), observed: seesNone}, order: "forget", statuses: takingOver},
		"mixed":                    {given: given{main: definitions(crd(widgets, labelled), crd(gadgets), crd("gizmos.example.com"))}, statuses: []string{widgets + " False GroupIncomplete"}, message: "kubectl label crd gadgets.example.com gizmos.example.com annex.dev/hosted=true"},
		"objects":                  {given: given{main: main, observed: objects}, statuses: []string{widgets + " False ObjectsExist"}, message: `among them "ns/old". annex has changed nothing there. Move the group with its objects: kubectl annex move example.com`},
		"objects of one of two":    {given: given{main: both, observed: map[string]Observation{widgets: found, gadgets: none}}, statuses: []string{gadgets + " False ObjectsExist", widgets + " False ObjectsExist"}, message: `"ns/old"`},
		"objects, forged in annex": {given: given{main: main, annex: definitions(crd(widgets, follower, annotated(hostingv1alpha1.MainCopyAnnotation, "2026"))), observed: objects}, statuses: []string{widgets + " False ObjectsExist"}},
		"objects may not be seen": {
			given:    given{main: both, observed: map[string]Observation{widgets: forbidden(), gadgets: forbidden()}},
			statuses: []string{gadgets + " False Forbidden", widgets + " False Forbidden"}, message: "kubectl annex move example.com --print-rights | kubectl apply -f -",
		},
		"objects cannot be seen now":   {given: given{main: main, observed: map[string]Observation{widgets: {Err: errors.New("timeout")}}}, statuses: takingOver, message: "timeout"},
		"served by main in no version": {given: given{main: definitions(crd(widgets, labelled, unserved))}, statuses: []string{widgets + " False NotServed"}},
		"not established in main": {
			given: given{main: definitions(crd(widgets, labelled, notEstablishedYet,
				condition(apiextensionsv1.NamesAccepted, apiextensionsv1.ConditionFalse, "name is taken")))},
			statuses: []string{widgets + " False NotEstablished"}, message: "name is taken",
		},
		"one of two not established in main": {
			given:    given{main: definitions(crd(widgets, labelled, notEstablishedYet), crd(gadgets, labelled))},
			statuses: []string{gadgets + " False GroupNotReady", widgets + " False NotEstablished"}, message: "does not serve the definition yet",
		},
		"being deleted in main":         {given: given{main: definitions(crd(widgets, labelled, leaving))}},
		"another being deleted in main": {given: given{main: definitions(crd(widgets, labelled), crd(gadgets, leaving))}, statuses: []string{widgets + " False GroupNotReady"}, message: gadgets},
		"defined in annex by a user": {
			given:    given{main: definitions(crd(widgets, labelled), crd(gadgets, labelled)), annex: definitions(crd(widgets))},
			statuses: []string{gadgets + " False GroupNotReady", widgets + " False DefinedInAnnex"}, message: "kubectl annotate crd widgets.example.com annex.dev/definition-from=main",
		},
		"another of the group defined in annex":     {given: given{main: main, annex: definitions(crd(gadgets)), observed: seesNone}, order: "move", statuses: takingOver},
		"being deleted in annex":                    {given: given{main: definitions(crd(widgets, labelled)), annex: definitions(crd(widgets, follower, leaving))}, statuses: []string{widgets + " False Terminating"}},
		"served by another server":                  {given: given{main: definitions(crd(widgets, labelled)), routes: routes("v1", RouteForeign)}, statuses: []string{widgets + " False ForeignAPIService"}, message: "requests for v1"},
		"served by the main cluster itself":         {given: given{main: main, routes: routes("v2", RouteBuiltIn)}, statuses: []string{widgets + " False ForeignAPIService"}, message: "example.com/v2 itself"},
		"published by annex when it had other data": {given: given{main: definitions(crd(widgets, labelled)), routes: routes("v1", RouteDataReplaced)}, statuses: []string{widgets + " False DataReplaced"}, message: "Check --data-dir and --etcd-servers"},
		"never taken over and gone from main":       {given: given{annex: definitions(crd(widgets, follower))}, statuses: []string{widgets + " False MainDefinitionDeleted"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.check(t)
		})
	}
}

// TestPlanHosted has groups whose version v1 annex serves.
func TestPlanHosted(t *testing.T) {
	t.Parallel()
	switched := routes("v1", RouteAnnex)
	for name, tc := range map[string]planCase{
		"followed": {given: given{main: definitions(crd(widgets, labelled)), annex: definitions(crd(widgets, cleared)), routes: switched}, statuses: []string{widgets + " True Synced"}},
		"all routes lost": {
			given:    given{main: definitions(crd(widgets, labelled)), annex: definitions(crd(widgets, cleared)), routes: routes("v1", RouteMain)},
			statuses: []string{widgets + " Unknown TakingOver"}, message: "Waiting until the main cluster sends requests for v1",
		},
		"all routes lost, label removed":       {given: given{main: definitions(crd(widgets)), annex: definitions(crd(widgets, cleared))}, statuses: []string{widgets + " False NotLabelled"}, message: "kubectl label crd " + widgets},
		"all routes lost, one of two labelled": {given: given{main: definitions(crd(widgets, labelled), crd(gadgets)), annex: definitions(crd(widgets, cleared))}, statuses: []string{widgets + " False GroupIncomplete"}},
		"changed in main":                      {given: given{main: definitions(crd(widgets, labelled, shortName)), annex: definitions(crd(widgets, cleared)), routes: switched}, write: []string{widgets}, statuses: []string{widgets + " True Synced"}},
		"changed in annex":                     {given: given{main: definitions(crd(widgets, labelled)), annex: definitions(crd(widgets, cleared, shortName)), routes: switched}, write: []string{widgets}, statuses: []string{widgets + " True Synced"}},
		"clearance removed by hand":            {given: given{main: definitions(crd(widgets, labelled)), annex: definitions(crd(widgets, follower)), routes: switched}, write: []string{widgets + " recorded"}, statuses: []string{widgets + " True Synced"}},
		"label removed":                        {given: given{main: definitions(crd(widgets)), annex: definitions(crd(widgets, cleared)), routes: switched}, statuses: []string{widgets + " False NotLabelled"}},
		"label removed from one of two, the other changed": {
			given: given{main: definitions(crd(widgets), crd(gadgets, labelled, shortName)), annex: definitions(crd(widgets, cleared), crd(gadgets, cleared)), routes: switched},
			write: []string{gadgets}, statuses: []string{gadgets + " True Synced", widgets + " False NotLabelled"},
		},
		"being deleted in main":  {given: given{main: definitions(crd(widgets, labelled, leaving)), annex: definitions(crd(widgets, cleared)), routes: switched}, statuses: []string{widgets + " False Terminating"}},
		"deleted in main":        {given: given{annex: definitions(crd(widgets, cleared)), routes: switched}, statuses: []string{widgets + " False MainDefinitionDeleted"}, message: "all objects"},
		"deleted in annex":       {given: given{main: definitions(crd(widgets, labelled)), routes: switched}, write: []string{"+" + widgets}, statuses: []string{widgets + " True Synced"}},
		"being deleted in annex": {given: given{main: definitions(crd(widgets, labelled)), annex: definitions(crd(widgets, cleared, leaving)), routes: switched}, statuses: []string{widgets + " False Terminating"}, message: "makes it again"},
		"another one, labelled": {
			given: given{main: definitions(crd(widgets, labelled), crd(gadgets, labelled)), annex: definitions(crd(widgets, cleared)), routes: switched},
			write: []string{"+" + gadgets}, statuses: []string{gadgets + " True Synced", widgets + " True Synced"},
		},
		"another one, labelled, not established in main yet": {
			given:    given{main: definitions(crd(widgets, labelled), crd(gadgets, labelled, notEstablishedYet)), annex: definitions(crd(widgets, cleared)), routes: switched},
			statuses: []string{gadgets + " False NotEstablished", widgets + " True Synced"},
		},
		"another one, not labelled, while the first changes": {
			given: given{main: definitions(crd(widgets, labelled, shortName), crd(gadgets)), annex: definitions(crd(widgets, cleared)), routes: switched},
			write: []string{widgets}, statuses: []string{gadgets + " False NotLabelled", widgets + " True Synced"},
		},
		"another one, not labelled, that main still answers for": {
			given: given{main: definitions(crd(widgets, labelled), crd(gadgets, func(c *Definition) { c.Spec.Versions[0].Name = "v3" })),
				annex: definitions(crd(widgets, cleared)), routes: switched},
			statuses: []string{widgets + " True Synced"},
		},
		"another one, defined in annex by a user": {
			given:    given{main: definitions(crd(widgets, labelled), crd(gadgets, labelled)), annex: definitions(crd(widgets, cleared), crd(gadgets)), routes: switched},
			statuses: []string{gadgets + " False DefinedInAnnex", widgets + " True Synced"},
		},
		"new version": {given: given{main: definitions(crd(widgets, labelled, v2)), annex: definitions(crd(widgets, cleared)), routes: switched}, write: []string{widgets}, statuses: []string{widgets + " Unknown TakingOver"}, message: "v2"},
		"new version, in annex": {
			given: given{main: definitions(crd(widgets, labelled, v2)), annex: definitions(crd(widgets, follower, v2)), routes: switched},
			write: []string{widgets + " recorded"}, statuses: []string{widgets + " Unknown TakingOver"}, message: "v2",
		},
		"new version, with a definition that follows no more": {
			given: given{main: definitions(crd(gadgets), crd(widgets, labelled, v2)), annex: definitions(crd(widgets, cleared), crd(gadgets, cleared)), routes: switched},
			write: []string{widgets}, statuses: []string{gadgets + " False NotLabelled", widgets + " False GroupIncomplete"}, message: "kubectl label crd " + gadgets,
		},
		"new version in annex, with a definition that follows no more": {
			given:    given{main: definitions(crd(gadgets), crd(widgets, labelled, v2)), annex: definitions(crd(widgets, follower, v2), crd(gadgets, cleared)), routes: switched},
			statuses: []string{gadgets + " False NotLabelled", widgets + " False GroupIncomplete"}, message: "kubectl label crd " + gadgets,
		},
		"another one, in another version": {
			given: given{main: definitions(crd(widgets, labelled), crd(gadgets, labelled, func(c *Definition) { c.Spec.Versions[0].Name = "v3" })), annex: definitions(crd(widgets, cleared)), routes: switched},
			write: []string{"+" + gadgets}, statuses: []string{gadgets + " Unknown TakingOver", widgets + " True Synced"},
		},
		"new version, taken over": {given: given{main: definitions(crd(widgets, labelled, v2)), annex: definitions(crd(widgets, cleared, v2)), routes: routes("v1", RouteAnnex, "v2", RouteAnnex)}, statuses: []string{widgets + " True Synced"}},
		"new version, served by another server": {
			given:    given{main: definitions(crd(widgets, labelled, v2)), annex: definitions(crd(widgets, cleared, v2)), routes: routes("v1", RouteAnnex, "v2", RouteForeign)},
			statuses: []string{widgets + " False ForeignAPIService"}, message: "v2",
		},
		"new version, published by annex when it had other data": {
			given:    given{main: definitions(crd(widgets, labelled, v2)), annex: definitions(crd(widgets, cleared, v2)), routes: routes("v1", RouteAnnex, "v2", RouteDataReplaced)},
			statuses: []string{widgets + " False DataReplaced"}, message: "v2",
		},
		"an APIService deleted by hand":              {given: given{main: definitions(crd(widgets, labelled, v2)), annex: definitions(crd(widgets, cleared, v2)), routes: routes("v1", RouteMain, "v2", RouteAnnex)}, statuses: []string{widgets + " Unknown TakingOver"}},
		"published from annex, then defined in main": {given: given{main: definitions(crd(widgets, labelled)), annex: definitions(crd(widgets)), routes: switched}, statuses: []string{widgets + " False DefinedInAnnex"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.check(t)
		})
	}
}

// TestPlanMove is about groups with a Migration.
func TestPlanMove(t *testing.T) {
	t.Parallel()
	const (
		move, rollback       = hostingv1alpha1.MigrationMove, hostingv1alpha1.MigrationRollback
		pending, copying     = hostingv1alpha1.MigrationPending, hostingv1alpha1.MigrationCopying
		switching, observing = hostingv1alpha1.MigrationSwitching, hostingv1alpha1.MigrationObserving
	)
	main := definitions(crd(widgets, labelled))
	moving := []string{widgets + " Unknown Moving"}
	raised := migrationIn(rollback, switching)
	raised.Status.LastResourceVersion = 1
	for name, tc := range map[string]planCase{
		"not defined in annex":                            {given: given{main: main, migration: migrationIn(move, pending)}, write: []string{"+" + widgets}, statuses: []string{widgets + " Unknown TakingOver"}},
		"defined: not published":                          {given: given{main: main, annex: definitions(crd(widgets, follower)), migration: migrationIn(move, pending)}, statuses: moving, message: `The Migration "m" moves the group`},
		"cleared before the Migration":                    {given: given{main: main, annex: definitions(crd(widgets, cleared)), migration: migrationIn(move, copying)}, write: []string{widgets + " withdrawn"}, statuses: moving},
		"not labelled":                                    {given: given{main: definitions(crd(widgets, labelled), crd(gadgets)), migration: migrationIn(move, pending)}, statuses: moving},
		"not labelled, and created after the others were": {given: given{main: definitions(crd(widgets, labelled), crd(gadgets)), migration: migrationIn(move, copying)}, statuses: []string{widgets + " False GroupIncomplete"}},
		"definition changed while copying": {
			given: given{main: definitions(crd(widgets, labelled, shortName)), annex: definitions(crd(widgets, follower)), migration: migrationIn(move, copying)},
			write: []string{widgets}, statuses: []string{widgets + " Unknown TakingOver"},
		},
		"switching":                          {given: given{main: main, annex: definitions(crd(widgets, follower)), migration: migrationIn(move, switching)}, write: []string{widgets + " recorded"}, statuses: moving},
		"definition changed while switching": {given: given{main: definitions(crd(widgets, labelled, shortName)), annex: definitions(crd(widgets, cleared)), routes: routes("v1", RouteAnnex), migration: migrationIn(move, switching)}, statuses: moving},
		"switch that is undone":              {given: given{main: main, annex: definitions(crd(widgets, cleared)), routes: routes("v1", RouteAnnex), migration: migrationIn(move, copying)}, write: []string{widgets + " withdrawn", "v1 back"}, statuses: moving},
		"observed: as any hosted group":      {given: given{main: main, annex: definitions(crd(widgets, cleared, cleared)), routes: routes("v1", RouteAnnex), migration: migrationIn(move, observing)}, statuses: []string{widgets + " True Synced"}},
		"another definition while switching": {
			given: given{main: definitions(crd(widgets, labelled), crd(gadgets, labelled)), annex: definitions(crd(widgets, follower)), migration: migrationIn(move, switching)},
			write: []string{widgets + " recorded"}, statuses: []string{gadgets + " Unknown Moving", widgets + " Unknown Moving"},
		},
		"another definition, added after the copy began": {
			given:    given{main: definitions(crd(widgets, labelled), crd(gadgets, labelled)), annex: definitions(crd(widgets, cleared), crd(gadgets, follower)), migration: migrationIn(move, switching)},
			statuses: []string{gadgets + " Unknown Moving", widgets + " Unknown Moving"},
		},
		"rollback: definition with the temporary version is not followed": {
			given:    given{main: definitions(crd(widgets, labelled, temporary)), annex: definitions(crd(widgets, cleared)), routes: routes("v1", RouteAnnex), migration: migrationIn(rollback, copying)},
			statuses: moving,
		},
		"temporary version without a Migration":                       {given: given{main: definitions(crd(widgets, labelled, temporary)), annex: definitions(crd(widgets, cleared)), routes: routes("v1", RouteAnnex)}, statuses: moving},
		"rollback is switching":                                       {given: given{main: main, annex: definitions(crd(widgets, cleared)), routes: routes("v1", RouteAnnex), migration: migrationIn(rollback, switching)}, statuses: moving},
		"rollback is switching, above all versions that clients have": {given: given{main: main, annex: definitions(crd(widgets, cleared)), routes: routes("v1", RouteAnnex), migration: raised}, write: []string{widgets + " withdrawn", "v1 back"}, statuses: moving},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.check(t)
		})
	}
}

// temporary has the version that reaches the main cluster's copy.
func temporary(crd *Definition) { versions("v1", hostingv1alpha1.MainCopyVersion)(crd) }
