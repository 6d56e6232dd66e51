// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiservice

import (
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"

	"github.com/annex-dev/annex/pkg/test/expect"
)

const (
	group   = "example.com"
	widgets = "widgets." + group
	gadgets = "gadgets." + group
)

var (
	ourService = Service{Namespace: "annex-system", Name: "annex", Port: 443}
	ours       = template{service: ourService, caBundle: []byte("CA"), store: "store-uid"}
	opened     = gateState{proven: true, settled: true}
	settling   = gateState{proven: true, why: notPublished(reasonWaitingForAnnex, "settling")}
	closed     = gateState{settled: true, why: notPublished(reasonWaitingForAnnex, "not reached")}
)

// crd is an established definition that serves versions; one that begins with "-"
// it has and does not serve.
func crd(name string, versions ...string) *definition {
	resource := schema.ParseGroupResource(name)
	made := &definition{ObjectMeta: metav1.ObjectMeta{Name: name}}
	made.Spec.Group = resource.Group
	made.Spec.Names.Plural = resource.Resource
	for _, version := range versions {
		plain, notServed := strings.CutPrefix(version, "-")
		made.Spec.Versions = append(made.Spec.Versions, apiextensionsv1.CustomResourceDefinitionVersion{Name: plain, Served: !notServed})
	}
	made.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{
		{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue},
	}
	return made
}

// follower follows a definition of the main cluster.
func follower(of *definition) *definition {
	of.UID, of.Generation = "uid", 3
	of.Annotations = map[string]string{hostingv1alpha1.DefinitionFromAnnotation: hostingv1alpha1.DefinitionFromMain}
	return of
}

// cleared is a follower that viewOf clears.
func cleared(of *definition) *definition {
	follower(of).Annotations["test/cleared"] = "yes"
	return of
}

// takeover is the cleared takeover of a definition.
func takeover(crd *definition) *hosted {
	of := &hosted{ObjectMeta: metav1.ObjectMeta{Name: crd.Name}}
	of.Status.Takeover = &hostingv1alpha1.HostedResourceTakeover{DefinitionUID: crd.UID, DefinitionGeneration: crd.Generation}
	return of
}

func labelled(of *definition) *definition {
	of.Labels = map[string]string{hostingv1alpha1.HostedLabel: "true"}
	return of
}

func notEstablished(of *definition) *definition {
	of.Status.Conditions = nil
	return of
}

// published is an APIService as annex makes it, available or not.
func publishedAs(p template, version schema.GroupVersion, available apiregistrationv1.ConditionStatus, message string) *apiService {
	made := p.desired(version, nil)
	made.UID, made.ResourceVersion = "uid", "7"
	if available != "" {
		made.Status.Conditions = []apiregistrationv1.APIServiceCondition{
			{Type: apiregistrationv1.Available, Status: available, Reason: "Checked", Message: message},
		}
	}
	return made
}

func available(version string) *apiService {
	return publishedAs(ours, schema.GroupVersion{Group: group, Version: version}, apiregistrationv1.ConditionTrue, "")
}

// local is an APIService that kube-apiserver made for itself.
func local(version schema.GroupVersion, managed string) *apiService {
	made := &apiService{ObjectMeta: metav1.ObjectMeta{Name: apiServiceName(version)}}
	if managed != "" {
		made.Labels = map[string]string{automanagedLabel: managed}
	}
	made.Spec = apiregistrationv1.APIServiceSpec{Group: version.Group, Version: version.Version, GroupPriorityMinimum: 1000, VersionPriority: 100}
	made.Status.Conditions = []apiregistrationv1.APIServiceCondition{
		{Type: apiregistrationv1.Available, Status: apiregistrationv1.ConditionTrue, Reason: "Local"},
	}
	return made
}

func localOf(version string) *apiService {
	return local(schema.GroupVersion{Group: group, Version: version}, "true")
}

