// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

func cacheOfTwo() *storeCache {
	cache := newStoreCache()
	for _, name := range []string{"a", "b"} {
		cache.setStore(&hostingv1alpha1.Store{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       hostingv1alpha1.StoreSpec{Capacity: hostingv1alpha1.ResourceList{hostingv1alpha1.ResourceObjects: resource.MustParse("100")}},
		})
	}
	cache.setResource(&hostingv1alpha1.HostedResource{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets.example.com"}, Spec: hostingv1alpha1.HostedResourceSpec{StoreName: "a"},
		Status: hostingv1alpha1.HostedResourceStatus{Objects: 80},
	})
	return cache
}

// TestMovedResourceCountsOnBothStores follows a Migration from a to b.
func TestMovedResourceCountsOnBothStores(t *testing.T) {
	t.Parallel()
	cache := cacheOfTwo()
	migration := &hostingv1alpha1.Migration{
		ObjectMeta: metav1.ObjectMeta{UID: "1"}, Spec: hostingv1alpha1.MigrationSpec{Resource: "widgets.example.com", StoreName: "b"},
	}
	other := migration.DeepCopy()
	other.UID = "2"
	want := func(when string, a, b int64) {
		t.Helper()
		if gotA, gotB := cache.stores["a"].Allocated().Objects, cache.stores["b"].Allocated().Objects; gotA != a || gotB != b {
			t.Errorf("%s: %d and %d objects, want %d and %d", when, gotA, gotB, a, b)
		}
	}
	set := func(migration *hostingv1alpha1.Migration, exists bool, freed string) {
		t.Helper()
		if got := cache.setMigration(migration, exists); got != freed {
			t.Errorf("the Store %q was freed, want %q", got, freed)
		}
	}
	set(migration, true, "")
	want("before it begins", 80, 0)
	migration.Status.FromStoreName = "a"
	set(migration, true, "")
	want("while it moves", 80, 80)
	set(other, true, "")
	set(other, false, "")
	want("while another one waits", 80, 80)

	moved := cache.resources["widgets.example.com"].DeepCopy()
	moved.Spec.StoreName = "b"
	cache.setResource(moved)
	want("after the switch", 80, 80)
	done := migration.DeepCopy()
	done.Status.Phase = hostingv1alpha1.MigrationCompleted
	set(done, true, "a")
	want("at the end", 0, 80)

	cache = cacheOfTwo()
	set(migration, true, "")
	want("again", 80, 80)
	set(migration, false, "b")
	want("after it was canceled", 80, 0)
}
