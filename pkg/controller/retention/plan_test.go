// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package retention

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/yaml"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/expect"
)

var (
	now  = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	kind = schema.GroupKind{Group: "example.com", Kind: "Widget"}
)

// ago is a time before now, as objects have it.
func ago(period time.Duration) string { return now.Add(-period).Format(time.RFC3339) }

// item is an object in a list: its name, how long ago it was created, and more in YAML.
type item struct {
	name    string
	created time.Duration
	more    string
}

// newPage encodes items as a list.
func newPage(t testing.TB, items ...item) []byte {
	t.Helper()
	list := map[string]any{"metadata": map[string]any{}, "items": []any{}}
	for _, i := range items {
		namespace, name, found := strings.Cut(i.name, "/")
		if !found {
			namespace, name = "team", i.name
		}
		object := map[string]any{}
		expect.NoError(t, yaml.Unmarshal([]byte(i.more), &object), "parse %s", i.name)
		metadata, _ := object["metadata"].(map[string]any)
		if metadata == nil {
			metadata = map[string]any{}
		}
		metadata["namespace"], metadata["name"], metadata["uid"], metadata["resourceVersion"] = namespace, name, "uid-"+i.name, "7"
		metadata["creationTimestamp"] = ago(i.created)
		object["metadata"] = metadata
		list["items"] = append(list["items"].([]any), object)
	}
	data, err := json.Marshal(list)
	expect.NoError(t, err)
	return data
}

// newPlan compares items with rules.
func newPlan(t testing.TB, rules []hostingv1alpha1.RetentionRule, most int, blocked sets.Set[ownerKey], items ...item) *plan {
	t.Helper()
	made, roots, err := newRules(&hostingv1alpha1.Retention{Rules: rules})
	expect.NoError(t, err)
	objects, _, err := decodePage(newPage(t, items...), roots)
	expect.NoError(t, err)
	p := newPlanner(made, kind, now)
	p.maxTargets, p.blockedBefore = most, blocked
	for _, o := range objects {
		p.add(o)
	}
	return p.finish()
}

func namesOf(p *plan) (names []string) {
	for _, t := range p.targets {
		names = append(names, t.Name)
	}
	return names
}

const hour = int64(60 * 60)

func finished(period time.Duration, phase string) string {
	return fmt.Sprintf("status: {phase: %s, finishedAt: %q, conditions: [{type: Other, status: 'True'}, {type: Complete, status: %q, lastTransitionTime: %q}]}",
		phase, ago(period), map[bool]string{true: "True", false: "False"}[phase == "Succeeded"], ago(period))
}

