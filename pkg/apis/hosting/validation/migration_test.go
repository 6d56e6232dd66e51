// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
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
		"nothing":                 {func(m *hostingv1alpha1.Migration) { m.Spec = hostingv1alpha1.MigrationSpec{} }, []string{at("spec.resource", required), at("spec.storeName", required), at("spec.switch", required)}},
		"bad name":                {func(m *hostingv1alpha1.Migration) { m.Name = "A" }, []string{at("metadata.name", invalid)}},
		"namespace":               {func(m *hostingv1alpha1.Migration) { m.Namespace = "a" }, []string{at("metadata.namespace", forbidden)}},
		"no group":                {func(m *hostingv1alpha1.Migration) { m.Spec.Resource = "widgets" }, []string{at("spec.resource", invalid)}},
		"Kubernetes'":             {func(m *hostingv1alpha1.Migration) { m.Spec.Resource = "deployments.apps" }, []string{at("spec.resource", invalid)}},
		"bad Store":               {func(m *hostingv1alpha1.Migration) { m.Spec.StoreName = "A" }, []string{at("spec.storeName", invalid)}},
		"bad switch":              {func(m *hostingv1alpha1.Migration) { m.Spec.Switch = "Soon" }, []string{at("spec.switch", notSupported)}},
		"group":                   {change: func(m *hostingv1alpha1.Migration) { m.Spec = groupMove }},
		"group on a Store":        {change: func(m *hostingv1alpha1.Migration) { m.Spec = groupMove; m.Spec.StoreName = "fast" }},
		"group and resource":      {func(m *hostingv1alpha1.Migration) { m.Spec = groupMove; m.Spec.Resource = "widgets.example.com" }, []string{at("spec.resource", invalid)}},
		"Kubernetes' group":       {func(m *hostingv1alpha1.Migration) { m.Spec = groupMove; m.Spec.Group = "apps" }, []string{at("spec.group", invalid)}},
		"operation of a resource": {func(m *hostingv1alpha1.Migration) { m.Spec.Operation = hostingv1alpha1.MigrationRollback }, []string{at("spec.operation", invalid)}},
		"unknown operation":       {func(m *hostingv1alpha1.Migration) { m.Spec = groupMove; m.Spec.Operation = "Copy" }, []string{at("spec.operation", notSupported)}},
		"Rollback to a Store": {func(m *hostingv1alpha1.Migration) {
			m.Spec = groupMove
			m.Spec.Operation, m.Spec.StoreName = hostingv1alpha1.MigrationRollback, "fast"
		}, []string{at("spec.storeName", invalid)}},
		"exempt Rollback": {change: func(m *hostingv1alpha1.Migration) {
			m.Spec = groupMove
			m.Spec.Operation, m.Spec.ExemptWebhooks = hostingv1alpha1.MigrationRollback, true
		}},
		"exempt Finalize": {func(m *hostingv1alpha1.Migration) {
			m.Spec = groupMove
			m.Spec.Operation, m.Spec.ExemptWebhooks = hostingv1alpha1.MigrationFinalize, true
		}, []string{at("spec.exemptWebhooks", invalid)}},
		"exempt resource": {func(m *hostingv1alpha1.Migration) { m.Spec.ExemptWebhooks = true }, []string{at("spec.exemptWebhooks", invalid)}},
		"negative time":   {func(m *hostingv1alpha1.Migration) { m.Spec.TTLSecondsAfterFinished = ptr.To[int32](-1) }, []string{at("spec.ttlSecondsAfterFinished", invalid)}},
		"negative rate":   {func(m *hostingv1alpha1.Migration) { m.Spec.ObjectsPerSecond = -1 }, []string{at("spec.objectsPerSecond", invalid)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			expectErrors(t, test.want, ValidateMigration(migration(test.change)))
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
		"kept shorter":          {change: func(m *hostingv1alpha1.Migration) { m.Spec.TTLSecondsAfterFinished = ptr.To[int32](0) }},
		"another Store":         {change: func(m *hostingv1alpha1.Migration) { m.Spec.StoreName = "slow" }, want: []string{at("spec", invalid)}},
		"not Manual any longer": {change: func(m *hostingv1alpha1.Migration) { m.Spec.Switch = hostingv1alpha1.MigrationSwitchAutomatic }, want: []string{at("spec", invalid)}},
		"finalizer removed":     {change: release, want: []string{at("metadata.finalizers", forbidden)}},
		"finalizer removed when finished": {
			old: func(m *hostingv1alpha1.Migration) { m.Status.Phase = hostingv1alpha1.MigrationFailed }, change: release,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if test.old == nil {
				test.old = func(*hostingv1alpha1.Migration) {}
			}
			expectErrors(t, test.want, ValidateMigrationUpdate(migration(test.old, test.change), migration(test.old)))
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
		"no phase":   {change: func(m *hostingv1alpha1.Migration) { m.Status.Phase = "" }, want: []string{at("status.phase", required)}},
		"bad phase":  {change: func(m *hostingv1alpha1.Migration) { m.Status.Phase = "Done" }, want: []string{at("status.phase", notSupported)}},
		"revived": {
			old:    func(m *hostingv1alpha1.Migration) { m.Status.Phase = hostingv1alpha1.MigrationCompleted },
			change: func(m *hostingv1alpha1.Migration) { m.Status.Phase = hostingv1alpha1.MigrationCopying },
			want:   []string{at("status.phase", invalid)},
		},
		"bad condition": {
			change: func(m *hostingv1alpha1.Migration) { m.Status.Conditions[0].Reason = "" },
			want:   []string{at("status.conditions[0].reason", required)},
		},
		"negative": {
			change: func(m *hostingv1alpha1.Migration) {
				m.Status.Objects, m.Status.CopiedObjects, m.Status.CopiedBytes, m.Status.Lag = -1, -1, -1, ptr.To[int64](-1)
			},
			want: []string{at("status.objects", invalid), at("status.copiedObjects", invalid), at("status.copiedBytes", invalid), at("status.lag", invalid)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if test.old == nil {
				test.old = func(*hostingv1alpha1.Migration) {}
			}
			expectErrors(t, test.want, ValidateMigrationStatusUpdate(migration(test.old, test.change), migration(test.old)))
		})
	}
}