func elsewhere(version schema.GroupVersion, namespace, name string) *apiService {
	made := &apiService{ObjectMeta: metav1.ObjectMeta{Name: apiServiceName(version)}}
	made.Spec = apiregistrationv1.APIServiceSpec{
		Group: version.Group, Version: version.Version, GroupPriorityMinimum: 2000, VersionPriority: 15,
		Service: &apiregistrationv1.ServiceReference{Namespace: namespace, Name: name, Port: ptr.To[int32](443)},
	}
	return made
}

func viewOf(annexDefinitions, mainDefinitions []*definition, apiServices ...*apiService) *view {
	v := &view{group: group, annexDefinitions: annexDefinitions, mainDefinitions: mainDefinitions, apiServices: map[string]*apiService{}}
	for _, crd := range annexDefinitions {
		if crd.Annotations["test/cleared"] != "" {
			v.hosted = append(v.hosted, takeover(crd))
		}
	}
	for _, current := range apiServices {
		v.apiServices[current.Spec.Version] = current
		if ours.ownerOf(current) == annex {
			v.nameResources(current, current.Spec.Version)
		}
	}
	return v
}

// withCondition adds a HostedResource with the condition DefinitionSynced.
func withCondition(v *view) *view {
	resource := &hosted{ObjectMeta: metav1.ObjectMeta{Name: widgets}}
	resource.Status.Conditions = []metav1.Condition{{Type: hostingv1alpha1.HostedResourceDefinitionSynced}}
	v.hosted = append(v.hosted, resource)
	return v
}