func TestPlan(t *testing.T) {
	t.Parallel()
	type rules = []hostingv1alpha1.RetentionRule
	created := rules{{Name: "r", AfterSeconds: hour}}
	condition := rules{{Name: "r", AfterSeconds: hour, Condition: &hostingv1alpha1.RetentionCondition{Type: "Complete", Status: metav1.ConditionTrue}}}
	phase := &hostingv1alpha1.RetentionPhase{Path: ".status.phase", Values: []string{"Succeeded", "Failed"}}
	timed := phase.DeepCopy()
	timed.TimestampPath = ".status.finishedAt"
	timestamp := rules{{Name: "r", AfterSeconds: hour, Timestamp: &hostingv1alpha1.RetentionTimestamp{Path: ".status.finishedAt"}}}
	newest := func(after int64, per hostingv1alpha1.RetentionGroup) rules {
		return rules{{Name: "r", AfterSeconds: after, KeepNewest: &hostingv1alpha1.RetentionKeepNewest{Count: 2, Per: per, LabelKey: "of"}}}
	}
	managed := func(path string, at time.Duration) string {
		return fmt.Sprintf(`status: {phase: Failed}
metadata: {managedFields: [{manager: a, time: %q, fieldsV1: {"f:spec": {"f:color": {}}}}, {manager: b, time: %q, fieldsV1: %s}]}`, ago(time.Minute), ago(at), path)
	}
	tests := []struct {
		name  string
		rules rules
		items []item
		want  []string
		next  time.Duration // after now
		skip  int64
	}{
		{"nothing", created, nil, nil, 0, 0},
		{"creation", created, []item{{"new", 59 * time.Minute, ""}, {"b", time.Hour, ""}, {"a", 2 * time.Hour, ""}}, []string{"a", "b"}, time.Minute, 0},
		{"being deleted", created, []item{{"a", 2 * time.Hour, "metadata: {deletionTimestamp: '2026-03-04T11:00:00Z', finalizers: [x]}"}}, nil, 0, 0},
		{
			"selector", rules{{Name: "r", AfterSeconds: hour, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}}},
			[]item{{"with", 2 * time.Hour, "metadata: {labels: {a: b}}"}, {"without", 2 * time.Hour, ""}}, []string{"with"}, 0, 0,
		},
		{"condition", condition, []item{
			{"due", 9 * time.Hour, finished(time.Hour, "Succeeded")},
			{"soon", 9 * time.Hour, finished(50*time.Minute, "Succeeded")},
			{"failed", 9 * time.Hour, finished(8*time.Hour, "Failed")},
			{"running", 9 * time.Hour, ""},
			{"without-time", 9 * time.Hour, "status: {conditions: [{type: Complete, status: 'True'}]}"},
			{"with-zero-time", 9 * time.Hour, "status: {conditions: [{type: Complete, status: 'True', lastTransitionTime: '0001-01-01T00:00:00Z'}]}"},
			{"odd", 9 * time.Hour, "status: {conditions: Complete}"},
			{"odder", 9 * time.Hour, "status: [Complete]"},
		}, []string{"due"}, 10 * time.Minute, 2},
		{"phase with a time", rules{{Name: "r", AfterSeconds: hour, Phase: timed}}, []item{
			{"due", 9 * time.Hour, finished(2*time.Hour, "Failed")},
			{"soon", 9 * time.Hour, finished(time.Minute, "Succeeded")},
			{"running", 9 * time.Hour, finished(2*time.Hour, "Running")},
			{"without-time", 9 * time.Hour, "status: {phase: Failed}"},
			{"number", 9 * time.Hour, "status: {phase: 1}"},
		}, []string{"due"}, 59 * time.Minute, 1},
		{"phase with the time of its manager", rules{{Name: "r", AfterSeconds: hour, Phase: phase}}, []item{
			{"due", 9 * time.Hour, managed(`{"f:status": {".": {}, "f:phase": {}}}`, 2*time.Hour)},
			{"soon", 9 * time.Hour, managed(`{"f:status": {"f:phase": {}}}`, 30*time.Minute)},
			{"unmanaged", 9 * time.Hour, managed(`{"f:status": {"f:phases": {}}}`, 2*time.Hour)},
		}, []string{"due"}, 30 * time.Minute, 1},
		{"timestamp", timestamp, []item{
			{"due", 9 * time.Hour, finished(2*time.Hour, "Any")},
			{"future", 9 * time.Hour, finished(-time.Hour, "Any")},
			{"none", 9 * time.Hour, "status: {}"},
			{"null", 9 * time.Hour, "status: {finishedAt: null}"},
			{"number", 9 * time.Hour, "status: {finishedAt: 12}"},
			{"text", 9 * time.Hour, "status: {finishedAt: yesterday}"},
		}, []string{"due"}, 2 * time.Hour, 2},
		{"newest per namespace", newest(0, hostingv1alpha1.RetentionPerNamespace), []item{
			{"a", 4 * time.Minute, ""}, {"d", time.Minute, ""}, {"b", 3 * time.Minute, ""}, {"c", 2 * time.Minute, ""},
			{"other/a", 9 * time.Hour, ""}, {"other/b", 8 * time.Hour, ""},
		}, []string{"a", "b"}, 0, 0},
		{"newest as a floor", newest(hour, hostingv1alpha1.RetentionPerNamespace), []item{
			{"a", 4 * time.Hour, ""}, {"b", 59 * time.Minute, ""}, {"c", 3 * time.Minute, ""}, {"d", time.Minute, ""},
		}, []string{"a"}, time.Minute, 0},
		{"newest of the same time", newest(0, hostingv1alpha1.RetentionPerNamespace), []item{
			{"c", time.Hour, ""}, {"a", time.Hour, ""}, {"b", time.Hour, ""},
		}, []string{"a"}, 0, 0},
		{"those being deleted do not count as newest", newest(0, hostingv1alpha1.RetentionPerNamespace), []item{
			{"a", 3 * time.Hour, ""}, {"b", 2 * time.Hour, ""}, {"c", time.Hour, "metadata: {deletionTimestamp: '2026-03-04T11:00:00Z'}"},
		}, nil, 0, 0},
		{"newest per label", newest(0, hostingv1alpha1.RetentionPerLabel), []item{
			{"a", 4 * time.Hour, "metadata: {labels: {of: x}}"}, {"b", 3 * time.Hour, "metadata: {labels: {of: x}}"},
			{"c", 2 * time.Hour, "metadata: {labels: {of: x}}"}, {"d", 9 * time.Hour, "metadata: {labels: {of: z}}"},
			{"other/e", 9 * time.Hour, "metadata: {labels: {of: x}}"}, {"f", 9 * time.Hour, ""},
		}, []string{"a"}, 0, 1},
		{"newest per owner", newest(0, hostingv1alpha1.RetentionPerOwner), []item{
			{"a", 4 * time.Hour, owned("x", "controller: true")}, {"b", 3 * time.Hour, owned("x", "controller: true")},
			{"c", 2 * time.Hour, owned("x", "controller: true")}, {"d", 9 * time.Hour, owned("z", "controller: true")},
			{"e", 9 * time.Hour, owned("x", "controller: false")}, {"f", 9 * time.Hour, ""},
		}, []string{"a"}, 0, 2},
		{"newest per owner, whose UID others write too", newest(0, hostingv1alpha1.RetentionPerOwner), []item{
			{"a", 4 * time.Hour, owned("x", "controller: true")}, {"b", 3 * time.Hour, owned("x", "controller: true")},
			{"evil/c", 2 * time.Hour, owned("x", "controller: true")}, {"evil/d", time.Hour, owned("x", "controller: true")},
			{"e", 2 * time.Hour, ownedBy("example.com/v1", "Widget", "other", "x", "controller: true")},
			{"f", 2 * time.Hour, ownedBy("example.com/v1", "Gadget", "x", "x", "controller: true")},
			{"g", 2 * time.Hour, ownedBy("example.org/v1", "Widget", "x", "x", "controller: true")},
		}, nil, 0, 0},
		{"newest per owner in two versions", newest(0, hostingv1alpha1.RetentionPerOwner), []item{
			{"a", 4 * time.Hour, owned("x", "controller: true")}, {"b", 3 * time.Hour, ownedBy("example.com/v2", "Widget", "x", "x", "controller: true")},
			{"c", 2 * time.Hour, owned("x", "controller: true")},
		}, []string{"a"}, 0, 0},
		{"newest finished", rules{{Name: "r", Phase: timed, KeepNewest: &hostingv1alpha1.RetentionKeepNewest{Count: 1}}}, []item{
			{"a", time.Hour, finished(40*time.Minute, "Failed")}, {"b", 3 * time.Hour, finished(30*time.Minute, "Failed")}, {"running", 9 * time.Hour, ""},
		}, []string{"a"}, 0, 0},
		{"owners with dependents that block the deletion", created, []item{
			{"child", time.Minute, owned("uid-owner", "blockOwnerDeletion: true")}, {"owner", 9 * time.Hour, ""},
			{"lower", time.Minute, ownedBy("example.com/v1", "widget", "other", "uid-other", "blockOwnerDeletion: true")}, {"other", 9 * time.Hour, ""},
			{"other-child", time.Minute, owned("uid-free", "blockOwnerDeletion: false")}, {"free", 9 * time.Hour, ""},
		}, []string{"free"}, 59 * time.Minute, 0},
		{"owners whose UID others write into their dependents", created, []item{
			{"owner", 9 * time.Hour, ""},
			{"evil/child", time.Minute, owned("uid-owner", "blockOwnerDeletion: true")},
			{"a", time.Minute, ownedBy("example.com/v1", "Widget", "other", "uid-owner", "blockOwnerDeletion: true")},
			{"b", time.Minute, ownedBy("example.com/v1", "WIDGET", "owner", "uid-owner", "blockOwnerDeletion: true")},
		}, []string{"owner"}, 59 * time.Minute, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p := newPlan(t, test.rules, maxTargets, nil, test.items...)
			if diff := cmp.Diff(test.want, namesOf(p)); diff != "" {
				t.Errorf("deleted (-want +got):\n%s", diff)
			}
			var next time.Duration
			if !p.nextDue.IsZero() {
				next = p.nextDue.Sub(now)
			}
			if next != test.next {
				t.Errorf("the next is due in %s, want %s", next, test.next)
			}
			if got := p.rules[0].skipped; got != test.skip {
				t.Errorf("%d objects are skipped, want %d", got, test.skip)
			}
			if p.objects != int64(len(test.items)) || !p.complete {
				t.Errorf("%d objects, complete: %t; want %d", p.objects, p.complete, len(test.items))
			}
		})
	}
}

