// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/expect"
)

func retention() *hostingv1alpha1.Retention {
	return &hostingv1alpha1.Retention{
		DeletionsPerSecond: 100,
		Rules: []hostingv1alpha1.RetentionRule{
			{Name: "old", AfterSeconds: 60},
			{Name: "complete", Condition: &hostingv1alpha1.RetentionCondition{Type: "Complete", Status: metav1.ConditionTrue}},
			{
				Name:  "finished",
				Phase: &hostingv1alpha1.RetentionPhase{Path: ".status.phase", Values: []string{"Succeeded", "Failed"}, TimestampPath: ".status.finishedAt"},
			},
			{Name: "completed", AfterSeconds: 5, Timestamp: &hostingv1alpha1.RetentionTimestamp{Path: ".status.completionTime"}},
			{
				Name:       "newest",
				Selector:   &metav1.LabelSelector{MatchLabels: map[string]string{"kind": "report"}},
				KeepNewest: &hostingv1alpha1.RetentionKeepNewest{Count: 3, Per: hostingv1alpha1.RetentionPerLabel, LabelKey: "example.com/of"},
			},
		},
	}
}

func TestValidateRetention(t *testing.T) {
	t.Parallel()
	const rule = "spec.retention.rules[0]"
	type change func(*hostingv1alpha1.Retention)
	ruled := func(r hostingv1alpha1.RetentionRule) change {
		return func(retention *hostingv1alpha1.Retention) {
			if r.Name == "" {
				r.Name = "rule"
			}
			retention.Rules = []hostingv1alpha1.RetentionRule{r}
		}
	}
	phase := func(path, timestamp string, values ...string) change {
		return ruled(hostingv1alpha1.RetentionRule{Phase: &hostingv1alpha1.RetentionPhase{Path: path, TimestampPath: timestamp, Values: values}})
	}
	newest := func(count int32, per hostingv1alpha1.RetentionGroup, label string) change {
		return ruled(hostingv1alpha1.RetentionRule{KeepNewest: &hostingv1alpha1.RetentionKeepNewest{Count: count, Per: per, LabelKey: label}})
	}
	tests := []struct {
		name   string
		change change
		want   []string
	}{
		{"valid", func(*hostingv1alpha1.Retention) {}, nil},
		{"no rules", func(r *hostingv1alpha1.Retention) { r.Rules = nil }, []string{"spec.retention.rules: Required value"}},
		{"too many rules", func(r *hostingv1alpha1.Retention) {
			r.Rules = nil
			for i := range maxRetentionRules + 1 {
				r.Rules = append(r.Rules, hostingv1alpha1.RetentionRule{Name: fmt.Sprint("rule-", i), AfterSeconds: 1})
			}
		}, []string{"spec.retention.rules: Too many"}},
		{"no rate", func(r *hostingv1alpha1.Retention) { r.DeletionsPerSecond = 0 }, []string{"spec.retention.deletionsPerSecond: Invalid value"}},
		{"excessive rate", func(r *hostingv1alpha1.Retention) { r.DeletionsPerSecond = 1001 }, []string{"spec.retention.deletionsPerSecond: Invalid value"}},
		{"same name", func(r *hostingv1alpha1.Retention) { r.Rules[1].Name = "old" }, []string{"spec.retention.rules[1].name: Duplicate value"}},

		{"bad name", ruled(hostingv1alpha1.RetentionRule{Name: "A b", AfterSeconds: 1}), []string{rule + ".name: Invalid value"}},
		{"everything", ruled(hostingv1alpha1.RetentionRule{}), []string{rule + ".afterSeconds: Required value"}},
		{"negative age", ruled(hostingv1alpha1.RetentionRule{AfterSeconds: -1}), []string{rule + ".afterSeconds: Invalid value"}},
		{"age that overflows", ruled(hostingv1alpha1.RetentionRule{AfterSeconds: 1 << 62}), []string{rule + ".afterSeconds: Invalid value"}},
		{"bad selector", ruled(hostingv1alpha1.RetentionRule{
			AfterSeconds: 1, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a b": ""}},
		}), []string{rule + ".selector.matchLabels: Invalid value"}},
		{"two fields", ruled(hostingv1alpha1.RetentionRule{
			Condition: &hostingv1alpha1.RetentionCondition{Type: "Ready", Status: metav1.ConditionTrue},
			Timestamp: &hostingv1alpha1.RetentionTimestamp{Path: ".status.at"},
		}), []string{rule + ": Forbidden"}},

		{"condition without a type", ruled(hostingv1alpha1.RetentionRule{Condition: &hostingv1alpha1.RetentionCondition{Status: "True"}}), []string{rule + ".condition.type: Required value"}},
		{"condition with a long type", ruled(hostingv1alpha1.RetentionRule{
			Condition: &hostingv1alpha1.RetentionCondition{Type: strings.Repeat("a", 317), Status: "True"},
		}), []string{rule + ".condition.type: Too long"}},
		{"condition with a status of its own", ruled(hostingv1alpha1.RetentionRule{
			Condition: &hostingv1alpha1.RetentionCondition{Type: "Ready", Status: "Yes"},
		}), []string{rule + ".condition.status: Unsupported value"}},

		{"phase without a path", phase("", "", "Done"), []string{rule + ".phase.path: Required value"}},
		{"phase without a dot", phase("status.phase", "", "Done"), []string{rule + ".phase.path: Invalid value"}},
		{"phase in a list", phase(".status.steps[0].phase", "", "Done"), []string{rule + ".phase.path: Invalid value"}},
		{"phase in metadata", phase(".metadata.name", "", "Done"), []string{rule + ".phase.path: Invalid value"}},
		{"phase with a long path", phase("."+strings.Repeat("a", 256), "", "Done"), []string{rule + ".phase.path: Too long"}},
		{"phase with a bad time", phase(".status.phase", "now", "Done"), []string{rule + ".phase.timestampPath: Invalid value"}},
		{"phase without values", phase(".status.phase", ""), []string{rule + ".phase.values: Required value"}},
		{"phase with an empty value", phase(".status.phase", "", ""), []string{rule + ".phase.values[0]: Required value"}},
		{"phase with a value twice", phase(".status.phase", "", "Done", "Done"), []string{rule + ".phase.values[1]: Duplicate value"}},
		{"phase with many values", phase(".status.phase", "", slices.Collect(func(yield func(string) bool) {
			for i := range maxPhaseValues + 1 {
				if !yield(fmt.Sprint(i)) {
					return
				}
			}
		})...), []string{rule + ".phase.values: Too many"}},
		{"timestamp without a path", ruled(hostingv1alpha1.RetentionRule{Timestamp: &hostingv1alpha1.RetentionTimestamp{}}), []string{rule + ".timestamp.path: Required value"}},

		{"none kept", newest(0, hostingv1alpha1.RetentionPerNamespace, ""), []string{rule + ".keepNewest.count: Invalid value"}},
		{"too many kept", newest(10_001, hostingv1alpha1.RetentionPerNamespace, ""), []string{rule + ".keepNewest.count: Invalid value"}},
		{"kept per owner", newest(1, hostingv1alpha1.RetentionPerOwner, ""), nil},
		{"kept per something else", newest(1, "Node", ""), []string{rule + ".keepNewest.per: Unsupported value"}},
		{"kept per no label", newest(1, hostingv1alpha1.RetentionPerLabel, ""), []string{rule + ".keepNewest.labelKey: Required value"}},
		{"kept per bad label", newest(1, hostingv1alpha1.RetentionPerLabel, "a b"), []string{rule + ".keepNewest.labelKey: Invalid value"}},
		{"label without effect", newest(1, hostingv1alpha1.RetentionPerOwner, "a"), []string{rule + ".keepNewest.labelKey: Forbidden"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			hosted := hostedResource()
			hosted.Spec.Retention = retention()
			test.change(hosted.Spec.Retention)
			expect.FieldErrors(t, ValidateHostedResource(hosted), test.want...)
		})
	}
}

func TestValidateRetentionStatus(t *testing.T) {
	t.Parallel()
	updated := hostedResource()
	updated.Status.Retention = &hostingv1alpha1.RetentionStatus{Deleted: 1, Rules: []hostingv1alpha1.RetentionRuleStatus{{Name: "a", Matched: 1, Due: 1}}}
	expect.FieldErrors(t, ValidateHostedResourceStatusUpdate(updated, hostedResource()))
	updated.Status.Retention.Deleted = -1
	updated.Status.Retention.Rules[0] = hostingv1alpha1.RetentionRuleStatus{Name: "a", Matched: -1, Due: -1, Deleted: -1}
	expect.FieldErrors(t, ValidateHostedResourceStatusUpdate(updated, hostedResource()),
		"status.retention.deleted: Invalid value", "status.retention.rules[0].matched: Invalid value",
		"status.retention.rules[0].due: Invalid value", "status.retention.rules[0].deleted: Invalid value")
}
