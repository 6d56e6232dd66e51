// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/scheduler/framework"
)

type (
	hosted = hostingv1alpha1.HostedResource
	store  = hostingv1alpha1.Store
)

// newResource returns widgets.example.com with changes.
func newResource(changes ...func(*hosted)) *framework.Resource {
	h := &hosted{ObjectMeta: metav1.ObjectMeta{Name: "widgets.example.com"}}
	for _, change := range changes {
		change(h)
	}
	return framework.NewResource(h)
}

// newStore returns a ready Store "a" with a change and resources.
func newStore(change func(*store), placed ...*framework.Resource) *framework.Store {
	s := &store{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Status: hostingv1alpha1.StoreStatus{
		Conditions: []metav1.Condition{{Type: hostingv1alpha1.StoreReady, Status: metav1.ConditionTrue}},
		Version:    "3.6.4",
	}}
	if change != nil {
		change(s)
	}
	result := framework.NewStore(s)
	for _, r := range placed {
		result.Add(r)
	}
	return result
}

func named(name string) func(*hosted) { return func(h *hosted) { h.Name = name } }

func requests(storage, objects string) func(*hosted) {
	return func(h *hosted) { h.Spec.Requests = amounts(storage, objects) }
}

func uses(bytes, objects int64) func(*hosted) {
	return func(h *hosted) { h.Status.StoredBytes, h.Status.Objects = bytes, objects }
}

func amounts(storage, objects string) hostingv1alpha1.ResourceList {
	list := hostingv1alpha1.ResourceList{}
	for name, amount := range map[hostingv1alpha1.ResourceName]string{"storage": storage, "objects": objects} {
		if amount != "" {
			list[name] = resource.MustParse(amount)
		}
	}
	return list
}

func tainted(taints ...hostingv1alpha1.Taint) func(*store) {
	return func(s *store) { s.Spec.Taints = taints }
}

func tolerates(tolerations ...hostingv1alpha1.Toleration) func(*hosted) {
	return func(h *hosted) { h.Spec.Tolerations = tolerations }
}

