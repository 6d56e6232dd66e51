// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package health

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsfake "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/fake"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	aggregatorfake "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/fake"

	"github.com/annex-dev/annex/pkg/aggregated/maincluster"
	"github.com/annex-dev/annex/pkg/cmd/internal/footprint"
	"github.com/annex-dev/annex/pkg/cmd/internal/login"
	annexfake "github.com/annex-dev/annex/pkg/generated/clientset/versioned/fake"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// noon is the current time of the tests.
var noon = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

// fixture is a main cluster with the objects that checks read.
type fixture struct {
	kube                                   []runtime.Object
	apiServices, definitions, annexObjects []runtime.Object
	answers                                map[string]answer // by path, or path and media type
	denied                                 []string          // rights that annex does not have
}

func (w fixture) environment() *environment {
	kube := fake.NewClientset(w.kube...)
	kube.PrependReactor("create", "subjectaccessreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		review := action.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview).DeepCopy()
		asked := footprint.Right{ResourceAttributes: *review.Spec.ResourceAttributes}
		review.Status.Allowed = !slices.Contains(w.denied, asked.String())
		return true, review, nil
	})
	e := &environment{
		Options: Options{Program: "annex", Service: maincluster.DefaultService(), ServiceGiven: true, ServiceAccount: manifestServiceAccount},

		Clients: &login.Clients{
			Kube: kube, APIServices: aggregatorfake.NewClientset(w.apiServices...).ApiregistrationV1().APIServices(),
			Definitions: apiextensionsfake.NewClientset(w.definitions...), Annex: annexfake.NewClientset(w.annexObjects...),
		},
		scope: Doctor, server: Server{Address: "https://main"},
		get: func(_ context.Context, path, accept string) (*answer, error) {
			for _, key := range []string{path + " " + accept, path} {
				if found, is := w.answers[key]; is {
					return &found, nil
				}
			}
			return nil, errors.New("connection refused")
		},
		now: func() time.Time { return noon },
	}
	if resource, err := e.readObjects(context.Background()); err != nil {
		panic(resource + ": " + err.Error()) // of fakes
	}
	objects, err := ReadObjects(context.Background(), e.Annex)
	if err != nil {
		panic(err) // of fakes
	}
	e.objects = objects
	return e
}

func found(status int, body any) answer {
	content, isBytes := body.([]byte)
	if !isBytes {
		content, _ = json.Marshal(body)
	}
	return answer{status: status, body: content, header: http.Header{}, sent: noon, answered: noon.Add(10 * time.Millisecond)}
}

// wants compares findings with lines of status, words that the message has, and
// words that the mending command has.
type want struct {
	status  Level
	message string
	fix     string
}

// checkTest is a check in a fixture.
type checkTest struct {
	fixture fixture
	want    []want
}

func runCheck(t *testing.T, check func(context.Context, *environment) []Finding, tests map[string]checkTest) {
	t.Helper()
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			compare(t, check(t.Context(), test.fixture.environment()), test.want)
		})
	}
}

func kube(objects ...runtime.Object) fixture { return fixture{kube: objects} }

func compare(t *testing.T, got []Finding, wants []want) {
	t.Helper()
	for i, f := range got {
		if i >= len(wants) {
			t.Errorf("one finding too many: %+v", f)
			continue
		}
		if w := wants[i]; f.Level != w.status || !strings.Contains(f.Message, w.message) || !strings.Contains(f.Fix, w.fix) {
			t.Errorf("finding %d is %+v, want %+v", i, f, w)
		}
		if destroying.MatchString(f.Fix) {
			t.Errorf("finding %d offers a command that destroys: %+v", i, f)
		}
		if f.Level == LevelFail && f.Fix == "" {
			t.Errorf("finding %d has no command: %+v", i, f)
		}
		if f.Level == LevelOK && f.Fix != "" {
			t.Errorf("finding %d mends what is well: %+v", i, f)
		}
	}
	for _, w := range wants[min(len(got), len(wants)):] {
		t.Errorf("there is no finding %+v", w)
	}
}

// TestConditionsOfOtherReleases: a condition may have been written by another release of annex.
func TestConditionsOfOtherReleases(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]string{
		"It is not labelled. Let it follow: kubectl label crd a.example.com annex.dev/hosted=true": "kubectl label crd a.example.com annex.dev/hosted=true",
		"It had other data. Start without it: kubectl delete apiservice v1.example.com":            "",
		"Let it go: kubectl patch crd a.example.com -p '{\"metadata\":{\"finalizers\":null}}'":     "",
	} {
		if text, command := splitCommand(message); command != want || text == "" {
			t.Errorf("%s: offers %q", message, command)
		}
	}
}

func TestOrderOfChecks(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, c := range checks {
		if seen[c.name] {
			t.Errorf("there are two checks %s", c.name)
		}
		for _, earlier := range c.after {
			if !seen[earlier] {
				t.Errorf("%s comes after %s, which comes later or never", c.name, earlier)
			}
		}
		seen[c.name] = true
	}
}

