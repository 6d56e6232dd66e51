// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package health

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	annexfake "github.com/annex-dev/annex/pkg/generated/clientset/versioned/fake"
	"github.com/annex-dev/annex/pkg/test/expect"
)

func TestThroughMain(t *testing.T) {
	t.Parallel()
	store := &hostingv1alpha1.Store{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	compare(t, checkThroughMain(t.Context(), annexHas(store).environment()), []want{{LevelOK, "1 Stores are read through the main cluster in 0s", ""}})
	compare(t, []Finding{slow(ok("read"), slowAnswer-1), slow(ok("read"), 2*time.Second)}, []want{{LevelOK, "read", ""}, {LevelWarn, "read, and slow: it took 2s", "kubectl annex top"}})
	away := fixture{}.environment()
	away.Annex.(*annexfake.Clientset).PrependReactor("list", "stores", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewServiceUnavailable("annex is down")
	})
	compare(t, checkThroughMain(t.Context(), away), []want{{LevelFail, "cannot be read through the main cluster: list Stores: annex is down", "kubectl get --raw"}})
}

// TestFastest reads again while it is slow, up to three times.
func TestFastest(t *testing.T) {
	t.Parallel()
	failed := errors.New("failed")
	for name, test := range map[string]struct {
		took  []time.Duration
		err   error
		want  time.Duration
		reads int
	}{
		"fast":        {[]time.Duration{1}, nil, 1, 1},
		"busy once":   {[]time.Duration{slowAnswer, 2}, nil, 2, 2},
		"always slow": {[]time.Duration{slowAnswer, slowAnswer + 2, slowAnswer + 1}, nil, slowAnswer, 3},
		"failed":      {[]time.Duration{slowAnswer}, failed, slowAnswer, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reads := 0
			took, err := fastest(func() (time.Duration, error) {
				reads++
				return test.took[reads-1], test.err
			})
			expect.Equal(t, test.reads, reads, "reads")
			if took != test.want || !errors.Is(err, test.err) {
				t.Errorf("it took %s, %v, want %s, %v", took, err, test.want, test.err)
			}
		})
	}
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
			[]want{{LevelOK, "1 group versions, 1 of annex, in 10ms", ""}}},
		"stale": {answers(aggregatedGroups(map[string]apidiscoveryv2.DiscoveryFreshness{"a.example.com": stale}), legacy, nil),
			[]want{{LevelFail, "discovery of a.example.com/v1 is stale", "logs"}}},
		"another is stale": {answers(aggregatedGroups(map[string]apidiscoveryv2.DiscoveryFreshness{"a.example.com": fresh, "b.example.com": stale}), legacy, nil),
			[]want{{LevelOK, "2 group versions", ""}, {LevelWarn, "b.example.com/v1, which is not annex's, is stale", "kubectl get apiservices"}}},
		"missing":     {missing, []want{{LevelFail, "discovery has no a.example.com/v1", "kubectl api-resources"}, {LevelFail, "unaggregated discovery has no", "kubectl api-resources"}}},
		"broken":      {broken, []want{{LevelFail, "503 Service Unavailable: service unavailable", "kubectl get --raw /apis/a.example.com/v1"}}},
		"old":         {answers(metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList"}}, legacy, nil), []want{{LevelFail, "too old for aggregated discovery", "kubectl get --raw /apis"}}},
		"unavailable": {fixture{apiServices: ours}, []want{{LevelFail, "connection refused", "kubectl get --raw /apis"}}},
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
	e.Save = file
	compare(t, checkOpenAPI(t.Context(), e), []want{{LevelOK, "v2 has 2 paths and 1 definitions, v3 has 2 documents", ""}, {LevelOK, "written to " + file, ""}})

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
			[]want{{LevelOK, "v2 has", ""}, {LevelOK, "nothing has changed outside of annex's groups, and 0 entries inside", ""}}},
		"annex's changed": {documents(
			`{"paths":{"/api/v1/pods":{"get":{},"put":{}},"/apis/a.example.com/v1/others":{}},"definitions":{"io.k8s.Pod":{"a":1,"b":2},"com.example.a.v1.Thing":{},"com.github.annex-dev.annex.pkg.apis.hosting.v1alpha1.Store":{}}}`,
			map[string]string{"api/v1": "{}", "apis/a.example.com/v1": `{"a":1}`}), file,
			[]want{{LevelOK, "v2 has", ""}, {LevelOK, "and 5 entries inside", ""}}},
		"others changed": {documents(
			`{"paths":{"/apis/a.example.com/v1/things":{},"/apis/b.example.com/v1/x":{}},"definitions":{"io.k8s.Pod":{"a":2,"b":2}}}`,
			map[string]string{"apis/a.example.com/v1": "{}"}), file, []want{
			{LevelFail, "definition io.k8s.Pod of v2 was changed", "logs"},
			{LevelFail, "path /api/v1/pods of v2 has vanished", "logs"},
			{LevelFail, "document api/v1 of v3 has vanished", "logs"},
			{LevelWarn, "path /apis/b.example.com/v1/x of v2 has appeared", "logs"},
		}},
		"v2 broken":      {map[string]answer{"/openapi/v2": found(503, []byte("duplicated path"))}, "", []want{{LevelFail, "/openapi/v2: 503 Service Unavailable: duplicated path", "kubectl get --raw /openapi/v2"}}},
		"v2 empty":       {map[string]answer{"/openapi/v2": found(200, []byte("{}"))}, "", []want{{LevelFail, "has no paths", "kubectl get --raw"}}},
		"v3 broken":      {unsound, "", []want{{LevelFail, "/openapi/v3/apis/a.example.com/v1: connection refused", "kubectl get --raw"}}},
		"v3 without us":  {documents(bareV2, map[string]string{"api/v1": "{}"}), "", []want{{LevelFail, "no OpenAPI v3 document of apis/a.example.com/v1", "kubectl get --raw /openapi/v3"}}},
		"another's file": {whole, notWritten, []want{{LevelFail, "was not written by --save", "--save"}}},
		"no file":        {whole, file + ".gone", []want{{LevelFail, "no such file", "--save"}}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := fixture{answers: test.answers, apiServices: ours}.environment()
			e.Compare = test.compare
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
	compare(t, checkOpenAPI(ctx, e), []want{{LevelWarn, "too slow", "doctor"}})
}

// TestOpenAPIReadsLittle: documents of other groups are read only for --save and --compare.
func TestOpenAPIReadsLittle(t *testing.T) {
	t.Parallel()
	others := documents(bareV2, map[string]string{"api/v1": "{}", "apis/a.example.com/v1": "{}"})
	delete(others, "/openapi/v3/api/v1")
	e := fixture{answers: others, apiServices: []runtime.Object{published("v1.a.example.com")}}.environment()
	compare(t, checkOpenAPI(t.Context(), e), []want{{LevelOK, "v3 has 2 documents", ""}})
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