// owned returns metadata with an owner of the same kind. Its UID is uid-NAME, or the name.
func owned(uid, how string) string {
	return ownedBy("example.com/v1", "Widget", strings.TrimPrefix(uid, "uid-"), uid, how)
}

func ownedBy(apiVersion, kind, name, uid, how string) string {
	return fmt.Sprintf("metadata: {ownerReferences: [{apiVersion: %s, kind: %s, name: %s, uid: %s, %s}]}", apiVersion, kind, name, uid, how)
}

func TestPlanOfTwoRules(t *testing.T) {
	t.Parallel()
	p := newPlan(t, []hostingv1alpha1.RetentionRule{
		{Name: "old", AfterSeconds: hour},
		{Name: "newest", KeepNewest: &hostingv1alpha1.RetentionKeepNewest{Count: 1}},
	}, maxTargets, nil, item{"a", 2 * time.Hour, ""}, item{"b", time.Minute, ""}, item{"c", time.Second, ""})
	expect.Equal(t, []string{"a", "b"}, namesOf(p))
	var due []int64
	var examples [][]string
	for _, rule := range p.rules {
		due, examples = append(due, rule.due), append(examples, rule.examples)
	}
	expect.Equal(t, []int64{1, 2}, due)
	expect.Equal(t, [][]string{{"team/a"}, {"team/a", "team/b"}}, examples)
	if first, second := p.targets[0].rule(), p.targets[1].rule(); first != 0 || second != 1 {
		t.Errorf("the objects are deleted by the rules %d and %d, want 0 and 1", first, second)
	}
}