func TestDecide(t *testing.T) {
	t.Parallel()
	type definitions = []*definition
	v1 := schema.GroupVersion{Group: group, Version: "v1"}
	v2 := schema.GroupVersion{Group: group, Version: "v2"}
	wrongPort := available("v1")
	wrongPort.Spec.Service.Port = ptr.To[int32](444)
	insecure := available("v1")
	insecure.Spec.CABundle, insecure.Spec.InsecureSkipTLSVerify = nil, true
	backToLocal := localOf("v1")
	backToLocal.Labels[hostingv1alpha1.PublishedByLabel] = "annex-system.annex"
	otherAnnex := elsewhere(v1, "b", "annex")
	otherAnnex.Labels = map[string]string{hostingv1alpha1.PublishedByLabel: "b.annex"}
	justTakenOver := available("v1")
	justTakenOver.Status = localOf("v1").Status

	for name, tc := range map[string]struct {
		view      *view
		gate      gateState
		write     operation
		reason    string
		message   string
		published bool
	}{
		"new":           {view: viewOf(definitions{crd(widgets, "v1")}, nil), gate: opened, write: create, reason: reasonUnavailable},
		"new, not sure": {view: viewOf(definitions{crd(widgets, "v1")}, nil), gate: settling, reason: reasonWaitingForAnnex, message: "settling"},
		"new, not reached now": {
			view: viewOf(definitions{crd(widgets, "v1")}, nil), gate: closed, reason: reasonWaitingForAnnex, message: "not reached",
		},
		"not established": {view: viewOf(definitions{notEstablished(crd(widgets, "v1"))}, nil), gate: opened, reason: reasonNotServed},
		"published":       {view: viewOf(definitions{crd(widgets, "v1")}, nil, available("v1")), gate: opened, reason: reasonPublished, published: true},
		"published, gate shut": {
			view: viewOf(definitions{crd(widgets, "v1")}, nil, available("v1")), gate: closed, reason: reasonPublished, published: true,
		},
		"not checked": {
			view: viewOf(definitions{crd(widgets, "v1")}, nil, publishedAs(ours, v1, "", "")), gate: opened, reason: reasonUnavailable, message: "not checked yet",
		},
		"unavailable": {
			view: viewOf(definitions{crd(widgets, "v1")}, nil, publishedAs(ours, v1, apiregistrationv1.ConditionFalse, "x509: no")),
			gate: opened, reason: reasonUnavailable, message: "Checked: x509: no",
		},
		"just taken over":           {view: viewOf(definitions{crd(widgets, "v1")}, nil, justTakenOver), gate: opened, reason: reasonUnavailable, message: "not checked yet"},
		"edited":                    {view: viewOf(definitions{crd(widgets, "v1")}, nil, wrongPort), gate: opened, write: update, reason: reasonPublished, published: true},
		"edited, while settling":    {view: viewOf(definitions{crd(widgets, "v1")}, nil, wrongPort), gate: settling, write: update, reason: reasonPublished, published: true},
		"edited, while not reached": {view: viewOf(definitions{crd(widgets, "v1")}, nil, wrongPort), gate: closed, reason: reasonPublished, published: true},
		"made insecure":             {view: viewOf(definitions{crd(widgets, "v1")}, nil, insecure), gate: opened, write: update, reason: reasonPublished, published: true},
		"made local":                {view: viewOf(definitions{crd(widgets, "v1")}, nil, backToLocal), gate: opened, write: update, reason: reasonUnavailable},
		"foreign": {
			view: viewOf(definitions{crd(widgets, "v1")}, nil, elsewhere(v1, "other", "server")), gate: opened,
			reason: reasonForeignAPIService, message: "Service other/server, not to annex",
		},
		"another annex's": {
			view: viewOf(definitions{crd(widgets, "v1")}, nil, otherAnnex), gate: opened, reason: reasonForeignAPIService, message: `publishes as "b.annex"`,
		},
		"without the label": {
			view: viewOf(definitions{crd(widgets, "v1")}, nil, elsewhere(v1, "annex-system", "annex")), gate: opened,
			reason: reasonForeignAPIService, message: "kubectl label apiservice v1.example.com annex.dev/published-by=annex-system.annex",
		},
		"another version is foreign": {
			view: viewOf(definitions{crd(widgets, "v1")}, nil, elsewhere(v2, "other", "server")), gate: opened,
			reason: reasonForeignAPIService, message: "APIService v2.example.com",
		},
		"another version is foreign, and ours is there": {
			view: viewOf(definitions{crd(widgets, "v1")}, nil, available("v1"), elsewhere(v2, "other", "server")), gate: opened, reason: reasonPublished, published: true,
		},
		"built in": {
			view: viewOf(definitions{crd(widgets, "v1")}, nil, local(v1, "onstart")), gate: opened, reason: reasonGroupInMain, message: "example.com/v1 itself",
		},
		"another version is built in": {
			view: viewOf(definitions{crd(widgets, "v1")}, nil, local(v2, "onstart")), gate: opened, reason: reasonGroupInMain, message: "example.com/v2 itself",
		},
		"local by hand": {view: viewOf(definitions{crd(widgets, "v1")}, nil, local(v1, "")), gate: opened, reason: reasonGroupInMain},
		"main defines it": {
			view: viewOf(definitions{crd(widgets, "v1")}, definitions{crd(widgets, "v1")}, localOf("v1")), gate: opened,
			reason: reasonGroupInMain, message: "kubectl label crd widgets.example.com annex.dev/hosted=true",
		},
		"main defines it, and crdsync says what to do": {
			view: withCondition(viewOf(definitions{crd(widgets, "v1")}, definitions{crd(widgets, "v1")}, localOf("v1"))), gate: opened,
			reason: reasonGroupInMain, message: "annex has not taken over: widgets.example.com. See the condition DefinitionSynced",
		},
		"main defines it, and its APIService is not made yet": {
			view: viewOf(definitions{crd(widgets, "v1")}, definitions{crd(widgets, "v1")}), gate: opened, reason: reasonGroupInMain, message: widgets,
		},
		"main has it and serves none of it": {
			view: viewOf(definitions{crd(widgets, "v1")}, definitions{crd(widgets, "-v1")}), gate: opened, write: create, reason: reasonUnavailable,
		},
		"labelled, not cleared": {
			view: viewOf(definitions{crd(widgets, "v1")}, definitions{labelled(crd(widgets, "v1"))}, localOf("v1")), gate: opened,
			reason: reasonGroupInMain, message: "annex has not taken over: widgets.example.com",
		},
		"cleared": {
			view: viewOf(definitions{cleared(crd(widgets, "v1"))}, definitions{labelled(crd(widgets, "v1"))}, localOf("v1")), gate: opened, write: takeOver, reason: reasonUnavailable,
		},
		"cleared, and not settled": {
			view: viewOf(definitions{cleared(crd(widgets, "v1"))}, definitions{labelled(crd(widgets, "v1"))}, localOf("v1")), gate: settling, reason: reasonWaitingForAnnex,
		},
		"cleared before main registers it": {
			view: viewOf(definitions{cleared(crd(widgets, "v1"))}, definitions{labelled(crd(widgets, "v1"))}), gate: opened, write: create, reason: reasonUnavailable,
		},
		"one of two cleared": {
			view: viewOf(definitions{cleared(crd(widgets, "v1"))}, definitions{labelled(crd(widgets, "v1")), crd(gadgets, "v1")}, localOf("v1")), gate: opened,
			reason: reasonGroupInMain, message: "kubectl label crd gadgets.example.com annex.dev/hosted=true",
		},
		"one of two cleared, of another version": {
			view: viewOf(definitions{cleared(crd(widgets, "v1"))}, definitions{labelled(crd(widgets, "v1")), crd(gadgets, "v2")}, localOf("v1"), localOf("v2")), gate: opened,
			reason: reasonGroupInMain, message: gadgets,
		},
		"local, and defined by nothing": {
			view: viewOf(definitions{cleared(crd(widgets, "v1"))}, nil, localOf("v1")), gate: opened, reason: reasonGroupInMain, message: "still has the local APIService",
		},
		"an unlabelled definition came after": {
			view: viewOf(definitions{cleared(crd(widgets, "v1"))}, definitions{crd(gadgets, "v1")}, available("v1")), gate: opened, reason: reasonPublished, published: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := decide(tc.view, "v1", ours, tc.gate)
			if got.operation != tc.write || got.status.reason != tc.reason || got.status.published != tc.published || !strings.Contains(got.status.message, tc.message) {
				t.Errorf("got write %d, %+v; want write %d, %s, published %t, message with %q",
					got.operation, got.status, tc.write, tc.reason, tc.published, tc.message)
			}
			if (got.operation == keep) != (got.apiService == nil) {
				t.Errorf("write %d of %v", got.operation, got.apiService)
			}
			if got.operation != keep && differs(got.apiService, ours.desired(v1, got.apiService)) {
				t.Errorf("what is to be written would be changed again: %+v", got.apiService)
			}
		})
	}
}

