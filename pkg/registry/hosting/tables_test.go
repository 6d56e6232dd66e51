// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package hosting

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/registry/typed"
	"github.com/annex-dev/annex/pkg/registry/typed/typedtest"
	"github.com/annex-dev/annex/pkg/test/expect"
)

func TestTables(t *testing.T) {
	t.Parallel()
	old := metav1.ObjectMeta{Name: "a", CreationTimestamp: metav1.NewTime(time.Now().Add(-36 * time.Hour))}
	now := metav1.Now()
	condition := func(name string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
		return metav1.Condition{Type: name, Status: status, Reason: reason, Message: message}
	}
	hosted := func(store string, status v1alpha1.HostedResourceStatus) *v1alpha1.HostedResource {
		return &v1alpha1.HostedResource{ObjectMeta: old, Spec: v1alpha1.HostedResourceSpec{StoreName: store}, Status: status}
	}
	migration := func(status v1alpha1.MigrationStatus) *v1alpha1.Migration {
		return &v1alpha1.Migration{ObjectMeta: old, Spec: v1alpha1.MigrationSpec{Resource: "widgets.example.com", StoreName: "fast"}, Status: status}
	}
	profile := func(conditions ...metav1.Condition) *v1alpha1.InjectionProfile {
		return &v1alpha1.InjectionProfile{
			ObjectMeta: old, Status: v1alpha1.InjectionProfileStatus{Conditions: conditions}, Spec: v1alpha1.InjectionProfileSpec{
				Priority: 5, Mode: v1alpha1.InjectionOptOut, Targets: []v1alpha1.InjectionTarget{{Resource: "jobs.example.com"}, {Resource: "rays.example.com"}},
			},
		}
	}
	source := func(conditions ...metav1.Condition) *v1alpha1.StaticSource {
		return &v1alpha1.StaticSource{
			ObjectMeta: old, Spec: v1alpha1.StaticSourceSpec{Location: "/etc/annex/static"},
			Status: v1alpha1.StaticSourceStatus{Objects: 5, Applied: 4, Orphaned: 1, Conditions: conditions},
		}
	}
	for name, test := range map[string]struct {
		resource typed.Resource
		object   runtime.Object
		want     []any
	}{
		"Store, never reached": {
			stores, &v1alpha1.Store{ObjectMeta: old, Spec: v1alpha1.StoreSpec{Embedded: &v1alpha1.EmbeddedStore{}}},
			[]any{"a", "Unknown", int64(0), int64(0), "<unknown>", "<unknown>", "<unknown>", "", "36h", "<none>", "<none>", int64(0), "embedded", "<none>"},
		},
		"Store in use": {
			stores, &v1alpha1.Store{
				ObjectMeta: old,
				Spec: v1alpha1.StoreSpec{
					Etcd:          &v1alpha1.EtcdStore{Endpoints: []string{"https://a:2379", "https://b:2379"}},
					Unschedulable: true,
					Taints: []v1alpha1.Taint{
						{Key: "heavy", Effect: v1alpha1.TaintEffectNoSchedule},
						{Key: "disk", Value: "hdd", Effect: v1alpha1.TaintEffectPreferNoSchedule},
					},
				},
				Status: v1alpha1.StoreStatus{
					Conditions: []metav1.Condition{
						{Type: "Other", Status: metav1.ConditionFalse}, {Type: "Ready", Status: metav1.ConditionTrue, Reason: "Degraded"},
						{Type: "UnderPressure", Status: metav1.ConditionTrue, Reason: "AlmostFull"},
					},
					DatabaseSize: new(resource.MustParse("1258291")),
					SizeInUse:    new(resource.MustParse("0")),
					Quota:        new(resource.MustParse("8Gi")),
					Objects:      1234,
					Resources:    5,
					Members:      []v1alpha1.StoreMember{{ID: "1"}, {ID: "2"}},
					Version:      "3.7.3",

					LastBackupTime: new(old.CreationTimestamp),
				},
			},
			[]any{
				"a", "True", int64(5), int64(1234), "1.2Mi", "0", "8Gi", "3.7.3", "36h",
				"Degraded,AlmostFull", "36h", int64(2), "https://a:2379,https://b:2379", "unschedulable,heavy:NoSchedule,disk=hdd:PreferNoSchedule",
			},
		},
		"HostedResource, pending": {
			hostedResources, hosted("", v1alpha1.HostedResourceStatus{
				Phase: v1alpha1.HostedResourcePending, Conditions: []metav1.Condition{condition("Ready", metav1.ConditionFalse, "NotDefined", "")}}),
			[]any{"a", "<none>", "Pending", int64(0), "0", "36h", "0", "<none>", "<unknown>", "<none>", "NotDefined"},
		},
		"HostedResource, hosted": {
			hostedResources, hosted("default", v1alpha1.HostedResourceStatus{
				Phase: v1alpha1.HostedResourceHosted, Conditions: []metav1.Condition{condition("Ready", metav1.ConditionTrue, "Served", "")},
				Objects: 1234, Bytes: 1258291, StoredBytes: 524288, CachedBytes: 10 << 20}),
			[]any{"a", "default", "Hosted", int64(1234), "1.2Mi", "36h", "512Ki", "<none>", "10Mi", "<none>", ""},
		},
		"HostedResource, not following": {
			hostedResources, hosted("default", v1alpha1.HostedResourceStatus{Phase: v1alpha1.HostedResourceHosted, Conditions: []metav1.Condition{
				condition("DefinitionSynced", metav1.ConditionFalse, "Rejected", ""), condition("Published", metav1.ConditionTrue, "Published", ""),
				condition("Ready", metav1.ConditionTrue, "Served", ""),
			}}),
			[]any{"a", "default", "Hosted", int64(0), "0", "36h", "0", "<none>", "<unknown>", "True", "Rejected"},
		},
		"Migration, pending": {
			migrations, migration(v1alpha1.MigrationStatus{
				Phase: v1alpha1.MigrationPending, Conditions: []metav1.Condition{condition(v1alpha1.MigrationComplete, metav1.ConditionFalse, "", "It waits")}}),
			[]any{"a", "widgets.example.com", "<none>", "fast", "Pending", "<none>", "36h", int64(0), "<none>", "It waits"},
		},
		"Migration, begun": {
			migrations, migration(v1alpha1.MigrationStatus{Phase: v1alpha1.MigrationCopying, FromStoreName: "default", StartTime: &now}),
			[]any{"a", "widgets.example.com", "default", "fast", "Copying", "0%", "36h", int64(0), "<none>", ""},
		},
		"Migration, copying": {
			migrations, migration(v1alpha1.MigrationStatus{Phase: v1alpha1.MigrationCopying, FromStoreName: "default", StartTime: &now, Objects: 200, CopiedObjects: 133}),
			[]any{"a", "widgets.example.com", "default", "fast", "Copying", "66%", "36h", int64(200), "<none>", ""},
		},
		"Migration without objects": {
			migrations, migration(v1alpha1.MigrationStatus{Phase: v1alpha1.MigrationFollowing, FromStoreName: "default", StartTime: &now, Lag: new(int64(3))}),
			[]any{"a", "widgets.example.com", "default", "fast", "Following", "100%", "36h", int64(0), "3", ""},
		},
		"InjectionProfile, new": {injectionProfiles, profile(), []any{"a", "Unknown", int64(5), "OptOut", "jobs.example.com,rays.example.com", "36h", ""}},
		"InjectionProfile, not ready": {
			injectionProfiles, profile(condition(v1alpha1.InjectionProfileReady, metav1.ConditionFalse, "", "no path")),
			[]any{"a", "False", int64(5), "OptOut", "jobs.example.com,rays.example.com", "36h", "no path"},
		},
		"StaticSource, new": {staticSources, source(), []any{"a", "/etc/annex/static", "Unknown", "4/5", int64(1), "36h", ""}},
		"StaticSource, not read": {
			staticSources, source(condition(v1alpha1.StaticSourceRead, metav1.ConditionFalse, "", "no such folder"), condition(v1alpha1.StaticSourceApplied, metav1.ConditionFalse, "", "Widget w waits")),
			[]any{"a", "/etc/annex/static", "False", "4/5", int64(1), "36h", "no such folder"},
		},
		"StaticSource, not applied": {
			staticSources, source(condition(v1alpha1.StaticSourceRead, metav1.ConditionTrue, "", "5 objects"), condition(v1alpha1.StaticSourceApplied, metav1.ConditionFalse, "", "Widget w waits")),
			[]any{"a", "/etc/annex/static", "True", "4/5", int64(1), "36h", "Widget w waits"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			expect.Equal(t, [][]any{test.want}, typedtest.Cells(t, test.resource.Table, test.object), "cells")
		})
	}
}

