// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package group

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/annex-dev/annex/pkg/aggregated/group/grouptest"
	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// published is annex's APIService of v1, which lists the widgets.
func published(changes ...func(*APIService)) []*APIService {
	made := grouptest.Published(groupName, "v1", "widgets:0")
	for _, apply := range changes {
		apply(made)
	}
	return []*APIService{made}
}

// TestVersions is about version v1, which annex serves.
func TestVersions(t *testing.T) {
	t.Parallel()
	own, main, takenOver := definitions(crd(widgets)), definitions(crd(widgets, labelled)), definitions(crd(widgets, cleared))
	wrongPort := published(func(a *APIService) { a.Spec.Service.Port = new(int32(444)) })
	local := []*APIService{grouptest.Local(groupName, "v1")}
	v1 := func(route Route) map[string]Route { return routes("v1", route) }
	v2only := definitions(crd(widgets, labelled), crd(gadgets, versions("v2")))
	withCondition := &HostedResource{ObjectMeta: metav1.ObjectMeta{Name: widgets}}
	withCondition.Status.Conditions = []metav1.Condition{{Type: hostingv1alpha1.HostedResourceDefinitionSynced}}
	changed := crd(gadgets)
	changed.Generation = 2
	move := func(phase hostingv1alpha1.MigrationPhase) *Migration {
		return migrationIn(hostingv1alpha1.MigrationMove, phase)
	}
	back := migrationIn(hostingv1alpha1.MigrationRollback, hostingv1alpha1.MigrationCleaning)

	for name, tc := range map[string]struct {
		given     given
		operation Operation
		reason    string
		message   string
		resources string
	}{
		"new":                              {given: given{annex: own}, operation: Create, reason: ReasonUnavailable},
		"new, not sure":                    {given: given{annex: own, gate: settling}, reason: ReasonWaitingForAnnex, message: "settling"},
		"new, not reached now":             {given: given{annex: own, gate: closed}, reason: ReasonWaitingForAnnex, message: "not reached"},
		"not established":                  {given: given{annex: definitions(crd(widgets, notEstablishedYet))}, reason: ReasonNotServed},
		"being deleted":                    {given: given{annex: definitions(crd(widgets, leaving))}, reason: ReasonNotServed},
		"published":                        {given: given{annex: own, apiServices: published()}, reason: ReasonPublished},
		"published, gate shut":             {given: given{annex: own, apiServices: published(), gate: closed}, reason: ReasonPublished},
		"published, being deleted":         {given: given{annex: definitions(crd(widgets, leaving)), apiServices: published()}, reason: ReasonPublished},
		"not checked":                      {given: given{annex: own, apiServices: published(func(a *APIService) { a.Status.Conditions = nil })}, reason: ReasonUnavailable, message: "not checked yet"},
		"unavailable":                      {given: given{annex: own, apiServices: published(func(a *APIService) { grouptest.Available(a, "False", "Checked", "x509: no") })}, reason: ReasonUnavailable, message: "Checked: x509: no"},
		"just taken over":                  {given: given{annex: own, apiServices: published(func(a *APIService) { a.Status = local[0].Status })}, reason: ReasonUnavailable, message: "not checked yet"},
		"edited":                           {given: given{annex: own, apiServices: wrongPort}, operation: Update, reason: ReasonPublished},
		"edited, while settling":           {given: given{annex: own, apiServices: wrongPort, gate: settling}, operation: Update, reason: ReasonPublished},
		"edited, while not reached":        {given: given{annex: own, apiServices: wrongPort, gate: closed}, reason: ReasonPublished},
		"edited, while copying":            {given: given{annex: own, apiServices: wrongPort, migration: move("")}, reason: ReasonPublished},
		"made insecure":                    {given: given{annex: own, apiServices: published(func(a *APIService) { a.Spec.CABundle, a.Spec.InsecureSkipTLSVerify = nil, true })}, operation: Update, reason: ReasonPublished},
		"made local":                       {given: given{annex: own, routes: v1(RouteReverted)}, operation: TakeOver, reason: ReasonUnavailable},
		"made local, taken over":           {given: given{annex: takenOver, main: main, routes: v1(RouteReverted)}, operation: TakeOver, reason: ReasonUnavailable},
		"made local, withdrawn":            {given: given{annex: definitions(crd(widgets, follower)), main: main, routes: v1(RouteReverted)}, reason: ReasonGroupInMain},
		"foreign":                          {given: given{annex: own, routes: v1(RouteForeign)}, reason: ReasonForeignAPIService, message: "Service other/server, not to annex"},
		"another annex's":                  {given: given{annex: own, apiServices: published(func(a *APIService) { a.Labels[hostingv1alpha1.PublishedByLabel] = "b.annex" })}, reason: ReasonForeignAPIService, message: `publishes as "b.annex"`},
		"without the label":                {given: given{annex: own, apiServices: published(func(a *APIService) { a.Labels = nil })}, reason: ReasonForeignAPIService, message: "kubectl label apiservice v1.example.com annex.dev/published-by=annex-system.annex"},
		"another version is foreign":       {given: given{annex: own, routes: routes("v2", RouteForeign)}, reason: ReasonForeignAPIService, message: "APIService v2.example.com"},
		"another one foreign, ours there":  {given: given{annex: own, routes: routes("v1", RouteAnnex, "v2", RouteForeign)}, reason: ReasonPublished},
		"built in":                         {given: given{annex: own, routes: v1(RouteBuiltIn)}, reason: ReasonGroupInMain, message: "example.com/v1 itself"},
		"another version is built in":      {given: given{annex: own, routes: routes("v2", RouteBuiltIn)}, reason: ReasonGroupInMain, message: "example.com/v2 itself"},
		"local by hand":                    {given: given{annex: own, apiServices: []*APIService{{Spec: local[0].Spec}}}, reason: ReasonGroupInMain},
		"main defines it":                  {given: given{annex: own, main: own, apiServices: local}, reason: ReasonGroupInMain, message: "kubectl label crd widgets.example.com annex.dev/hosted=true"},
		"main defines it, see condition":   {given: given{annex: own, main: own, apiServices: local, hosted: []*HostedResource{withCondition}}, reason: ReasonGroupInMain, message: "annex has not taken over: widgets.example.com. See the condition DefinitionSynced"},
		"main defines it, no APIService":   {given: given{annex: own, main: own}, reason: ReasonGroupInMain, message: widgets},
		"main serves none of it":           {given: given{annex: own, main: definitions(crd(widgets, unserved))}, operation: Create, reason: ReasonUnavailable},
		"labelled, not recorded":           {given: given{annex: own, main: main, apiServices: local}, reason: ReasonGroupInMain, message: "annex has not taken over: widgets.example.com"},
		"recorded":                         {given: given{annex: takenOver, main: main, apiServices: local}, operation: TakeOver, reason: ReasonUnavailable},
		"recorded, switching":              {given: given{annex: takenOver, main: main, apiServices: local, migration: move(hostingv1alpha1.MigrationSwitching)}, operation: TakeOver, reason: ReasonUnavailable},
		"recorded, copying":                {given: given{annex: takenOver, main: main, apiServices: local, migration: move(hostingv1alpha1.MigrationCopying)}, reason: ReasonGroupInMain},
		"recorded, handed back":            {given: given{annex: takenOver, main: main, apiServices: local, migration: back}, reason: ReasonGroupInMain},
		"handed back, not in main":         {given: given{annex: own, migration: back}, reason: ReasonGroupInMain, message: `Migration "m"`},
		"recorded, not settled":            {given: given{annex: takenOver, main: main, apiServices: local, gate: settling}, reason: ReasonWaitingForAnnex},
		"recorded before main has a route": {given: given{annex: takenOver, main: main}, operation: Create, reason: ReasonUnavailable},
		"one of two recorded":              {given: given{annex: takenOver, main: definitions(crd(widgets, labelled), crd(gadgets)), apiServices: local}, reason: ReasonGroupInMain, message: "kubectl label crd gadgets.example.com annex.dev/hosted=true"},
		"one of two, of another version":   {given: given{annex: takenOver, main: v2only, routes: routes("v1", RouteMain, "v2", RouteMain)}, reason: ReasonGroupInMain, message: gadgets},
		"local, and defined by nothing":    {given: given{annex: takenOver, apiServices: local}, reason: ReasonGroupInMain, message: "still has the local APIService"},
		"an unlabelled one came after":     {given: given{annex: takenOver, main: definitions(crd(gadgets)), routes: v1(RouteAnnex)}, reason: ReasonPublished},
		"other data, defined in annex":     {given: given{annex: own, routes: v1(RouteDataReplaced)}, operation: Update, reason: ReasonPublished},
		"other data, defined in main":      {given: given{annex: definitions(crd(widgets, follower)), main: main, routes: v1(RouteDataReplaced)}, reason: ReasonDataReplaced, message: `had the UID "old"`},
		"other data, not served":           {given: given{routes: v1(RouteDataReplaced)}, reason: ReasonDataReplaced},

		"another kind":               {given: given{annex: definitions(crd(widgets), changed), apiServices: published()}, operation: Update, reason: ReasonPublished, resources: "gadgets:2,widgets:0"},
		"a kind of another version":  {given: given{annex: definitions(crd(widgets), crd(gadgets, versions("v2"))), apiServices: published()}, reason: ReasonPublished},
		"a kind that is not served":  {given: given{annex: definitions(crd(widgets), crd(gadgets, versions("-v1", "v2"))), apiServices: published()}, reason: ReasonPublished},
		"a kind that may not be had": {given: given{annex: definitions(crd(widgets), crd(gadgets, notEstablishedYet)), apiServices: published()}, reason: ReasonPublished},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tc.given.gate == (Gate{}) {
				tc.given.gate = open
			}
			s := tc.given.state()
			planned := s.Plan().Versions
			got := planned[len(planned)-1]
			if got.Name != "v1" || got.Operation != tc.operation || got.Status.Reason != tc.reason || got.Status.IsTrue() != (tc.reason == ReasonPublished) || !strings.Contains(got.Status.Message, tc.message) {
				t.Errorf("got %s, operation %d, %+v; want operation %d, %s, message with %q", got.Name, got.Operation, got.Status, tc.operation, tc.reason, tc.message)
			}
			if tc.operation == Keep {
				return
			}
			if tc.resources != "" {
				expect.Equal(t, tc.resources, got.APIService.Annotations[hostingv1alpha1.ResourcesAnnotation], "resources")
			}
			s.APIServices["v1"] = got.APIService
			if apiServiceDiffers(got.APIService, s.desiredVersion("v1")) {
				t.Errorf("what is to be written would be changed again: %+v", got.APIService)
			}
		})
	}
}

