// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package maincopy

import (
	"fmt"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/annex-dev/annex/pkg/aggregated/maincopy"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// TestFreeze: all writes of the group's objects in the main cluster are denied, except annex's.
func TestFreeze(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "frozen.example.com")
	objects := f.objects(f.main, "widgets", "v1")
	create(t, objects, f.newObject("Widget", "a", map[string]any{}))
	resource := f.open(t)["widgets"]
	for range 2 {
		expect.NoError(t, f.copy.Freeze(t.Context(), f.group))
	}
	writes := map[string]func() error{
		"create": func() error {
			_, err := objects.Create(t.Context(), f.newObject("Widget", "b", map[string]any{}), metav1.CreateOptions{})
			return err
		},
		"patch": func() error {
			_, err := objects.Patch(t.Context(), "a", types.MergePatchType, []byte(`{"spec":{"size":"large"}}`), metav1.PatchOptions{})
			return err
		},
		"patch status": func() error {
			_, err := objects.Patch(t.Context(), "a", types.MergePatchType, []byte(`{"status":{"phase":"Ready"}}`), metav1.PatchOptions{}, "status")
			return err
		},
		"delete": func() error { return objects.Delete(t.Context(), "a", metav1.DeleteOptions{}) },
		"delete all": func() error {
			return objects.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{})
		},
	}
	for name, write := range writes {
		if err := write(); err == nil || expect.MissingFrom(err, "served by annex", "frozen") != "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	// annex itself still writes, and unfreezing allows all others.
	syncer := f.start(t, resource, maincopy.NewPairs())
	create(t, f.inAnnex("widgets"), f.newObject("Widget", "c", map[string]any{}))
	drain(t, syncer)
	for range 2 {
		expect.NoError(t, f.copy.Unfreeze(t.Context(), f.group))
	}
	expect.NoError(t, writes["create"](), "a write after it was unfrozen")
}

// TestDeleteAll deletes several pages of objects without their finalizers.
func TestDeleteAll(t *testing.T) {
	t.Parallel()
	const objects = 1100
	f := newFixture(t, "deleted.example.com")
	for i := range objects {
		object := f.newObject("Widget", fmt.Sprintf("object-%d", i), map[string]any{})
		if i%3 == 0 {
			object.SetFinalizers([]string{finalizer})
		}
		create(t, f.objects(f.main, "widgets", "v1"), object)
	}
	expect.NoError(t, f.objects(f.main, "widgets", "v1").Delete(t.Context(), "object-0", metav1.DeleteOptions{}))
	resource := f.open(t)["widgets"]
	var highest atomic.Int64
	for range 2 {
		expect.NoError(t, f.copy.DeleteAll(t.Context(), resource, func(deleted int64) { highest.Store(max(highest.Load(), deleted)) }))
	}
	keys, err := mainCluster.EtcdKeys(t.Context(), "/registry/"+f.group)
	expect.NoError(t, err)
	if len(keys) > 0 || highest.Load() < objects-maincopy.Workers {
		t.Errorf("%d objects were reported as deleted, and %d are left", highest.Load(), len(keys))
	}
}

// TestRaiseRevision raises the revision by some thousands, and refuses to raise it by millions.
func TestRaiseRevision(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "revision.example.com")
	now, err := f.copy.RaiseRevision(t.Context(), 0)
	expect.NoError(t, err)
	raised, err := f.copy.RaiseRevision(t.Context(), now+3000)
	expect.NoError(t, err)
	if raised <= now+3000 {
		t.Errorf("the revision was raised to %d, want more than %d", raised, now+3000)
	}
	_, err = f.copy.RaiseRevision(t.Context(), raised+2*maincopy.MaxRaise)
	expect.Error(t, err, "too far ahead")
	left, err := f.main.Kube.CoreV1().ConfigMaps("annex-system").List(t.Context(), metav1.ListOptions{})
	expect.NoError(t, err)
	for _, found := range left.Items {
		if found.Name != "kube-root-ca.crt" {
			t.Errorf("ConfigMap %s is left", found.Name)
		}
	}
}

// BenchmarkRaiseRevision measures the writes per second by which the revision rises.
func BenchmarkRaiseRevision(b *testing.B) {
	f := newFixture(b, fmt.Sprintf("bench-%d.example.com", b.N))
	now, err := f.copy.RaiseRevision(b.Context(), 0)
	expect.NoError(b, err)
	b.ResetTimer()
	raised, err := f.copy.RaiseRevision(b.Context(), now+int64(b.N))
	b.StopTimer()
	expect.NoError(b, err)
	b.ReportMetric(float64(raised-now)/b.Elapsed().Seconds(), "revisions/s")
}