func TestColumns(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		resource     typed.Resource
		list         runtime.Object
		always, wide []string
	}{
		{stores, &v1alpha1.StoreList{}, []string{"Name", "Ready", "Resources", "Objects", "In Use", "Quota", "Age"}, []string{"Size", "Version", "Reason", "Last Backup", "Members", "Endpoints", "Taints"}},
		{hostedResources, &v1alpha1.HostedResourceList{}, []string{"Name", "Store", "Phase", "Objects", "Bytes", "Age"}, []string{"Stored", "Limits", "Cached", "Published", "Reason"}},
	} {
		always, wide := typedtest.Columns(t, test.resource.Table, test.list)
		expect.Equal(t, test.always, always, "columns")
		expect.Equal(t, test.wide, wide, "wide columns")
	}
}

func TestLimitsColumn(t *testing.T) {
	t.Parallel()
	objects := v1alpha1.ResourceList{v1alpha1.ResourceObjects: resource.MustParse("8")}
	both := v1alpha1.ResourceList{v1alpha1.ResourceObjects: resource.MustParse("8"), v1alpha1.ResourceStorage: resource.MustParse("1Ki")}
	for name, tc := range map[string]struct {
		whole, namespace v1alpha1.ResourceList
		reason           string
		want             any
	}{
		"none":               {want: "<none>"},
		"no condition":       {whole: objects, want: "<unknown>"},
		"room":               {whole: objects, reason: "BelowLimits", want: "25%"},
		"the fullest counts": {whole: both, reason: "BelowLimits", want: "50%"},
		"in namespaces":      {namespace: objects, reason: "BelowLimits", want: "BelowLimits"},
		"reached":            {whole: both, reason: "NamespaceLimitReached", want: "NamespaceLimitReached"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hosted := &v1alpha1.HostedResource{
				Spec:   v1alpha1.HostedResourceSpec{Limits: tc.whole, NamespaceLimits: tc.namespace},
				Status: v1alpha1.HostedResourceStatus{Objects: 2, StoredBytes: 512},
			}
			if tc.reason != "" {
				status := metav1.ConditionFalse
				if tc.reason == "BelowLimits" {
					status = metav1.ConditionTrue
				}
				hosted.Status.Conditions = []metav1.Condition{{Type: v1alpha1.HostedResourceWithinLimits, Status: status, Reason: tc.reason}}
			}
			if got := limitUsage(hosted); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

// TestFitTerminal has ordinary names and sizes, and the names of Migrations that commands create.
func TestFitTerminal(t *testing.T) {
	t.Parallel()
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(time.Now().Add(-191 * time.Hour))}
	}
	migration := func(name string, spec v1alpha1.MigrationSpec) *v1alpha1.Migration {
		now := metav1.Now()
		return &v1alpha1.Migration{ObjectMeta: meta(name), Spec: spec, Status: v1alpha1.MigrationStatus{
			Phase: v1alpha1.MigrationCompleted, FromStoreName: "archive", StartTime: &now, Objects: 1203456, CopiedObjects: 1203456,
		}}
	}
	const group, name = "certificates.example.corp", "pins.certificates.example.corp"
	for name, test := range map[string]struct {
		resource typed.Resource
		object   runtime.Object
	}{
		"HostedResource": {hostedResources, &v1alpha1.HostedResource{
			ObjectMeta: meta(name), Spec: v1alpha1.HostedResourceSpec{StoreName: "default"},
			Status: v1alpha1.HostedResourceStatus{Phase: v1alpha1.HostedResourceHosted, Objects: 1203456, Bytes: 1023 << 20},
		}},
		"Store": {stores, &v1alpha1.Store{ObjectMeta: meta("default"), Status: v1alpha1.StoreStatus{Resources: 240, Objects: 1203456, Version: "3.6.12"}}},
		"Store in use": {stores, &v1alpha1.Store{ObjectMeta: meta("fast-ssd-zone-a"), Status: v1alpha1.StoreStatus{
			Conditions: []metav1.Condition{{Type: v1alpha1.StoreReady, Status: metav1.ConditionTrue}}, Resources: 240, Objects: 1203456, Version: "3.6.12",
			DatabaseSize: new(resource.MustParse("1023Mi")), SizeInUse: new(resource.MustParse("1023Mi")), Quota: new(resource.MustParse("8Gi")),
		}}},
		"move":      {migrations, migration(group+"-move-x7k2p", v1alpha1.MigrationSpec{Group: group, Operation: v1alpha1.MigrationMove})},
		"rollback":  {migrations, migration(group+"-rollback-x7k2p", v1alpha1.MigrationSpec{Group: group, Operation: v1alpha1.MigrationRollback})},
		"placement": {migrations, migration(name+"-x7k2p", v1alpha1.MigrationSpec{Resource: name, StoreName: "default"})},
		"StaticSource": {staticSources, &v1alpha1.StaticSource{
			ObjectMeta: meta("url"), Spec: v1alpha1.StaticSourceSpec{Location: "https://config.example.corp/a"}, Status: v1alpha1.StaticSourceStatus{Objects: 240, Applied: 240},
		}},
		"InjectionProfile": {injectionProfiles, &v1alpha1.InjectionProfile{ObjectMeta: meta("log-shipper"), Spec: v1alpha1.InjectionProfileSpec{
			Mode: v1alpha1.InjectionOptOut, Targets: []v1alpha1.InjectionTarget{{Resource: name}},
		}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			expect.FitsTerminal(t, typedtest.Print(t, test.resource.Table, test.object))
		})
	}
}
