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
		{"no rules", func(r *hostingv1alpha1.Retention) { r.Rules = nil }, []string{at("spec.retention.rules", required)}},
		{"too many rules", func(r *hostingv1alpha1.Retention) {
			r.Rules = nil
			for i := range maxRetentionRules + 1 {
				r.Rules = append(r.Rules, hostingv1alpha1.RetentionRule{Name: fmt.Sprint("rule-", i), AfterSeconds: 1})
			}
		}, []string{at("spec.retention.rules", "FieldValueTooMany")}},
		{"no rate", func(r *hostingv1alpha1.Retention) { r.DeletionsPerSecond = 0 }, []string{at("spec.retention.deletionsPerSecond", invalid)}},
		{"excessive rate", func(r *hostingv1alpha1.Retention) { r.DeletionsPerSecond = 1001 }, []string{at("spec.retention.deletionsPerSecond", invalid)}},
		{"same name", func(r *hostingv1alpha1.Retention) { r.Rules[1].Name = "old" }, []string{at("spec.retention.rules[1].name", duplicate)}},

		{"bad name", ruled(hostingv1alpha1.RetentionRule{Name: "A b", AfterSeconds: 1}), []string{at(rule+".name", invalid)}},
		{"everything", ruled(hostingv1alpha1.RetentionRule{}), []string{at(rule+".afterSeconds", required)}},
		{"negative age", ruled(hostingv1alpha1.RetentionRule{AfterSeconds: -1}), []string{at(rule+".afterSeconds", invalid)}},
		{"age that overflows", ruled(hostingv1alpha1.RetentionRule{AfterSeconds: 1 << 62}), []string{at(rule+".afterSeconds", invalid)}},
		{"bad selector", ruled(hostingv1alpha1.RetentionRule{
			AfterSeconds: 1, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a b": ""}},
		}), []string{at(rule+".selector.matchLabels", invalid)}},
		{"two fields", ruled(hostingv1alpha1.RetentionRule{
			Condition: &hostingv1alpha1.RetentionCondition{Type: "Ready", Status: metav1.ConditionTrue},
			Timestamp: &hostingv1alpha1.RetentionTimestamp{Path: ".status.at"},
		}), []string{at(rule, forbidden)}},

		{"condition without a type", ruled(hostingv1alpha1.RetentionRule{Condition: &hostingv1alpha1.RetentionCondition{Status: "True"}}), []string{at(rule+".condition.type", required)}},
		{"condition with a long type", ruled(hostingv1alpha1.RetentionRule{
			Condition: &hostingv1alpha1.RetentionCondition{Type: strings.Repeat("a", 317), Status: "True"},
		}), []string{at(rule+".condition.type", "FieldValueTooLong")}},
		{"condition with a status of its own", ruled(hostingv1alpha1.RetentionRule{
			Condition: &hostingv1alpha1.RetentionCondition{Type: "Ready", Status: "Yes"},
		}), []string{at(rule+".condition.status", notSupported)}},

		{"phase without a path", phase("", "", "Done"), []string{at(rule+".phase.path", required)}},
		{"phase without a dot", phase("status.phase", "", "Done"), []string{at(rule+".phase.path", invalid)}},
		{"phase in a list", phase(".status.steps[0].phase", "", "Done"), []string{at(rule+".phase.path", invalid)}},
		{"phase in metadata", phase(".metadata.name", "", "Done"), []string{at(rule+".phase.path", invalid)}},
		{"phase with a long path", phase("."+strings.Repeat("a", 256), "", "Done"), []string{at(rule+".phase.path", "FieldValueTooLong")}},
		{"phase with a bad time", phase(".status.phase", "now", "Done"), []string{at(rule+".phase.timestampPath", invalid)}},
		{"phase without values", phase(".status.phase", ""), []string{at(rule+".phase.values", required)}},
		{"phase with an empty value", phase(".status.phase", "", ""), []string{at(rule+".phase.values[0]", required)}},
		{"phase with a value twice", phase(".status.phase", "", "Done", "Done"), []string{at(rule+".phase.values[1]", duplicate)}},
		{"phase with many values", phase(".status.phase", "", slices.Collect(func(yield func(string) bool) {
			for i := range maxPhaseValues + 1 {
				if !yield(fmt.Sprint(i)) {
					return
				}
			}
		})...), []string{at(rule+".phase.values", "FieldValueTooMany")}},
		{"timestamp without a path", ruled(hostingv1alpha1.RetentionRule{Timestamp: &hostingv1alpha1.RetentionTimestamp{}}), []string{at(rule+".timestamp.path", required)}},

		{"none kept", newest(0, hostingv1alpha1.RetentionPerNamespace, ""), []string{at(rule+".keepNewest.count", invalid)}},
		{"too many kept", newest(10_001, hostingv1alpha1.RetentionPerNamespace, ""), []string{at(rule+".keepNewest.count", invalid)}},
		{"kept per owner", newest(1, hostingv1alpha1.RetentionPerOwner, ""), nil},
		{"kept per something else", newest(1, "Node", ""), []string{at(rule+".keepNewest.per", notSupported)}},
		{"kept per no label", newest(1, hostingv1alpha1.RetentionPerLabel, ""), []string{at(rule+".keepNewest.labelKey", required)}},
		{"kept per bad label", newest(1, hostingv1alpha1.RetentionPerLabel, "a b"), []string{at(rule+".keepNewest.labelKey", invalid)}},
		{"label without effect", newest(1, hostingv1alpha1.RetentionPerOwner, "a"), []string{at(rule+".keepNewest.labelKey", forbidden)}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			hosted := hostedResource()
			hosted.Spec.Retention = retention()
			test.change(hosted.Spec.Retention)
			expectErrors(t, test.want, ValidateHostedResource(hosted))
		})
	}
}

func TestValidateRetentionStatus(t *testing.T) {
	t.Parallel()
	updated := hostedResource()
	updated.Status.Retention = &hostingv1alpha1.RetentionStatus{Deleted: 1, Rules: []hostingv1alpha1.RetentionRuleStatus{{Name: "a", Matched: 1, Due: 1}}}
	expectErrors(t, nil, ValidateHostedResourceStatusUpdate(updated, hostedResource()))
	updated.Status.Retention.Deleted, updated.Status.Retention.Rules[0].Due = -1, -1
	expectErrors(t, []string{at("status.retention.deleted", invalid), at("status.retention.rules[0].due", invalid)},
		ValidateHostedResourceStatusUpdate(updated, hostedResource()))
}