// TestPlanIsBounded has no room for all objects: it takes the oldest, and the next plan others than
// those that are blocked.
func TestPlanIsBounded(t *testing.T) {
	t.Parallel()
	rules := []hostingv1alpha1.RetentionRule{{Name: "old", AfterSeconds: hour}}
	var items []item
	for i := range 100 {
		items = append(items, item{fmt.Sprintf("w-%02d", i), 2*time.Hour - time.Duration(i)*time.Second, ""})
	}
	items = append(items, item{"child", time.Minute, owned("uid-w-00", "blockOwnerDeletion: true")})
	shuffled := slices.Clone(items)
	slices.Reverse(shuffled)
	for _, order := range [][]item{items, shuffled} {
		p := newPlan(t, rules, 3, nil, order...)
		expect.Equal(t, []string{"w-01", "w-02"}, namesOf(p))
		if p.complete || p.rules[0].due != 100 || p.held != 1 {
			t.Errorf("complete: %t, due: %d, held: %d; want false, 100 and 1", p.complete, p.rules[0].due, p.held)
		}
		expect.Equal(t, []string{"w-01", "w-02", "w-03"}, namesOf(newPlan(t, rules, 3, p.blocked, order...)))
	}
}

func TestDecodePage(t *testing.T) {
	t.Parallel()
	objects, next, err := decodePage([]byte(`{"metadata": {"continue": "more"}, "items": [{"metadata": {"name": "a"}, "spec": {"a": 1}, "status": {"b": {"c": "d"}}}]}`), sets.New("status", "other"))
	expect.NoError(t, err)
	if next != "more" || len(objects) != 1 || objects[0].Name != "a" || len(objects[0].fields) != 1 {
		t.Fatalf("got %+v and %q", objects, next)
	}
	expect.Equal(t, any("d"), objects[0].at(splitPath(".status.b.c")))
	if got := objects[0].at(splitPath(".status.b.c.d")); got != nil {
		t.Errorf("a field of a string is %v", got)
	}
	for _, bad := range []string{"", "[]", `{"items": [{"metadata": 1}]}`, `{"items": [{}]}`} {
		if _, _, err := decodePage([]byte(bad), nil); err == nil {
			t.Errorf("%q was decoded", bad)
		}
	}
}
