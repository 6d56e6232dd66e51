// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/expect"
)

func migration(changes ...func(*hostingv1alpha1.Migration)) *hostingv1alpha1.Migration {
	m := &hostingv1alpha1.Migration{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets", ResourceVersion: "1", Finalizers: []string{hostingv1alpha1.MigrationFinalizer}},
		Spec: hostingv1alpha1.MigrationSpec{
			Resource: "widgets.example.com", StoreName: "fast", Switch: hostingv1alpha1.MigrationSwitchManual, ObjectsPerSecond: 100,
		},
		Status: hostingv1alpha1.MigrationStatus{Phase: hostingv1alpha1.MigrationCopying, Conditions: []metav1.Condition{readyCondition}},
	}
	for _, change := range changes {
		change(m)
	}
	return m
}

var groupMove = hostingv1alpha1.MigrationSpec{
	Group: "example.com", Operation: hostingv1alpha1.MigrationMove, Switch: hostingv1alpha1.MigrationSwitchAutomatic,
}

type changeMigration = func(*hostingv1alpha1.Migration)

func TestValidateMigration(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change changeMigration
		want   []string
	}{
		"valid":                   {change: func(*hostingv1alpha1.Migration) {}},
		"nothing":                 {func(m *hostingv1alpha1.Migration) { m.Spec = hostingv1alpha1.MigrationSpec{} }, []string{"spec.resource: Required value", "spec.storeName: Required value", "spec.switch: Required value"}},
		"bad name":                {func(m *hostingv1alpha1.Migration) { m.Name = "A" }, []string{"metadata.name: Invalid value"}},
		"namespace":               {func(m *hostingv1alpha1.Migration) { m.Namespace = "a" }, []string{"metadata.namespace: Forbidden"}},
		"no group":                {func(m *hostingv1alpha1.Migration) { m.Spec.Resource = "widgets" }, []string{"spec.resource: Invalid value"}},
		"Kubernetes'":             {func(m *hostingv1alpha1.Migration) { m.Spec.Resource = "deployments.apps" }, []string{"spec.resource: Invalid value"}},
		"bad Store":               {func(m *hostingv1alpha1.Migration) { m.Spec.StoreName = "A" }, []string{"spec.storeName: Invalid value"}},
		"bad switch":              {func(m *hostingv1alpha1.Migration) { m.Spec.Switch = "Soon" }, []string{"spec.switch: Unsupported value"}},
		"group":                   {change: func(m *hostingv1alpha1.Migration) { m.Spec = groupMove }},
		"group on a Store":        {change: func(m *hostingv1alpha1.Migration) { m.Spec = groupMove; m.Spec.StoreName = "fast" }},
		"group and resource":      {func(m *hostingv1alpha1.Migration) { m.Spec = groupMove; m.Spec.Resource = "widgets.example.com" }, []string{"spec.resource: Invalid value"}},
		"Kubernetes' group":       {func(m *hostingv1alpha1.Migration) { m.Spec = groupMove; m.Spec.Group = "apps" }, []string{"spec.group: Invalid value"}},
		"operation of a resource": {func(m *hostingv1alpha1.Migration) { m.Spec.Operation = hostingv1alpha1.MigrationRollback }, []string{"spec.operation: Invalid value"}},
		"unknown operation":       {func(m *hostingv1alpha1.Migration) { m.Spec = groupMove; m.Spec.Operation = "Copy" }, []string{"spec.operation: Unsupported value"}},
		"Rollback to a Store": {func(m *hostingv1alpha1.Migration) {
			m.Spec = groupMove
			m.Spec.Operation, m.Spec.StoreName = hostingv1alpha1.MigrationRollback, "fast"
		}, []string{"spec.storeName: Invalid value"}},
		"exempt Rollback": {change: func(m *hostingv1alpha1.Migration) {
			m.Spec = groupMove
			m.Spec.Operation, m.Spec.ExemptWebhooks = hostingv1alpha1.MigrationRollback, true
		}},
		"exempt Finalize": {func(m *hostingv1alpha1.Migration) {
			m.Spec = groupMove
			m.Spec.Operation, m.Spec.ExemptWebhooks = hostingv1alpha1.MigrationFinalize, true
		}, []string{"spec.exemptWebhooks: Invalid value"}},
		"exempt resource": {func(m *hostingv1alpha1.Migration) { m.Spec.ExemptWebhooks = true }, []string{"spec.exemptWebhooks: Invalid value"}},
		"negative time":   {func(m *hostingv1alpha1.Migration) { m.Spec.TTLSecondsAfterFinished = new(int32(-1)) }, []string{"spec.ttlSecondsAfterFinished: Invalid value"}},
		"negative rate":   {func(m *hostingv1alpha1.Migration) { m.Spec.ObjectsPerSecond = -1 }, []string{"spec.objectsPerSecond: Invalid value"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			expect.FieldErrors(t, ValidateMigration(migration(test.change)), test.want...)
		})
	}
}

