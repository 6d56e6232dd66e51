// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package flowcontrol

import (
	"testing"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"

	"github.com/annex-dev/annex/pkg/registry/typed"
	"github.com/annex-dev/annex/pkg/registry/typed/typedtest"
	"github.com/annex-dev/annex/pkg/test/expect"
)

func newEndpoints(t *testing.T) typed.Endpoints {
	t.Helper()
	etcd := typedtest.NewStorage(t, flowcontrolv1.SchemeGroupVersion)
	return etcd.Endpoints(NewGroup(etcd))
}

func TestNewGroup(t *testing.T) {
	t.Parallel()
	want := []string{"flowschemas", "flowschemas/status", "prioritylevelconfigurations", "prioritylevelconfigurations/status"}
	expect.Equal(t, want, sets.List(sets.KeySet(newEndpoints(t))), "served")
}

func TestStatusEndpoints(t *testing.T) {
	t.Parallel()
	endpoints := newEndpoints(t)
	schema := bootstrap.SuggestedFlowSchemaGlobalDefault.DeepCopy()
	schema.Status.Conditions = []flowcontrolv1.FlowSchemaCondition{{Type: "Forged"}}
	created := typedtest.CheckStatus(t, endpoints, "flowschemas", schema,
		func(schema *flowcontrolv1.FlowSchema) {
			schema.Spec.MatchingPrecedence = 9001
			schema.Status.Conditions = []flowcontrolv1.FlowSchemaCondition{{Type: flowcontrolv1.FlowSchemaConditionDangling, Status: flowcontrolv1.ConditionFalse}}
		},
		func(schema *flowcontrolv1.FlowSchema) {
			schema.Spec.MatchingPrecedence, schema.Status.Conditions[0].Type = -1, ""
		})
	expect.Equal(t, flowcontrolv1.FlowSchemaStatus{}, created.Status, "status of a new schema")
	typedtest.CheckStatus(t, endpoints, "prioritylevelconfigurations", bootstrap.SuggestedPriorityLevelConfigurationWorkloadLow.DeepCopy(),
		func(level *priorityLevel) {
			level.Spec.Limited.LimitResponse.Queuing.Queues = 32
			level.Status.Conditions = []flowcontrolv1.PriorityLevelConfigurationCondition{{Type: "Seen"}}
		},
		func(level *priorityLevel) {
			level.Spec.Type, level.Status.Conditions[0].Type = "", ""
		})
}

func TestTables(t *testing.T) {
	t.Parallel()
	dangling := *bootstrap.SuggestedFlowSchemaServiceAccounts.DeepCopy()
	dangling.Status.Conditions = []flowcontrolv1.FlowSchemaCondition{
		{Type: "Other", Status: flowcontrolv1.ConditionFalse}, {Type: flowcontrolv1.FlowSchemaConditionDangling, Status: flowcontrolv1.ConditionTrue},
	}
	got := typedtest.Cells(t, flowSchemas.Table, &flowcontrolv1.FlowSchemaList{Items: []flowcontrolv1.FlowSchema{
		*bootstrap.MandatoryFlowSchemaCatchAll, dangling, *bootstrap.MandatoryFlowSchemaExempt,
	}})
	want := [][]any{
		{"exempt", "exempt", int64(1), "<none>", "<unknown>", "?"},
		{"service-accounts", "workload-low", int64(9000), "ByUser", "<unknown>", "True"},
		{"catch-all", "catch-all", int64(10000), "ByUser", "<unknown>", "?"},
	}
	expect.Equal(t, want, got, "schemas")
	got = typedtest.Cells(t, priorityLevels.Table, &flowcontrolv1.PriorityLevelConfigurationList{Items: []flowcontrolv1.PriorityLevelConfiguration{
		*bootstrap.MandatoryPriorityLevelConfigurationExempt, *bootstrap.MandatoryPriorityLevelConfigurationCatchAll, *bootstrap.SuggestedPriorityLevelConfigurationWorkloadLow,
	}})
	want = [][]any{
		{"exempt", "Exempt", "<none>", "<none>", "<none>", "<none>", "<unknown>"},
		{"catch-all", "Limited", int64(5), "<none>", "<none>", "<none>", "<unknown>"},
		{"workload-low", "Limited", int64(100), int64(128), int64(6), int64(50), "<unknown>"},
	}
	expect.Equal(t, want, got, "levels")
}