func TestPlanHosting(t *testing.T) {
	t.Parallel()
	group, version := hostingv1alpha1.GroupName, hostingv1alpha1.SchemeGroupVersion.Version
	edited := grouptest.Published(group, version, "")
	edited.Spec.CABundle = []byte("other")
	for name, tc := range map[string]struct {
		current   *APIService
		operation Operation
		reason    string
	}{
		"none":      {nil, Create, ReasonUnavailable},
		"available": {grouptest.Published(group, version, ""), Keep, ReasonPublished},
		"unknown":   {grouptest.Available(grouptest.Published(group, version, ""), apiregistrationv1.ConditionUnknown, "", ""), Keep, ReasonUnavailable},
		"edited":    {edited, Update, ReasonPublished},
		"foreign":   {grouptest.Elsewhere(group, version, "b", "annex"), Keep, ReasonForeignAPIService},
		"defined":   {grouptest.Local(group, version), Keep, ReasonGroupInMain},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var of Objects
			if tc.current != nil {
				of.APIServices = []*APIService{tc.current}
			}
			s := New(group, ours, of)
			if p := s.Plan(); len(p.Versions)+len(p.Remove) > 0 {
				t.Errorf("it is planned as a group of definitions: %+v", p)
			}
			if got := s.PlanHosting(); got.Operation != tc.operation || got.Status.Reason != tc.reason {
				t.Errorf("got operation %d, %+v; want operation %d, %s", got.Operation, got.Status, tc.operation, tc.reason)
			}
		})
	}
}