// TestFilters runs all filters, so each case also checks that no other one refuses.
func TestFilters(t *testing.T) {
	t.Parallel()
	gpu := hostingv1alpha1.Taint{Key: "gpu", Value: "yes", Effect: hostingv1alpha1.TaintEffectNoSchedule}
	exists, equal := hostingv1alpha1.TolerationOpExists, hostingv1alpha1.TolerationOpEqual
	capacity := func(storage, objects string) func(*store) {
		return func(s *store) { s.Spec.Capacity = amounts(storage, objects) }
	}
	condition := func(status metav1.ConditionStatus, message string) func(*store) {
		return func(s *store) { s.Status.Conditions[0].Status, s.Status.Conditions[0].Message = status, message }
	}
	version := func(v string) func(*store) { return func(s *store) { s.Status.Version = v } }
	selecting := func(selector metav1.LabelSelector) func(*hosted) {
		return func(h *hosted) { h.Spec.StoreSelector = &selector }
	}
	ssd := metav1.LabelSelector{MatchLabels: map[string]string{"disk": "ssd"}}

	for name, test := range map[string]struct {
		resource *framework.Resource
		store    *framework.Store
		filter   string
		message  string
	}{
		"fits": {newResource(), newStore(nil), "", ""},

		"no condition":          {newResource(), newStore(func(s *store) { s.Status.Conditions = nil }), "Ready", "not known to be ready"},
		"default, at the start": {newResource(), newStore(func(s *store) { s.Name, s.Status.Conditions = "default", nil }), "", ""},
		"unknown":               {newResource(), newStore(condition(metav1.ConditionUnknown, "")), "Ready", "is not ready"},
		"down":                  {newResource(), newStore(condition(metav1.ConditionFalse, "connection refused")), "Ready", "is not ready: connection refused"},
		"alarm":                 {newResource(), newStore(func(s *store) { s.Status.Alarms = []string{"NOSPACE"} }), "Ready", "has raised the alarm NOSPACE"},
		"being deleted":         {newResource(), newStore(func(s *store) { s.DeletionTimestamp = new(metav1.Now()) }), "Ready", "is being deleted"},
		"unschedulable":         {newResource(), newStore(func(s *store) { s.Spec.Unschedulable = true }), "Unschedulable", "is unschedulable"},
		"selector, matches":     {newResource(selecting(ssd)), newStore(func(s *store) { s.Labels = map[string]string{"disk": "ssd"} }), "", ""},
		"selector":              {newResource(selecting(ssd)), newStore(nil), "Selector", "does not match the selector disk=ssd"},
		"selector of none":      {newResource(selecting(metav1.LabelSelector{})), newStore(nil), "", ""},
		"selector, broken": {newResource(selecting(metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Like"}}})),
			newStore(nil), "Selector", "cannot be matched with spec.storeSelector"},

		"taint":                   {newResource(), newStore(tainted(gpu)), "Taints", "has the untolerated taint gpu=yes:NoSchedule"},
		"PreferNoSchedule":        {newResource(), newStore(tainted(hostingv1alpha1.Taint{Key: "gpu", Effect: hostingv1alpha1.TaintEffectPreferNoSchedule})), "", ""},
		"second taint":            {newResource(tolerates(hostingv1alpha1.Toleration{Key: "gpu", Operator: exists})), newStore(tainted(gpu, hostingv1alpha1.Taint{Key: "old", Effect: hostingv1alpha1.TaintEffectNoSchedule})), "Taints", "old:NoSchedule"},
		"tolerated":               {newResource(tolerates(hostingv1alpha1.Toleration{Key: "gpu", Operator: equal, Value: "yes"})), newStore(tainted(gpu)), "", ""},
		"tolerated by default":    {newResource(tolerates(hostingv1alpha1.Toleration{Key: "gpu", Value: "yes"})), newStore(tainted(gpu)), "", ""},
		"any value tolerated":     {newResource(tolerates(hostingv1alpha1.Toleration{Key: "gpu", Operator: exists, Effect: gpu.Effect})), newStore(tainted(gpu)), "", ""},
		"all tolerated":           {newResource(tolerates(hostingv1alpha1.Toleration{Operator: exists})), newStore(tainted(gpu)), "", ""},
		"another value tolerated": {newResource(tolerates(hostingv1alpha1.Toleration{Key: "gpu", Operator: equal, Value: "no"})), newStore(tainted(gpu)), "Taints", "gpu=yes:NoSchedule"},
		"another key tolerated":   {newResource(tolerates(hostingv1alpha1.Toleration{Key: "cpu", Operator: exists})), newStore(tainted(gpu)), "Taints", "gpu=yes:NoSchedule"},
		"another effect tolerated": {newResource(tolerates(hostingv1alpha1.Toleration{Key: "gpu", Operator: exists, Effect: hostingv1alpha1.TaintEffectPreferNoSchedule})),
			newStore(tainted(gpu)), "Taints", "gpu=yes:NoSchedule"},

		"fits exactly":      {newResource(requests("1Gi", "")), newStore(capacity("2Gi", ""), newResource(named("a.example.com"), requests("1Gi", ""))), "", ""},
		"requests too much": {newResource(requests("1025Mi", "")), newStore(capacity("2Gi", ""), newResource(named("a.example.com"), requests("1Gi", ""))), "ResourcesFit", "has insufficient storage left (1Gi of 2Gi, needs 1025Mi)"},
		"usage above requests": {newResource(requests("1Gi", "")), newStore(capacity("2Gi", ""), newResource(named("a.example.com"), requests("1Mi", ""), uses(1536<<20, 0))),
			"ResourcesFit", "has insufficient storage left (512Mi of 2Gi, needs 1Gi)"},
		"others' data": {newResource(requests("1Gi", "")), newStore(func(s *store) {
			s.Spec.Capacity, s.Status.SizeInUse = amounts("2Gi", ""), new(resource.MustParse("1536Mi"))
		}), "ResourcesFit", "has insufficient storage left (512Mi of 2Gi, needs 1Gi)"},
		"almost a Mi less": {newResource(requests("1Gi", "")), newStore(func(s *store) {
			s.Spec.Capacity, s.Status.SizeInUse = amounts("2Gi", ""), new(resource.MustParse("1572865Ki"))
		}), "ResourcesFit", "has insufficient storage left (511Mi of 2Gi, needs 1Gi)"},
		"growth": {newResource(requests("1Gi", "")), newStore(func(s *store) {
			s.Spec.Capacity, s.Status.SizeInUse = amounts("4Gi", ""), new(resource.MustParse("2Gi"))
		}, newResource(named("a.example.com"), requests("2Gi", ""), uses(512<<20, 0))), "ResourcesFit", "has insufficient storage left (512Mi of 4Gi, needs 1Gi)"},
		"usage without requests": {newResource(uses(3<<30, 0)), newStore(capacity("2Gi", "")), "ResourcesFit", "needs 3Gi"},
		"quota of etcd": {newResource(requests("3Gi", "")), newStore(func(s *store) {
			s.Spec.Capacity, s.Status.Quota = amounts("8Gi", ""), new(resource.MustParse("2Gi"))
		}), "ResourcesFit", "has insufficient storage left (2Gi of 2Gi, needs 3Gi)"},
		"full, no requests": {newResource(), newStore(func(s *store) {
			s.Status.Quota, s.Status.SizeInUse = new(resource.MustParse("2Gi")), new(resource.MustParse("2Gi"))
		}), "ResourcesFit", "has no storage left of 2Gi"},
		"capacity 0": {newResource(), newStore(capacity("", "0")), "ResourcesFit", "has no objects left of 0"},
		"too many objects": {newResource(requests("", "60k")), newStore(func(s *store) {
			s.Spec.Capacity, s.Status.Objects = amounts("", "100k"), 50_000
		}), "ResourcesFit", "has insufficient objects left (50k of 100k, needs 60k)"},

		"new enough":    {newResource(), newStore(version("3.5.13")), "", ""},
		"too old":       {newResource(), newStore(version("3.4.33")), "Version", "runs etcd 3.4.33, annex needs 3.5.13 or newer"},
		"not known":     {newResource(), newStore(version("")), "", ""},
		"not a version": {newResource(), newStore(version("latest")), "Version", `runs etcd "latest", which is not a version`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reasons := All().Filter(test.resource, test.store)
			var filters []string
			for _, reason := range reasons {
				filters = append(filters, reason.Filter)
				if !strings.Contains(reason.Message, test.message) {
					t.Errorf("%s: got %q, want %q", reason.Filter, reason.Message, test.message)
				}
			}
			var want []string
			if test.filter != "" {
				want = []string{test.filter}
			}
			if diff := cmp.Diff(want, filters); diff != "" {
				t.Errorf("filters (-want +got):\n%s", diff)
			}
		})
	}
}

func TestScores(t *testing.T) {
	t.Parallel()
	preferNot := func(key string) hostingv1alpha1.Taint {
		return hostingv1alpha1.Taint{Key: key, Effect: hostingv1alpha1.TaintEffectPreferNoSchedule}
	}
	heavy := requests("1Gi", "")
	was := func(store string) *framework.Resource {
		r := newResource()
		r.Previous = store
		return r
	}
	limited := func(s *store) {
		s.Spec.Capacity, s.Status.Objects = amounts("4Gi", "1k"), 250
	}
	for name, test := range map[string]struct {
		score    framework.ScoreFunc
		resource *framework.Resource
		store    *framework.Store
		want     int64
	}{
		"free, all of it":         {leastAllocated, newResource(), newStore(func(s *store) { s.Spec.Capacity = amounts("4Gi", "") }), 100},
		"free, the scarcer part":  {leastAllocated, newResource(heavy), newStore(limited), 75},
		"free, with what is new":  {leastAllocated, newResource(requests("3Gi", "")), newStore(limited), 25},
		"free, none of it":        {leastAllocated, newResource(requests("5Gi", "")), newStore(limited), 0},
		"free, unknown":           {leastAllocated, newResource(heavy), newStore(nil), 50},
		"free, the largest Store": {leastAllocated, newResource(heavy), newStore(func(s *store) { s.Spec.Capacity = amounts("8Ei", "") }), 99},

		"anti-affinity, alone":              {groupAntiAffinity, newResource(heavy), newStore(nil), 100},
		"anti-affinity, beside a heavy one": {groupAntiAffinity, newResource(heavy), newStore(nil, newResource(named("a.example.com"), heavy)), 50},
		"anti-affinity, beside two":         {groupAntiAffinity, newResource(heavy), newStore(nil, newResource(named("a.example.com"), heavy), newResource(named("b.example.com"), requests("", "50k"))), 33},
		"anti-affinity, beside a light one": {groupAntiAffinity, newResource(heavy), newStore(nil, newResource(named("a.example.com"))), 100},
		"anti-affinity, beside others":      {groupAntiAffinity, newResource(heavy), newStore(nil, newResource(named("a.example.org"), heavy)), 100},
		"anti-affinity, not for light ones": {groupAntiAffinity, newResource(), newStore(nil, newResource(named("a.example.com"), heavy)), 100},
		"affinity, alone":                   {groupAffinity, newResource(), newStore(nil), 0},
		"affinity, with a light one":        {groupAffinity, newResource(), newStore(nil, newResource(named("a.example.com"))), 100},
		"affinity, with a heavy one":        {groupAffinity, newResource(), newStore(nil, newResource(named("a.example.com"), heavy)), 0},
		"affinity, with others":             {groupAffinity, newResource(), newStore(nil, newResource(named("a.example.org"))), 0},
		"affinity, not for heavy":           {groupAffinity, newResource(heavy), newStore(nil), 100},
		"previous, new":                     {previousStore, was(""), newStore(nil), 100},
		"previous, here":                    {previousStore, was("a"), newStore(nil), 100},
		"previous, elsewhere":               {previousStore, was("b"), newStore(nil), 0},
		"pressure, none":                    {pressure, newResource(), newStore(nil), 100},
		"pressure": {pressure, newResource(), newStore(func(s *store) {
			s.Status.Conditions = append(s.Status.Conditions, metav1.Condition{Type: hostingv1alpha1.StoreUnderPressure, Status: metav1.ConditionTrue})
		}), 0},
		"taints, none":       {preferredTaints, newResource(), newStore(nil), 100},
		"taints, one":        {preferredTaints, newResource(), newStore(tainted(preferNot("a"))), 5},
		"taints, two":        {preferredTaints, newResource(), newStore(tainted(preferNot("a"), preferNot("b"))), 2},
		"taints, tolerated":  {preferredTaints, newResource(tolerates(hostingv1alpha1.Toleration{Key: "a", Operator: hostingv1alpha1.TolerationOpExists})), newStore(tainted(preferNot("a"))), 100},
		"taints, NoSchedule": {preferredTaints, newResource(), newStore(tainted(hostingv1alpha1.Taint{Key: "a", Effect: hostingv1alpha1.TaintEffectNoSchedule})), 100},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := test.score(test.resource, test.store); got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
}

// TestPreferNoScheduleOutweighsEverything: an untainted Store is preferred even if all
// other scores are against it.
func TestPreferNoScheduleOutweighsEverything(t *testing.T) {
	t.Parallel()
	decision := All().Decide(newResource(), []*framework.Store{newStore(nil)})
	others, taints := int64(0), int64(0)
	for _, score := range decision[0].Scores {
		if score.Plugin == "Taints" {
			taints = score.Weight
		} else {
			others += score.Weight
		}
	}
	one := preferredTaints(newResource(), newStore(tainted(hostingv1alpha1.Taint{Key: "a", Effect: hostingv1alpha1.TaintEffectPreferNoSchedule})))
	if all := (framework.MaxScore - one) * taints; all <= others*framework.MaxScore {
		t.Errorf("a taint costs %d, all other scores give up to %d", all, others*framework.MaxScore)
	}
}

func TestGroupAffinities(t *testing.T) {
	t.Parallel()
	large := func(name string) *framework.Store {
		return newStore(func(s *store) { s.Name, s.Spec.Capacity = name, amounts("100Gi", "") })
	}
	stores := []*framework.Store{large("a"), large("b"), large("c")}
	place := func(r *framework.Resource) string {
		best, ok := All().Decide(r, stores).Best()
		if !ok {
			t.Fatalf("%s fits nowhere", r.Name)
		}
		for _, s := range stores {
			if s.Name == best.Store {
				s.Add(r)
			}
		}
		return best.Store
	}
	var heavy, light []string
	for i := range 3 {
		heavy = append(heavy, place(newResource(named(fmt.Sprintf("heavy%d.example.com", i)), requests("2Gi", ""))))
		light = append(light, place(newResource(named(fmt.Sprintf("light%d.example.org", i)))))
	}
	if diff := cmp.Diff([]string{"a", "c", "b"}, heavy); diff != "" {
		t.Errorf("heavy resources (-want +got):\n%s", diff)
	}
	if light[0] != light[1] || light[1] != light[2] {
		t.Errorf("light resources are on %q, want one Store", light)
	}
}