func TestDecideHosting(t *testing.T) {
	t.Parallel()
	edited := publishedAs(ours, hostingVersion, apiregistrationv1.ConditionTrue, "")
	edited.Spec.CABundle = []byte("other")
	for name, tc := range map[string]struct {
		current *apiService
		write   operation
		reason  string
	}{
		"none":      {nil, create, reasonUnavailable},
		"available": {publishedAs(ours, hostingVersion, apiregistrationv1.ConditionTrue, ""), keep, reasonPublished},
		"unknown":   {publishedAs(ours, hostingVersion, apiregistrationv1.ConditionUnknown, ""), keep, reasonUnavailable},
		"edited":    {edited, update, reasonPublished},
		"foreign":   {elsewhere(hostingVersion, "b", "annex"), keep, reasonForeignAPIService},
		"defined":   {local(hostingVersion, "true"), keep, reasonGroupInMain},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := decideHosting(tc.current, ours); got.operation != tc.write || got.status.reason != tc.reason {
				t.Errorf("got write %d, %+v; want write %d, %s", got.operation, got.status, tc.write, tc.reason)
			}
		})
	}
}

func TestTakingOverKeepsWhatIsNotOurs(t *testing.T) {
	t.Parallel()
	before := localOf("v1")
	before.Labels["team"] = "a"
	before.Annotations = map[string]string{"note": "b"}
	before.Spec.GroupPriorityMinimum, before.Spec.VersionPriority = 1234, 56
	before.ResourceVersion = "9"
	original := before.DeepCopy()
	got := ours.desired(schema.GroupVersion{Group: group, Version: "v1"}, before)
	expect.Equal(t, original, before, "the current one was changed")
	want := &apiService{
		ObjectMeta: metav1.ObjectMeta{
			Name: "v1.example.com", ResourceVersion: "9",
			Labels:      map[string]string{"team": "a", "annex.dev/published-by": "annex-system.annex"},
			Annotations: map[string]string{"note": "b", "annex.dev/published-store": "store-uid"},
		},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: group, Version: "v1", CABundle: []byte("CA"), GroupPriorityMinimum: 1234, VersionPriority: 56,
			Service: &apiregistrationv1.ServiceReference{Namespace: "annex-system", Name: "annex", Port: ptr.To[int32](443)},
		},
		Status: original.Status,
	}
	expect.Equal(t, want, got, "taken over")
}