func TestValidateMigrationUpdate(t *testing.T) {
	t.Parallel()
	release := func(m *hostingv1alpha1.Migration) { m.Finalizers = nil }
	for name, test := range map[string]struct {
		old, change changeMigration
		want        []string
	}{
		"labels":                {change: func(m *hostingv1alpha1.Migration) { m.Labels = map[string]string{"a": "b"} }},
		"confirmed":             {change: func(m *hostingv1alpha1.Migration) { m.Spec.Confirmed = true }},
		"exempt":                {change: func(m *hostingv1alpha1.Migration) { m.Spec = groupMove; m.Spec.ExemptWebhooks = true }, old: func(m *hostingv1alpha1.Migration) { m.Spec = groupMove }},
		"kept shorter":          {change: func(m *hostingv1alpha1.Migration) { m.Spec.TTLSecondsAfterFinished = new(int32(0)) }},
		"another Store":         {change: func(m *hostingv1alpha1.Migration) { m.Spec.StoreName = "slow" }, want: []string{"spec: Invalid value"}},
		"not Manual any longer": {change: func(m *hostingv1alpha1.Migration) { m.Spec.Switch = hostingv1alpha1.MigrationSwitchAutomatic }, want: []string{"spec: Invalid value"}},
		"finalizer removed":     {change: release, want: []string{"metadata.finalizers: Forbidden"}},
		"finalizer removed when finished": {
			old: func(m *hostingv1alpha1.Migration) { m.Status.Phase = hostingv1alpha1.MigrationFailed }, change: release,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if test.old == nil {
				test.old = func(*hostingv1alpha1.Migration) {}
			}
			expect.FieldErrors(t, ValidateMigrationUpdate(migration(test.old, test.change), migration(test.old)), test.want...)
		})
	}
}

func TestValidateMigrationStatusUpdate(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		old, change changeMigration
		want        []string
	}{
		"next phase": {change: func(m *hostingv1alpha1.Migration) { m.Status.Phase = hostingv1alpha1.MigrationFollowing }},
		"no phase":   {change: func(m *hostingv1alpha1.Migration) { m.Status.Phase = "" }, want: []string{"status.phase: Required value"}},
		"bad phase":  {change: func(m *hostingv1alpha1.Migration) { m.Status.Phase = "Done" }, want: []string{"status.phase: Unsupported value"}},
		"revived": {
			old:    func(m *hostingv1alpha1.Migration) { m.Status.Phase = hostingv1alpha1.MigrationCompleted },
			change: func(m *hostingv1alpha1.Migration) { m.Status.Phase = hostingv1alpha1.MigrationCopying },
			want:   []string{"status.phase: Invalid value"},
		},
		"bad condition": {
			change: func(m *hostingv1alpha1.Migration) { m.Status.Conditions[0].Reason = "" },
			want:   []string{"status.conditions[0].reason: Required value"},
		},
		"negative": {
			change: func(m *hostingv1alpha1.Migration) {
				m.Status.Objects, m.Status.CopiedObjects, m.Status.CopiedBytes, m.Status.Lag = -1, -1, -1, new(int64(-1))
			},
			want: []string{"status.objects: Invalid value", "status.copiedObjects: Invalid value", "status.copiedBytes: Invalid value", "status.lag: Invalid value"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if test.old == nil {
				test.old = func(*hostingv1alpha1.Migration) {}
			}
			expect.FieldErrors(t, ValidateMigrationStatusUpdate(migration(test.old, test.change), migration(test.old)), test.want...)
		})
	}
}
