// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package rest_test

import (
	"context"
	"testing"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
	"k8s.io/apiserver/pkg/endpoints/request"
	registryrest "k8s.io/apiserver/pkg/registry/rest"

	"github.com/annex-dev/annex/pkg/registry/flowcontrol/rest"
	"github.com/annex-dev/annex/pkg/registry/typed"
	"github.com/annex-dev/annex/pkg/registry/typed/typedtest"
	"github.com/annex-dev/annex/pkg/test/expect"
)

func newStorage(t *testing.T) map[string]registryrest.Storage {
	t.Helper()
	return typedtest.NewStorage(t, flowcontrolv1.SchemeGroupVersion).NewGroup(t, rest.StorageProvider{Serialization: typedtest.Serialization})
}

func requestContext(t *testing.T) context.Context {
	t.Helper()
	return request.WithNamespace(t.Context(), metav1.NamespaceNone)
}

func create[T runtime.Object](t *testing.T, endpoint registryrest.Storage, object T) T {
	t.Helper()
	created, err := endpoint.(*typed.REST).Create(requestContext(t), object, registryrest.ValidateAllObjectFunc, &metav1.CreateOptions{})
	expect.NoError(t, err, "creating")
	return created.(T)
}

func update[T runtime.Object](t *testing.T, endpoint registryrest.Storage, name string, object T) T {
	t.Helper()
	updated, _, err := endpoint.(registryrest.Updater).Update(requestContext(t), name, registryrest.DefaultUpdatedObjectInfo(object),
		registryrest.ValidateAllObjectFunc, registryrest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{})
	expect.NoError(t, err, "updating")
	return updated.(T)
}

func TestNewRESTStorage(t *testing.T) {
	t.Parallel()
	storage := newStorage(t)
	want := []string{"flowschemas", "flowschemas/status", "prioritylevelconfigurations", "prioritylevelconfigurations/status"}
	expect.Equal(t, want, sets.List(sets.KeySet(storage)), "served")
}

func TestFlowSchemaEndpoints(t *testing.T) {
	t.Parallel()
	storage := newStorage(t)
	schema := bootstrap.SuggestedFlowSchemaGlobalDefault.DeepCopy()
	schema.Status.Conditions = []flowcontrolv1.FlowSchemaCondition{{Type: "Forged"}}
	created := create(t, storage["flowschemas"], schema)
	if created.Generation != 1 || len(created.Status.Conditions) != 0 {
		t.Errorf("created with generation %d and status %+v, want 1 and none", created.Generation, created.Status)
	}

	both := created.DeepCopy()
	both.Spec.MatchingPrecedence = 9001
	both.Status.Conditions = []flowcontrolv1.FlowSchemaCondition{{Type: flowcontrolv1.FlowSchemaConditionDangling, Status: flowcontrolv1.ConditionFalse}}
	both.Labels = map[string]string{"mine": "yes"}
	updated := update(t, storage["flowschemas/status"], schema.Name, both.DeepCopy())
	if updated.Generation != 1 || updated.Spec.MatchingPrecedence == 9001 || len(updated.Labels) != 0 || len(updated.Status.Conditions) != 1 {
		t.Errorf("updating the status made %+v, want nothing else changed", updated)
	}
	both.ResourceVersion, both.Status.Conditions = updated.ResourceVersion, nil
	updated = update(t, storage["flowschemas"], schema.Name, both)
	if updated.Generation != 2 || updated.Spec.MatchingPrecedence != 9001 || len(updated.Status.Conditions) != 1 {
		t.Errorf("updating the schema made %+v, want all but the status changed", updated)
	}
	same := updated.DeepCopy()
	same.Labels = nil
	if updated = update(t, storage["flowschemas"], schema.Name, same); updated.Generation != 2 || len(updated.Labels) != 0 {
		t.Errorf("after an update of labels: generation %d, labels %v", updated.Generation, updated.Labels)
	}
}

func TestPriorityLevelEndpoints(t *testing.T) {
	t.Parallel()
	storage := newStorage(t)
	level := bootstrap.SuggestedPriorityLevelConfigurationWorkloadLow.DeepCopy()
	created := create(t, storage["prioritylevelconfigurations"], level)
	both := created.DeepCopy()
	both.Spec.Limited.LimitResponse.Queuing.Queues = 32
	both.Status.Conditions = []flowcontrolv1.PriorityLevelConfigurationCondition{{Type: "Seen"}}
	updated := update(t, storage["prioritylevelconfigurations/status"], level.Name, both.DeepCopy())
	if updated.Generation != 1 || updated.Spec.Limited.LimitResponse.Queuing.Queues == 32 || len(updated.Status.Conditions) != 1 {
		t.Errorf("updating the status made %+v, want nothing else changed", updated)
	}
	both.ResourceVersion, both.Status.Conditions = updated.ResourceVersion, nil
	updated = update(t, storage["prioritylevelconfigurations"], level.Name, both)
	if updated.Generation != 2 || updated.Spec.Limited.LimitResponse.Queuing.Queues != 32 || len(updated.Status.Conditions) != 1 {
		t.Errorf("updating the level made %+v, want all but the status changed", updated)
	}
}

func cells(t *testing.T, endpoint registryrest.Storage, object runtime.Object) [][]any {
	t.Helper()
	table, err := endpoint.(registryrest.TableConvertor).ConvertToTable(t.Context(), object, nil)
	expect.NoError(t, err, "ConvertToTable")
	var rows [][]any
	for _, row := range table.Rows {
		rows = append(rows, row.Cells)
	}
	return rows
}

func TestTables(t *testing.T) {
	t.Parallel()
	storage := newStorage(t)
	dangling := *bootstrap.SuggestedFlowSchemaServiceAccounts.DeepCopy()
	dangling.Status.Conditions = []flowcontrolv1.FlowSchemaCondition{
		{Type: "Other", Status: flowcontrolv1.ConditionFalse}, {Type: flowcontrolv1.FlowSchemaConditionDangling, Status: flowcontrolv1.ConditionTrue},
	}
	got := cells(t, storage["flowschemas"], &flowcontrolv1.FlowSchemaList{Items: []flowcontrolv1.FlowSchema{
		*bootstrap.MandatoryFlowSchemaCatchAll, dangling, *bootstrap.MandatoryFlowSchemaExempt,
	}})
	want := [][]any{
		{"exempt", "exempt", int64(1), "<none>", "<unknown>", "?"},
		{"service-accounts", "workload-low", int64(9000), "ByUser", "<unknown>", "True"},
		{"catch-all", "catch-all", int64(10000), "ByUser", "<unknown>", "?"},
	}
	expect.Equal(t, want, got, "schemas")
	got = cells(t, storage["prioritylevelconfigurations"], &flowcontrolv1.PriorityLevelConfigurationList{Items: []flowcontrolv1.PriorityLevelConfiguration{
		*bootstrap.MandatoryPriorityLevelConfigurationExempt, *bootstrap.MandatoryPriorityLevelConfigurationCatchAll, *bootstrap.SuggestedPriorityLevelConfigurationWorkloadLow,
	}})
	want = [][]any{
		{"exempt", "Exempt", "<none>", "<none>", "<none>", "<none>", "<unknown>"},
		{"catch-all", "Limited", int64(5), "<none>", "<none>", "<none>", "<unknown>"},
		{"workload-low", "Limited", int64(100), int64(128), int64(6), int64(50), "<unknown>"},
	}
	expect.Equal(t, want, got, "levels")
}
