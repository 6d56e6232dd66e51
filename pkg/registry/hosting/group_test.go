// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package hosting

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/apis/scheme"
	"github.com/annex-dev/annex/pkg/registry/typed"
	"github.com/annex-dev/annex/pkg/registry/typed/typedtest"
	"github.com/annex-dev/annex/pkg/test/expect"
)

func newEndpoints(t *testing.T) (typed.Endpoints, *typedtest.Storage) {
	t.Helper()
	etcd := typedtest.NewStorage(t, v1alpha1.SchemeGroupVersion)
	return etcd.Endpoints(NewGroup(etcd, nil)), etcd
}

func TestNewGroup(t *testing.T) {
	t.Parallel()
	served, _ := newEndpoints(t)
	known := scheme.Scheme.KnownTypes(v1alpha1.SchemeGroupVersion)
	for kind := range known {
		if _, isObject := known[kind+"List"]; !isObject {
			continue
		}
		plural, _ := meta.UnsafeGuessKindToResource(v1alpha1.SchemeGroupVersion.WithKind(kind))
		if served[plural.Resource] == nil {
			t.Fatalf("%s is registered but %s are not served", kind, plural.Resource)
		}
		if served[plural.Resource+"/status"] == nil {
			t.Errorf("%s have no status endpoint", plural.Resource)
		}
		if got := served.REST(plural.Resource).Categories(); !slices.Equal(got, []string{"annex"}) {
			t.Errorf("categories of %s: %q, want annex", plural.Resource, got)
		}
	}
	for name, shortNames := range map[string][]string{"stores": {"sto"}, "hostedresources": {"hres"}, "migrations": {"mig"}, "injectionprofiles": {"inj"}, "staticsources": {"ssrc"}} {
		if got := served.REST(name).ShortNames(); !slices.Equal(got, shortNames) {
			t.Errorf("short names of %s: %q, want %q", name, got, shortNames)
		}
	}
}

// TestStatusEndpoints has a part for each resource in one etcd.
func TestStatusEndpoints(t *testing.T) {
	t.Parallel()
	endpoints, _ := newEndpoints(t)
	named := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }
	t.Run("Store", func(t *testing.T) {
		object := newEtcdStore("fast")
		object.Status.Objects = 7
		created := typedtest.CheckStatus(t, endpoints, "stores", object,
			func(store *v1alpha1.Store) { store.Spec.Unschedulable, store.Status.Objects = true, 8 },
			func(store *v1alpha1.Store) { store.Spec.Etcd.Endpoints, store.Status.Objects = nil, -1 })
		expect.Equal(t, v1alpha1.StoreStatus{}, created.Status, "status of a new Store")
		expect.Equal(t, []string{v1alpha1.StoreFinalizer}, created.Finalizers, "finalizers of a new Store")
	})
	t.Run("HostedResource", func(t *testing.T) {
		object := &v1alpha1.HostedResource{
			ObjectMeta: named("widgets.example.com"), Spec: v1alpha1.HostedResourceSpec{SchedulerName: "annex-scheduler"},
			Status: v1alpha1.HostedResourceStatus{Phase: v1alpha1.HostedResourceHosted, Objects: 7},
		}
		created := typedtest.CheckStatus(t, endpoints, "hostedresources", object,
			func(hosted *v1alpha1.HostedResource) { hosted.Spec.Priority, hosted.Status.Objects = 9, 8 },
			func(hosted *v1alpha1.HostedResource) { hosted.Spec.Compression, hosted.Status.Phase = "Lzw", "Lost" })
		expect.Equal(t, v1alpha1.HostedResourceStatus{Phase: v1alpha1.HostedResourcePending}, created.Status, "status of a new HostedResource")
	})
	t.Run("Migration", func(t *testing.T) {
		object := &v1alpha1.Migration{
			ObjectMeta: named("widgets"), Spec: v1alpha1.MigrationSpec{Resource: "widgets.example.com", StoreName: "fast", Switch: v1alpha1.MigrationSwitchManual},
			Status: v1alpha1.MigrationStatus{Phase: v1alpha1.MigrationFollowing, Objects: 7},
		}
		created := typedtest.CheckStatus(t, endpoints, "migrations", object,
			func(migration *v1alpha1.Migration) {
				migration.Spec.Confirmed, migration.Status.Phase = true, v1alpha1.MigrationCopying
			},
			func(migration *v1alpha1.Migration) {
				migration.Spec.StoreName, migration.Status.Phase = "slow", "Lost"
			})
		expect.Equal(t, v1alpha1.MigrationStatus{Phase: v1alpha1.MigrationPending}, created.Status, "status of a new Migration")
		expect.Equal(t, []string{v1alpha1.MigrationFinalizer}, created.Finalizers, "finalizers of a new Migration")
	})
	t.Run("InjectionProfile", func(t *testing.T) {
		object := &v1alpha1.InjectionProfile{
			ObjectMeta: named("agent"), Status: v1alpha1.InjectionProfileStatus{ObservedGeneration: 3},
			Spec: v1alpha1.InjectionProfileSpec{
				Mode: v1alpha1.InjectionOptOut, Env: []runtime.RawExtension{{Raw: []byte(`{"name":"A"}`)}},
				Targets: []v1alpha1.InjectionTarget{{Resource: "jobs.example.com", Templates: []v1alpha1.InjectionTemplate{{Path: "spec.template", Type: v1alpha1.InjectionPodTemplate}}}},
			},
		}
		created := typedtest.CheckStatus(t, endpoints, "injectionprofiles", object,
			func(profile *v1alpha1.InjectionProfile) {
				profile.Spec.Priority, profile.Status.ObservedGeneration = 6, 4
			},
			func(profile *v1alpha1.InjectionProfile) {
				profile.Spec.Mode, profile.Status.ObservedGeneration = "Maybe", -1
			})
		expect.Equal(t, v1alpha1.InjectionProfileStatus{}, created.Status, "status of a new InjectionProfile")
	})
	t.Run("StaticSource", func(t *testing.T) {
		object := &v1alpha1.StaticSource{
			ObjectMeta: named(v1alpha1.StaticSources()[0]), Spec: v1alpha1.StaticSourceSpec{Location: "/etc/annex/static"},
			Status: v1alpha1.StaticSourceStatus{Objects: 5},
		}
		created := typedtest.CheckStatus(t, endpoints, "staticsources", object,
			func(source *v1alpha1.StaticSource) { source.Spec.Location, source.Status.Objects = "/srv/static", 6 },
			func(source *v1alpha1.StaticSource) {
				source.Labels, source.Status.Objects = map[string]string{"a b": ""}, -1
			})
		expect.Equal(t, v1alpha1.StaticSourceStatus{}, created.Status, "status of a new StaticSource")
	})
}
