// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/annex-dev/annex/pkg/aggregated/group/grouptest"
	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/expect"
)

func hosted(name string, conditions ...metav1.Condition) *hostingv1alpha1.HostedResource {
	return &hostingv1alpha1.HostedResource{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: hostingv1alpha1.HostedResourceStatus{Conditions: conditions}}
}

func TestThroughMain(t *testing.T) {
	t.Parallel()
	store := &hostingv1alpha1.Store{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	down := store.DeepCopy()
	down.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: metav1.ConditionFalse, Reason: "Unreachable", Message: "m"}}
	runCheck(t, checkThroughMain, map[string]checkTest{
		"fine":        {fixture{annexObjects: []runtime.Object{store}}, []want{{statusOK, `store "default" is read through the main cluster in 0s`, ""}}},
		"unavailable": {fixture{}, []want{{statusFail, "cannot be read through the main cluster", "kubectl get --raw"}}},
		"no etcd":     {fixture{annexObjects: []runtime.Object{down}}, []want{{statusFail, "its store is not ready: Unreachable: m", "kubectl get store default"}}},
	})
}

func TestResources(t *testing.T) {
	t.Parallel()
	status := func(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message}
	}
	fine := hosted("a.example.com", status("DefinitionSynced", "True", "Synced", ""), status("Published", "True", "Published", ""), status("Ready", "True", "Ready", ""))
	tests := map[string]checkTest{
		"fine":              {fixture{annexObjects: []runtime.Object{fine}, definitions: []runtime.Object{grouptest.CRD("a.example.com", grouptest.Labelled)}}, []want{{statusOK, "1 resources without a problem", ""}}},
		"none":              {fixture{}, []want{{statusOK, "0 resources", ""}}},
		"no HostedResource": {fixture{definitions: []runtime.Object{grouptest.CRD("a.example.com", grouptest.Labelled)}}, []want{{statusFail, "a.example.com is labelled annex.dev/hosted=true, and has no HostedResource", "logs"}}},
		"a command": {fixture{annexObjects: []runtime.Object{hosted("a.example.com",
			status("DefinitionSynced", "False", "GroupIncomplete", "not labelled: b. Label them: kubectl label crd b annex.dev/hosted=true"), status("Ready", "False", "NotPublished", "m"))}},
			[]want{{statusFail, "a.example.com: DefinitionSynced is False: GroupIncomplete: not labelled: b. Label them", "kubectl label crd b annex.dev/hosted=true"}}},
		"waiting": {fixture{annexObjects: []runtime.Object{hosted("a.example.com", status("DefinitionSynced", "Unknown", "TakingOver", "m"))}}, []want{{statusWarn, "TakingOver: m", "kubectl describe hostedresource a.example.com"}}},
		"objects to move": {fixture{annexObjects: []runtime.Object{hosted("a.example.com", status("DefinitionSynced", "False", "ObjectsExist", "Move the group with its objects: kubectl annex move example.com"))}},
			[]want{{statusFail, "ObjectsExist: Move the group with its objects", "kubectl annex move example.com"}}},
		"objects": {fixture{annexObjects: []runtime.Object{hosted("a.example.com", status("DefinitionSynced", "False", "ObjectsExist", "m"))}}, []want{{statusFail, "ObjectsExist", "kubectl get a.example.com -A"}}},
		"refused": {fixture{annexObjects: []runtime.Object{hosted("a.example.com", status("DefinitionSynced", "False", "Rejected", "m"))}}, []want{{statusFail, "Rejected", "kubectl edit crd a.example.com"}}},
		"foreign": {fixture{annexObjects: []runtime.Object{hosted("a.example.com", status("Published", "False", "ForeignAPIService", "m"))}}, []want{{statusFail, "ForeignAPIService", "kubectl get apiservices | grep example.com"}}},
		"gone":    {fixture{annexObjects: []runtime.Object{hosted("a.example.com", status("DefinitionSynced", "False", "MainDefinitionDeleted", "m"))}}, []want{{statusFail, "MainDefinitionDeleted", "kubectl get hostedresource a.example.com"}}},
		"terminating": {fixture{annexObjects: []runtime.Object{hosted("a.example.com", status("DefinitionSynced", "False", "Terminating", "1 left"), status("Ready", "False", "Terminating", "m"))}},
			[]want{{statusWarn, "Terminating: 1 left", "kubectl describe hostedresource a.example.com"}}},
		"not ready": {fixture{annexObjects: []runtime.Object{hosted("a.example.com", status("Ready", "False", "StoreNotReady", "m"))}}, []want{{statusFail, "Ready is False: StoreNotReady", "kubectl describe"}}},
	}
	runCheck(t, checkResources, tests)
}