func TestLeftovers(t *testing.T) {
	t.Parallel()
	otherData := publishedAs(template{service: ourService, caBundle: []byte("CA"), store: "old"}, schema.GroupVersion{Group: group, Version: "v4"}, "", "")
	v := viewOf([]*definition{crd(widgets, "v1", "-v2")}, nil,
		available("v1"), available("v2"), available("v3beta1"), available("v3"), otherData,
		elsewhere(schema.GroupVersion{Group: group, Version: "v5"}, "x", "y"), localOf("v6"))
	expect.Equal(t, []string{"v3", "v2", "v3beta1"}, v.staleVersions(ours), "leftovers")
	expect.Equal(t, []string{"v4"}, v.mismatchedVersions(ours), "of other data")
	// The main cluster asks annex to serve v3 again.
	v.mainDefinitions = []*definition{labelled(crd(widgets, "v1", "v3")), crd("gadgets."+group, "v2")}
	expect.Equal(t, []string{"v2", "v3beta1"}, v.staleVersions(ours), "leftovers while a version is awaited")
	if got := v.staleVersions(template{service: ourService}); len(got) > 0 {
		t.Errorf("leftovers %v although it is not known what data this is", got)
	}
}

// TestClearance: nothing that users may write takes a definition over.
func TestClearance(t *testing.T) {
	t.Parallel()
	main := labelled(crd(widgets, "v1"))
	of := func(change func(*hosted)) *hosted {
		resource := takeover(follower(crd(widgets, "v1")))
		change(resource)
		return resource
	}
	annotated := crd(widgets, "v1")
	annotated.Annotations = map[string]string{"annex.dev/takeover": "cleared"}
	for name, tc := range map[string]struct {
		main, annex *definition
		hosted      *hosted
		want        bool
	}{
		"cleared":            {main, follower(crd(widgets, "v1")), of(func(*hosted) {}), true},
		"annotation only":    {main, annotated, &hosted{ObjectMeta: metav1.ObjectMeta{Name: widgets}}, false},
		"follower only":      {main, follower(crd(widgets, "v1")), &hosted{ObjectMeta: metav1.ObjectMeta{Name: widgets}}, false},
		"not a follower":     {main, crd(widgets, "v1"), takeover(crd(widgets, "v1")), false},
		"main not labelled":  {crd(widgets, "v1"), follower(crd(widgets, "v1")), of(func(*hosted) {}), false},
		"another definition": {main, follower(crd(widgets, "v1")), of(func(h *hosted) { h.Status.Takeover.DefinitionUID = "before" }), false},
		"another generation": {main, follower(crd(widgets, "v1")), of(func(h *hosted) { h.Status.Takeover.DefinitionGeneration = 2 }), false},
		"another resource":   {main, follower(crd(widgets, "v1")), of(func(h *hosted) { h.Name = gadgets }), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := isCleared(tc.main, []*definition{tc.annex}, []*hosted{tc.hosted}); got != tc.want {
				t.Errorf("cleared %t, want %t", got, tc.want)
			}
		})
	}
}