func TestExamine(t *testing.T) {
	t.Parallel()
	returns := func(all ...Finding) func(context.Context, *environment) []Finding {
		return func(context.Context, *environment) []Finding { return all }
	}
	got := examine(t.Context(), nil, []check{
		{name: "a", run: returns(ok("fine"), warn("look", "hm"))},
		{name: "b", after: []string{"a"}, run: returns(fail("fix", "broken %d", 1), ok("rest"))},
		{name: "c", after: []string{"b"}, run: returns(ok("never"))},
		{name: "d", after: []string{"c", "e"}, run: returns(ok("never"))},
		{name: "e", after: []string{"not in the scope"}, run: returns(skip("no right"))},
		{name: "f", after: []string{"e"}, run: returns(ok("never"))},
		{name: "g", after: []string{"f"}, run: returns(info("", "independent"))},
	})
	want := []Finding{
		{Check: "a", Level: LevelOK, Message: "fine"},
		{Check: "a", Level: LevelWarn, Message: "hm", Fix: "look"},
		{Check: "b", Level: LevelFail, Message: "broken 1", Fix: "fix"},
		{Check: "b", Level: LevelOK, Message: "rest"},
		{Check: "c", Level: LevelSkip, Message: "skipped, because this fails: b"},
		{Check: "d", Level: LevelSkip, Message: "skipped, because this fails: c"},
		{Check: "e", Level: LevelSkip, Message: "no right"},
		{Check: "f", Level: LevelSkip, Message: "skipped, because this is not known: e"},
		{Check: "g", Level: LevelInfo, Message: "independent"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if Failed(got) != 1 {
		t.Errorf("%d failed, want 1", Failed(got))
	}
	if attention := (&Report{Findings: got}).Attention(); len(attention) != 3 {
		t.Errorf("%d findings need attention, want those with warn, FAIL and info", len(attention))
	}
}

func TestPrint(t *testing.T) {
	t.Parallel()
	since := metav1.NewTime(time.Now().Add(-72 * time.Hour))
	findings := []Finding{
		{Check: "clock", Level: LevelOK, Message: "fine"},
		{Check: "main-cluster", Level: LevelFail, Message: "two\nlines", Fix: "kubectl cluster-info", Since: &since},
	}
	var text bytes.Buffer
	expect.NoError(t, Print(&text, findings))
	want := "ok    clock         fine\n" +
		"FAIL  main-cluster  two\n" +
		"                    lines (for 3d)\n" +
		"                    -> kubectl cluster-info\n"
	if diff := cmp.Diff(want, text.String()); diff != "" {
		t.Errorf("text (-want +got):\n%s", diff)
	}
}

// TestScopes: a check comes after checks of each of its scopes, or of others that are not run.
func TestScopes(t *testing.T) {
	t.Parallel()
	for _, c := range checks {
		if c.in == 0 {
			t.Errorf("%s is in no scope", c.name)
		}
		for _, scope := range []Scope{Doctor, Status, Preflight, Direct} {
			runs := func(name string) bool {
				return slices.ContainsFunc(checks, func(other check) bool { return other.name == name && other.in&scope != 0 })
			}
			if c.in&scope != 0 && len(c.after) > 0 && !slices.ContainsFunc(c.after, runs) {
				t.Errorf("%s comes after %v, of which none runs in the scope %b", c.name, c.after, scope)
			}
		}
	}
}

func TestMainCluster(t *testing.T) {
	t.Parallel()
	version := found(200, map[string]string{"gitVersion": "v1.36.3"})
	tests := map[string]checkTest{
		"fine":             {fixture{answers: map[string]answer{"/version": version, "/readyz": found(200, "ok")}}, []want{{LevelOK, "https://main answers, Kubernetes v1.36.3", ""}}},
		"unavailable":      {fixture{}, []want{{LevelFail, "does not answer: connection refused", "kubectl cluster-info"}}},
		"another server":   {fixture{answers: map[string]answer{"/version": found(200, []byte("<html>\nhello"))}}, []want{{LevelFail, "not answer as an API server: 200: <html>", "kubectl cluster-info"}}},
		"not ready":        {fixture{answers: map[string]answer{"/version": version, "/readyz": found(500, []byte("etcd failed"))}}, []want{{LevelFail, "not ready: 500: etcd failed", "readyz?verbose"}}},
		"not let in":       {fixture{answers: map[string]answer{"/version": version, "/readyz": found(403, []byte("no"))}}, []want{{LevelFail, "refuses your credentials", "kubectl auth whoami"}}},
		"stops in between": {fixture{answers: map[string]answer{"/version": version}}, []want{{LevelFail, "the readiness of", "readyz?verbose"}}},
	}
	runCheck(t, checkMainCluster, tests)
}

func TestPolicies(t *testing.T) {
	t.Parallel()
	serve := func(names ...string) *environment {
		e := fixture{}.environment()
		list := &metav1.APIResourceList{GroupVersion: "admissionregistration.k8s.io/v1"}
		for _, name := range names {
			list.APIResources = append(list.APIResources, metav1.APIResource{Name: name})
		}
		e.Kube.(*fake.Clientset).Resources = []*metav1.APIResourceList{list}
		return e
	}
	validating := []string{"validatingadmissionpolicies", "validatingadmissionpolicybindings"}
	mutating := []string{"mutatingadmissionpolicies", "mutatingadmissionpolicybindings"}
	compare(t, checkPolicies(t.Context(), serve(append(validating, mutating...)...)), []want{{LevelOK, "serves all kinds of policies", ""}})
	compare(t, checkPolicies(t.Context(), serve(validating...)), []want{{LevelWarn, "does not serve MutatingAdmissionPolicy in", "api-resources"}})
	compare(t, checkPolicies(t.Context(), fixture{}.environment()), []want{{LevelFail, "discover the resources of admissionregistration.k8s.io/v1", "api-resources"}})
}

func TestClock(t *testing.T) {
	t.Parallel()
	at := func(offset time.Duration) answer {
		a := found(200, nil)
		a.header.Set("Date", noon.Add(offset).Format(http.TimeFormat))
		return a
	}
	tests := map[string]struct {
		main, annex time.Duration
		want        want
	}{
		"together":   {0, 0, want{LevelOK, "within 1s of the one here, annex's within 1s", ""}},
		"main ahead": {30 * time.Second, 30 * time.Second, want{LevelWarn, "30s ahead of the one here", "timedatectl"}},
		"annex slow": {0, -10 * time.Minute, want{LevelFail, "annex's 10m0s behind", "timedatectl"}},
		"far apart":  {40 * time.Second, -40 * time.Second, want{LevelFail, "seem expired", "timedatectl"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := fixture{answers: map[string]answer{"/version": at(test.main), "/apis/hosting.annex.dev/v1alpha1": at(test.annex)}}
			compare(t, checkClock(t.Context(), w.environment()), []want{test.want})
		})
	}
	t.Run("not known", func(t *testing.T) {
		t.Parallel()
		compare(t, checkClock(t.Context(), fixture{answers: map[string]answer{"/version": at(0)}}.environment()),
			[]want{{LevelOK, "annex's is not known: connection refused", ""}})
		compare(t, checkClock(t.Context(), fixture{}.environment()), []want{{LevelWarn, "not known", "kubectl get"}})
	})
}

func TestFirstLine(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{"": "", "a": "a", "a\nb": "a", strings.Repeat("x", 400): strings.Repeat("x", 300)} {
		if got := firstLine([]byte(in)); got != want {
			t.Errorf("%q: %q", in, got)
		}
	}
	if got := outcome(nil, fmt.Errorf("away")); got != "away" {
		t.Error(got)
	}
}

func TestDeletions(t *testing.T) {
	t.Parallel()
	const ours = "annex.dev/annex-system.annex"
	held := func(name string, deleted bool, finalizers ...string) *apiextensionsv1.CustomResourceDefinition {
		crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: finalizers}}
		if deleted {
			crd.DeletionTimestamp = new(metav1.NewTime(noon))
			crd.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{{Type: apiextensionsv1.Terminating, Status: apiextensionsv1.ConditionTrue, Message: "1 left"}}
		}
		return crd
	}
	running := []runtime.Object{lease("annex-0", time.Second)}
	runCheck(t, checkDeletions, map[string]checkTest{
		"none":        {fixture{}, []want{{LevelOK, "0 definitions", ""}}},
		"another's":   {fixture{definitions: []runtime.Object{held("a.example.com", true, "annex.dev/other.annex")}}, []want{{LevelOK, "0 definitions", ""}}},
		"held":        {fixture{kube: running, definitions: []runtime.Object{held("a.example.com", false, ours)}}, []want{{LevelOK, "1 definitions have annex's finalizer", ""}}},
		"waits":       {fixture{kube: running, definitions: []runtime.Object{held("a.example.com", true, ours)}}, []want{{LevelWarn, "a.example.com is being deleted: 1 left", "kubectl describe crd a.example.com"}}},
		"held, down":  {fixture{definitions: []runtime.Object{held("a.example.com", false, ours)}}, []want{{LevelWarn, "if a.example.com is deleted, it waits", "get pods"}}},
		"waits, down": {fixture{definitions: []runtime.Object{held("a.example.com", true, "theirs", ours)}}, []want{{LevelFail, "a.example.com is being deleted and waits for annex", "get pods"}}},
	})
	restricted := fixture{definitions: []runtime.Object{held("a.example.com", false, ours)}}.environment()
	restricted.scope = Status
	restricted.Kube.(*fake.Clientset).PrependReactor("get", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "leases"}, "annex-controllers", errors.New("no"))
	})
	compare(t, checkDeletions(t.Context(), restricted), []want{{LevelSkip, "cannot be read", ""}})
}
