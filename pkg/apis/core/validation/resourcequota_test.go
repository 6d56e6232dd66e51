// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package validation_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/annex-dev/annex/pkg/apis/core/validation"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// list makes quantities of name=quantity.
func list(limits ...string) corev1.ResourceList {
	quantities := corev1.ResourceList{}
	for _, limit := range limits {
		name, quantity, _ := strings.Cut(limit, "=")
		quantities[corev1.ResourceName(name)] = resource.MustParse(quantity)
	}
	return quantities
}

func TestValidateResourceQuota(t *testing.T) {
	t.Parallel()
	type (
		spec        = corev1.ResourceQuotaSpec
		requirement = corev1.ScopedResourceSelectorRequirement
		scopes      = []corev1.ResourceQuotaScope
	)
	selector := func(requirements ...requirement) *corev1.ScopeSelector {
		return &corev1.ScopeSelector{MatchExpressions: requirements}
	}
	const cannotHold = "unsupported scope applied to resource"
	tests := map[string]struct {
		spec spec
		want []string
	}{
		"empty": {},
		"objects": {spec: spec{Hard: list(
			"configmaps=1", "secrets=0", "resourcequotas=3", "count/widgets.example.com=10", "count/events=1k", "count/leases.coordination.k8s.io=2",
		)}},
		"what annex does not have": {spec: spec{Hard: list("pods=1", "services.nodeports=1", "requests.cpu=1500m", "limits.memory=1Gi", "requests.nvidia.com/gpu=4", "hugepages-2Mi=2Mi")}},
		"a resource that is none of Kubernetes'": {spec{Hard: list("widgets=1")}, []string{
			`spec.hard[widgets]: Invalid value: "widgets": must be a standard resource type or fully qualified`,
			`spec.hard[widgets]: Invalid value: "widgets": must be a standard resource for quota`,
		}},
		"a resource that is none of quotas": {spec{Hard: list("storage=1")}, []string{`spec.hard[storage]: Invalid value: "storage": must be a standard resource for quota`}},
		"an empty resource": {spec{Hard: list("count/=1")}, []string{
			`spec.hard[count/]: Invalid value: "count/": name part must be non-empty`, `spec.hard[count/]: Invalid value: "count/": name part must consist`,
		}},
		"fractions and less than nothing": {spec{Hard: list("configmaps=1500m", "count/widgets.example.com=500m", "secrets=-1")}, []string{
			"spec.hard[configmaps]: Invalid value: \"1500m\": must be an integer",
			"spec.hard[count/widgets.example.com]: Invalid value: \"500m\": must be an integer",
			"spec.hard[secrets]: Invalid value: \"-1\": must be greater than or equal to 0",
		}},
		"scopes that hold":    {spec: spec{Hard: list("pods=1", "cpu=1", "count/widgets.example.com=1"), Scopes: scopes{"NotBestEffort", "NotTerminating"}}},
		"scopes of no pods":   {spec{Hard: list("configmaps=1"), Scopes: scopes{"Terminating"}}, []string{`spec.scopes: Invalid value: ["Terminating"]: ` + cannotHold}},
		"best effort and cpu": {spec{Hard: list("cpu=1"), Scopes: scopes{"BestEffort"}}, []string{`spec.scopes: Invalid value: ["BestEffort"]: ` + cannotHold}},
		"unknown scope":       {spec{Hard: list("pods=1"), Scopes: scopes{"Cheap"}}, []string{`spec.scopes: Invalid value: ["Cheap"]: unsupported scope`}},
		"scopes of which never all hold": {spec{Hard: list("pods=1"), Scopes: scopes{"Terminating", "NotTerminating", "BestEffort", "NotBestEffort"}}, []string{
			"spec.scopes: Invalid value: ", "spec.scopes: Invalid value: ",
		}},
		"selector": {spec: spec{Hard: list("pods=1"), ScopeSelector: selector(
			requirement{ScopeName: "PriorityClass", Operator: "In", Values: []string{"high"}}, requirement{ScopeName: "Terminating", Operator: "Exists"},
		)}},
		"selector of nothing": {spec{Hard: list("secrets=1"), ScopeSelector: selector(requirement{ScopeName: "PriorityClass", Operator: "In"})}, []string{
			"spec.scopeSelector.matchExpressions: Invalid value: ",
			"spec.scopeSelector.matchExpressions.values: Required value: must be at least one value when `operator` is 'In' or 'NotIn' for scope selector",
		}},
		"selector with values of what has none": {spec{ScopeSelector: selector(requirement{ScopeName: "BestEffort", Operator: "DoesNotExist", Values: []string{"a"}})}, []string{
			`spec.scopeSelector.matchExpressions.operator: Invalid value: "DoesNotExist": must be 'Exists' when scope is any of`,
			`spec.scopeSelector.matchExpressions.values: Invalid value: ["a"]: must be no value when`,
		}},
		"unknown in a selector": {spec{ScopeSelector: selector(requirement{ScopeName: "Cheap", Operator: "Near"})}, []string{
			`spec.scopeSelector.matchExpressions.scopeName: Invalid value: "Cheap": unsupported scope`,
			`spec.scopeSelector.matchExpressions.operator: Invalid value: "Near": not a valid selector operator`,
		}},
		"selector of which never all hold": {spec{ScopeSelector: selector(
			requirement{ScopeName: "Terminating", Operator: "Exists"}, requirement{ScopeName: "NotTerminating", Operator: "Exists"},
		)}, []string{"spec.scopeSelector.matchExpressions: Invalid value: "}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "ns", ResourceVersion: "1"}, Spec: test.spec}
			expect.FieldErrors(t, validation.ValidateResourceQuota(quota), test.want...)
			old := quota.DeepCopy()
			old.Spec.Hard = nil
			expect.FieldErrors(t, validation.ValidateResourceQuotaUpdate(quota, old), test.want...)
		})
	}
}

func TestValidateResourceQuotaUpdate(t *testing.T) {
	t.Parallel()
	old := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "ns", ResourceVersion: "1"}}
	scoped := old.DeepCopy()
	scoped.Spec.Scopes = []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeTerminating}
	expect.FieldErrors(t, validation.ValidateResourceQuotaUpdate(scoped, old), `spec.scopes: Invalid value: ["Terminating"]: field is immutable`)

	counted := old.DeepCopy()
	counted.Status = corev1.ResourceQuotaStatus{Hard: list("secrets=2"), Used: list("secrets=1")}
	expect.FieldErrors(t, validation.ValidateResourceQuotaStatusUpdate(counted, old))
	counted.Status = corev1.ResourceQuotaStatus{Hard: list("widgets.=1"), Used: list("secrets=-1")}
	counted.ResourceVersion = ""
	got := validation.ValidateResourceQuotaStatusUpdate(counted, old)
	for _, want := range []string{"resourceVersion: Required value", "status.hard[widgets.]: Invalid value", "status.used[secrets]: Invalid value"} {
		if !strings.Contains(got.ToAggregate().Error(), want) {
			t.Errorf("errors %v do not have %q", got, want)
		}
	}
}