func TestTakingOverKeepsWhatIsNotOurs(t *testing.T) {
	t.Parallel()
	before := grouptest.Local(groupName, "v1")
	before.Labels["team"] = "a"
	before.Annotations = map[string]string{"note": "b"}
	before.Spec.GroupPriorityMinimum, before.Spec.VersionPriority = 1234, 56
	original := before.DeepCopy()
	got := ours.desired((&State{Name: groupName}).GroupVersion("v1"), before)
	expect.Equal(t, original, before, "the current one was changed")
	want := original.DeepCopy()
	want.Labels = map[string]string{"team": "a", "annex.dev/published-by": "annex-system.annex"}
	want.Annotations["annex.dev/published-store"] = "store-uid"
	want.Spec.CABundle = []byte("CA")
	want.Spec.Service = &apiregistrationv1.ServiceReference{Namespace: "annex-system", Name: "annex", Port: new(int32(443))}
	expect.Equal(t, want, got, "taken over")
}

func TestRemoves(t *testing.T) {
	t.Parallel()
	of := given{annex: definitions(crd(widgets, versions("v1", "-v2"))), routes: routes("v1", RouteAnnex, "v2", RouteAnnex,
		"v3beta1", RouteReverted, "v3", RouteAnnex, "v4", RouteDataReplaced, "v5", RouteForeign, "v6", RouteMain)}
	removed := func() (names []string) {
		for _, current := range of.state().Plan().Remove {
			names = append(names, current.Name)
		}
		return names
	}
	expect.Equal(t, []string{"v2.example.com", "v3.example.com", "v3beta1.example.com"}, removed())
	// The main cluster's definition has v3 again, so annex has to serve it.
	of.main = definitions(crd(widgets, labelled, versions("v1", "v3")), crd(gadgets, versions("v2")))
	expect.Equal(t, []string{"v2.example.com", "v3beta1.example.com"}, removed(), "while a version is awaited")
}