func aggregatedGroups(versions map[string]apidiscoveryv2.DiscoveryFreshness) apidiscoveryv2.APIGroupDiscoveryList {
	list := apidiscoveryv2.APIGroupDiscoveryList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupDiscoveryList"}}
	for group, freshness := range versions {
		list.Items = append(list.Items, apidiscoveryv2.APIGroupDiscovery{
			ObjectMeta: metav1.ObjectMeta{Name: group},
			Versions:   []apidiscoveryv2.APIVersionDiscovery{{Version: "v1", Freshness: freshness}},
		})
	}
	return list
}

func TestDiscovery(t *testing.T) {
	t.Parallel()
	const fresh, stale = apidiscoveryv2.DiscoveryFreshnessCurrent, apidiscoveryv2.DiscoveryFreshnessStale
	legacy := metav1.APIGroupList{Groups: []metav1.APIGroup{{Name: "a.example.com", Versions: []metav1.GroupVersionForDiscovery{{GroupVersion: "a.example.com/v1"}}}}}
	ours := []runtime.Object{published("v1.a.example.com")}
	answers := func(aggregated, legacy, version any) fixture {
		return fixture{apiServices: ours, answers: map[string]answer{
			"/apis " + aggregatedDiscovery: found(200, aggregated), "/apis application/json": found(200, legacy), "/apis/a.example.com/v1": found(200, version),
		}}
	}
	missing := answers(aggregatedGroups(nil), metav1.APIGroupList{}, nil)
	broken := answers(aggregatedGroups(map[string]apidiscoveryv2.DiscoveryFreshness{"a.example.com": fresh}), legacy, nil)
	broken.answers["/apis/a.example.com/v1"] = found(503, []byte("service unavailable"))
	tests := map[string]checkTest{
		"fine": {answers(aggregatedGroups(map[string]apidiscoveryv2.DiscoveryFreshness{"a.example.com": fresh}), legacy, nil),
			[]want{{statusOK, "1 group versions, 1 of annex, in 10ms", ""}}},
		"stale": {answers(aggregatedGroups(map[string]apidiscoveryv2.DiscoveryFreshness{"a.example.com": stale}), legacy, nil),
			[]want{{statusFail, "discovery of a.example.com/v1 is stale", "logs"}}},
		"another is stale": {answers(aggregatedGroups(map[string]apidiscoveryv2.DiscoveryFreshness{"a.example.com": fresh, "b.example.com": stale}), legacy, nil),
			[]want{{statusOK, "2 group versions", ""}, {statusWarn, "b.example.com/v1, which is not annex's, is stale", "kubectl get apiservices"}}},
		"missing":     {missing, []want{{statusFail, "discovery has no a.example.com/v1", "kubectl api-resources"}, {statusFail, "unaggregated discovery has no", "kubectl api-resources"}}},
		"broken":      {broken, []want{{statusFail, "503 Service Unavailable: service unavailable", "kubectl get --raw /apis/a.example.com/v1"}}},
		"old":         {answers(metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList"}}, legacy, nil), []want{{statusFail, "too old for aggregated discovery", "kubectl get --raw /apis"}}},
		"unavailable": {fixture{apiServices: ours}, []want{{statusFail, "connection refused", "kubectl get --raw /apis"}}},
	}
	runCheck(t, checkDiscovery, tests)
}

// documents answers as a main cluster with these documents.
func documents(v2 string, v3 map[string]string) map[string]answer {
	answers := map[string]answer{"/openapi/v2": found(200, []byte(v2))}
	root := map[string]map[string]map[string]string{"paths": {}}
	for path, document := range v3 {
		root["paths"][path] = map[string]string{"serverRelativeURL": "/openapi/v3/" + path + "?hash=x"}
		answers["/openapi/v3/"+path] = found(200, []byte(document))
	}
	answers["/openapi/v3"] = found(200, root)
	return answers
}

const bareV2 = `{"paths":{"/api/v1/pods":{"get":{},"put":{}},"/apis/a.example.com/v1/things":{}},"definitions":{"io.k8s.Pod":{"a":1,"b":2}}}`

func TestOpenAPI(t *testing.T) {
	t.Parallel()
	ours := []runtime.Object{published("v1.a.example.com")}
	whole := documents(bareV2, map[string]string{"api/v1": "{}", "apis/a.example.com/v1": "{}"})
	file := filepath.Join(t.TempDir(), "before.json")
	e := fixture{answers: whole, apiServices: ours}.environment()
	e.save = file
	compare(t, checkOpenAPI(t.Context(), e), []want{{statusOK, "v2 has 2 paths and 1 definitions, v3 has 2 documents", ""}, {statusOK, "written to " + file, ""}})

	unsound := documents(bareV2, map[string]string{"apis/a.example.com/v1": "{}"})
	delete(unsound, "/openapi/v3/apis/a.example.com/v1")
	notWritten := filepath.Join(t.TempDir(), "other.json")
	expect.NoError(t, os.WriteFile(notWritten, []byte("{}"), 0o600))
	tests := map[string]struct {
		answers map[string]answer
		compare string
		want    []want
	}{
		"the same in another order": {documents(
			`{"definitions":{"io.k8s.Pod":{"b":2,"a":1}},"paths":{"/apis/a.example.com/v1/things":{},"/api/v1/pods":{"put":{},"get":{}}}}`,
			map[string]string{"api/v1": "{ }", "apis/a.example.com/v1": "{}"}), file,
			[]want{{statusOK, "v2 has", ""}, {statusOK, "nothing has changed outside of annex's groups, and 0 entries inside", ""}}},
		"annex's changed": {documents(
			`{"paths":{"/api/v1/pods":{"get":{},"put":{}},"/apis/a.example.com/v1/others":{}},"definitions":{"io.k8s.Pod":{"a":1,"b":2},"com.example.a.v1.Thing":{},"com.github.annex-dev.annex.pkg.apis.hosting.v1alpha1.Store":{}}}`,
			map[string]string{"api/v1": "{}", "apis/a.example.com/v1": `{"a":1}`}), file,
			[]want{{statusOK, "v2 has", ""}, {statusOK, "and 5 entries inside", ""}}},
		"others changed": {documents(
			`{"paths":{"/apis/a.example.com/v1/things":{},"/apis/b.example.com/v1/x":{}},"definitions":{"io.k8s.Pod":{"a":2,"b":2}}}`,
			map[string]string{"apis/a.example.com/v1": "{}"}), file, []want{
			{statusFail, "definition io.k8s.Pod of v2 was changed", "logs"},
			{statusFail, "path /api/v1/pods of v2 has vanished", "logs"},
			{statusFail, "document api/v1 of v3 has vanished", "logs"},
			{statusWarn, "path /apis/b.example.com/v1/x of v2 has appeared", "logs"},
		}},
		"v2 broken":      {map[string]answer{"/openapi/v2": found(503, []byte("duplicated path"))}, "", []want{{statusFail, "/openapi/v2: 503 Service Unavailable: duplicated path", "kubectl get --raw /openapi/v2"}}},
		"v2 empty":       {map[string]answer{"/openapi/v2": found(200, []byte("{}"))}, "", []want{{statusFail, "has no paths", "kubectl get --raw"}}},
		"v3 broken":      {unsound, "", []want{{statusFail, "/openapi/v3/apis/a.example.com/v1: connection refused", "kubectl get --raw"}}},
		"v3 without us":  {documents(bareV2, map[string]string{"api/v1": "{}"}), "", []want{{statusFail, "no OpenAPI v3 document of apis/a.example.com/v1", "kubectl get --raw /openapi/v3"}}},
		"another's file": {whole, notWritten, []want{{statusFail, "was not written by --save", "--save"}}},
		"no file":        {whole, file + ".gone", []want{{statusFail, "no such file", "--save"}}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := fixture{answers: test.answers, apiServices: ours}.environment()
			e.compare = test.compare
			compare(t, checkOpenAPI(t.Context(), e), test.want)
		})
	}
}

// TestOpenAPIOfSlowCluster: that a main cluster has no time for its documents is no failure of annex.
func TestOpenAPIOfSlowCluster(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	e := fixture{answers: map[string]answer{}, apiServices: []runtime.Object{published("v1.a.example.com")}}.environment()
	compare(t, checkOpenAPI(ctx, e), []want{{statusWarn, "too slow", "doctor"}})
}

// TestOpenAPIReadsLittle: documents of other groups are read only for --save and --compare.
func TestOpenAPIReadsLittle(t *testing.T) {
	t.Parallel()
	others := documents(bareV2, map[string]string{"api/v1": "{}", "apis/a.example.com/v1": "{}"})
	delete(others, "/openapi/v3/api/v1")
	e := fixture{answers: others, apiServices: []runtime.Object{published("v1.a.example.com")}}.environment()
	compare(t, checkOpenAPI(t.Context(), e), []want{{statusOK, "v3 has 2 documents", ""}})
}

func TestInGroups(t *testing.T) {
	t.Parallel()
	groups := []string{"example.com"}
	for entry, want := range map[string]bool{
		"/apis/example.com/v1/things": true, "/apis/example.com/": true, "apis/example.com/v1": true, "com.example.v1.Thing": true,
		"/apis/other.example.com/v1": false, "apis/example.community/v1": false, "com.example2.v1.Thing": false, "io.k8s.api.core.v1.Pod": false,
		"com.github.annex-dev.annex.pkg.apis.hosting.v1alpha1.Store": true,
	} {
		if got := inGroups(entry, groups); got != want {
			t.Errorf("%s: %v", entry, got)
		}
	}
}

func TestGet(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusTeapot)
		_ = json.NewEncoder(w).Encode(r.Header.Get("Accept"))
	}))
	defer server.Close()
	got, err := get(t.Context(), server.Client(), server.URL, "text/plain")
	expect.NoError(t, err)
	if got.status != http.StatusTeapot || string(got.body) != "\"text/plain\"\n" || got.answered.Before(got.sent) {
		t.Errorf("%+v", got)
	}
}