var epoch = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

func TestGate(t *testing.T) {
	t.Parallel()
	yes := status{published: true, reason: reasonPublished}
	no := notPublished(reasonWaitingForAnnex, "no")
	foreigner := notPublished(reasonForeignAPIService, "b/annex")

	type step struct {
		after   time.Duration
		saw     status
		open    bool
		proven  bool
		changed bool
		again   time.Duration
		reason  string
	}
	for name, steps := range map[string][]step{
		"settles": {
			{0, no, false, false, true, 0, reasonWaitingForAnnex},
			{time.Second, no, false, false, false, 0, reasonWaitingForAnnex},
			{2 * time.Second, yes, false, true, true, 5 * time.Second, reasonWaitingForAnnex},
			{4 * time.Second, yes, false, true, false, 3 * time.Second, reasonWaitingForAnnex},
			{7 * time.Second, yes, true, true, true, 0, ""},
			{8 * time.Second, yes, true, true, false, 0, ""},
		},
		"begins anew when it does not last": {
			{0, yes, false, true, true, 5 * time.Second, reasonWaitingForAnnex},
			{4 * time.Second, no, false, false, true, 0, reasonWaitingForAnnex},
			{5 * time.Second, yes, false, true, true, 5 * time.Second, reasonWaitingForAnnex},
			{9 * time.Second, yes, false, true, false, time.Second, reasonWaitingForAnnex},
			{10 * time.Second, yes, true, true, true, 0, ""},
		},
		"settles once": {
			{0, yes, false, true, true, 5 * time.Second, reasonWaitingForAnnex},
			{5 * time.Second, yes, true, true, true, 0, ""},
			{6 * time.Second, no, false, false, true, 0, reasonWaitingForAnnex},
			{7 * time.Second, yes, true, true, true, 0, ""},
		},
		"names the definitions": {
			{0, foreigner, false, false, true, 0, reasonForeignAPIService},
			{time.Second, foreigner, false, false, false, 0, reasonForeignAPIService},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGate(5 * time.Second)
			for i, s := range steps {
				changed, again := g.observe(s.saw, []byte("CA"), epoch.Add(s.after))
				state := g.get()
				if state.open() != s.open || state.proven != s.proven || changed != s.changed || again != s.again || state.why.reason != s.reason {
					t.Errorf("step %d: %+v, changed %t, again %s; want %+v", i, state, changed, again, s)
				}
			}
		})
	}
}

func TestGateIsForTheCertificatesItWasProvenWith(t *testing.T) {
	t.Parallel()
	g := newGate(time.Second)
	g.observe(status{published: true}, []byte("CA"), epoch)
	g.observe(status{published: true}, []byte("CA"), epoch.Add(time.Second))
	if state := g.get().with([]byte("CA")); !state.open() {
		t.Errorf("not open: %+v", state)
	}
	if state := g.get().with([]byte("new CA")); state.proven || state.why.reason != reasonWaitingForAnnex {
		t.Errorf("proven with certificates that the main cluster has not seen: %+v", state)
	}
	if changed, _ := g.observe(status{published: true}, []byte("new CA"), epoch.Add(time.Second)); !changed || !g.get().with([]byte("new CA")).open() {
		t.Error("not open with the certificates it is proven with")
	}
}