// TestMayHide: nothing that users may write takes a definition over.
func TestMayHide(t *testing.T) {
	t.Parallel()
	following := crd(widgets, follower)
	following.UID, following.Generation = "uid", 3
	of := func(change func(*HostedResource)) *HostedResource {
		resource := takenOver(following)
		change(resource)
		return resource
	}
	bare := &HostedResource{ObjectMeta: metav1.ObjectMeta{Name: widgets}}
	for name, tc := range map[string]struct {
		main, annex *Definition
		hosted      *HostedResource
		want        bool
	}{
		"recorded":           {crd(widgets, labelled), following, of(func(*HostedResource) {}), true},
		"annotation only":    {crd(widgets, labelled), crd(widgets, annotated("annex.dev/takeover", "cleared")), bare, false},
		"follower only":      {crd(widgets, labelled), following, bare, false},
		"not a follower":     {crd(widgets, labelled), crd(widgets), takenOver(crd(widgets)), false},
		"main not labelled":  {crd(widgets), following, of(func(*HostedResource) {}), false},
		"another definition": {crd(widgets, labelled), following, of(func(h *HostedResource) { h.Status.Takeover.DefinitionUID = "before" }), false},
		"another generation": {crd(widgets, labelled), following, of(func(h *HostedResource) { h.Status.Takeover.DefinitionGeneration = 2 }), false},
		"another resource":   {crd(widgets, labelled), following, of(func(h *HostedResource) { h.Name = gadgets }), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := given{main: definitions(tc.main), annex: definitions(tc.annex), hosted: []*HostedResource{tc.hosted}}.state()
			if got := len(s.NotTakenOver()) == 0; got != tc.want {
				t.Errorf("may be hidden: %t, want %t", got, tc.want)
			}
		})
	}
}

func TestPublished(t *testing.T) {
	t.Parallel()
	yes := Status{Status: metav1.ConditionTrue, Reason: ReasonPublished}
	s := given{annex: definitions(crd(widgets, versions("v1beta1", "v1", "-v2")), crd(gadgets, unserved))}.state()
	for name, tc := range map[string]struct {
		resource string
		statuses map[string]Status
		want     string
	}{
		"all":            {widgets, map[string]Status{"v1": yes, "v1beta1": yes}, "True Published The main cluster sends requests to annex: v1, v1beta1"},
		"one not":        {widgets, map[string]Status{"v1": yes, "v1beta1": No("R", "m")}, "False R v1beta1: m"},
		"none":           {widgets, map[string]Status{"v1": No("Q", "n"), "v1beta1": No("R", "m")}, "False Q v1: n"},
		"serves nothing": {gadgets, nil, `False NotServed annex has no CustomResourceDefinition "gadgets.example.com" that serves a version`},
		"not defined":    {"things." + groupName, nil, `False NotServed annex has no CustomResourceDefinition "things.example.com" that serves a version`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := s.Published(tc.resource, tc.statuses)
			expect.Equal(t, tc.want, string(got.Status)+" "+got.Reason+" "+got.Message)
		})
	}
}
