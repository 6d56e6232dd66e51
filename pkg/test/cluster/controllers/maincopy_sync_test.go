// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package controllers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/annex-dev/annex/pkg/aggregated/maincopy"
	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/maincluster"
	"github.com/annex-dev/annex/pkg/test/poll"
)

const finalizer = "example.com/hold"

// testSync: what happened in annex, before the Syncer runs and while it does, comes back to the
// main cluster.
func testSync(t *testing.T, standIn *maincluster.Cluster) {
	const group = "sync.example.com"
	f := newFixture(t, standIn, group, newCopiedDefinition(group, "widgets"), newCopiedDefinition(group, "gadgets"))
	before := f.prepare(t)
	f.move(t, "widgets")
	f.move(t, "gadgets")
	expect.NoError(t, f.copy.Freeze(t.Context(), group))
	f.changeInAnnex(t, "early")

	resources := f.open(t)
	pairs := maincopy.NewPairs(group, resources["widgets"], resources["gadgets"])
	// Dependants first: their owners have no UID in the main cluster yet.
	gadgets := f.start(t, resources["gadgets"], pairs)
	widgets := f.start(t, resources["widgets"], pairs)
	f.changeInAnnex(t, "late")
	drain(t, widgets)
	drain(t, gadgets)

	for _, when := range []string{"early", "late"} {
		f.checkReturned(t, before, when)
	}
	// The pair of what was created in annex is recorded, so that it is found again.
	for _, when := range []string{"early", "late"} {
		for _, name := range []string{"born-" + when, "recreated-" + when} {
			inAnnex, inMain := get(t, f.inAnnex("widgets"), name), get(t, f.inMain("widgets"), name)
			if inMain.GetUID() == inAnnex.GetUID() || !f.record(resources["widgets"]).has(inAnnex.GetUID(), inMain.GetUID()) {
				t.Errorf("%s has UID %s in the main cluster and %s in annex, which is not recorded", name, inMain.GetUID(), inAnnex.GetUID())
			}
			if annotations := inMain.GetAnnotations(); len(annotations) > 0 {
				t.Errorf("%s has annotations: %v", name, annotations)
			}
		}
		owned := get(t, f.inMain("gadgets"), "owned-"+when)
		expect.Equal(t, get(t, f.inMain("widgets"), "born-"+when).GetUID(), owned.GetOwnerReferences()[0].UID)
	}
	again := maincopy.NewPairs(group, resources["widgets"], resources["gadgets"])
	for _, resource := range resources {
		expect.NoError(t, again.Load(t.Context(), resource, f.record(resource)))
	}
	expect.Equal(t, pairs.Len(), again.Len())
}

// prepare creates objects in the main cluster, and returns their UIDs.
func (f *fixture) prepare(t *testing.T) map[string]types.UID {
	t.Helper()
	uids := map[string]types.UID{}
	objects := f.objects(f.main, "widgets", "v1")
	for _, when := range []string{"early", "late"} {
		for _, name := range []string{"same", "applied", "status", "deleted", "recreated", "terminating", "released"} {
			object := f.newObject("Widget", name+"-"+when, map[string]any{"size": "small", "parts": []any{map[string]any{"name": "a", "n": 1.5}}})
			object.SetFinalizers([]string{finalizer})
			created := create(t, objects, object)
			uids[created.GetName()] = created.GetUID()
		}
		expect.NoError(t, objects.Delete(t.Context(), "released-"+when, metav1.DeleteOptions{}))
	}
	return uids
}

// changeInAnnex makes every kind of change.
func (f *fixture) changeInAnnex(t *testing.T, when string) {
	t.Helper()
	objects := f.inAnnex("widgets")
	for _, size := range []string{"medium", "large", "huge"} {
		f.apply(t, objects, "applied-"+when, size)
	}
	status := get(t, objects, "status-"+when)
	status.Object["status"] = map[string]any{"phase": "Ready", "observedGeneration": status.GetGeneration()}
	_, err := objects.UpdateStatus(t.Context(), status, metav1.UpdateOptions{})
	expect.NoError(t, err)
	for _, name := range []string{"deleted", "recreated", "terminating"} {
		expect.NoError(t, objects.Delete(t.Context(), name+"-"+when, metav1.DeleteOptions{}))
	}
	for _, name := range []string{"deleted", "recreated", "released"} {
		patchObject(t, objects, name+"-"+when, `{"metadata":{"finalizers":null}}`)
	}
	create(t, objects, f.newObject("Widget", "recreated-"+when, map[string]any{"size": "new"}))
	born := create(t, objects, f.newObject("Widget", "born-"+when, map[string]any{"size": "born"}))
	for _, size := range []string{"1", "2", "3"} {
		f.apply(t, objects, "born-"+when, size)
	}
	owned := f.newObject("Gadget", "owned-"+when, map[string]any{})
	owned.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: f.group + "/v1", Kind: "Widget", Name: born.GetName(), UID: born.GetUID()}})
	create(t, f.inAnnex("gadgets"), owned)
	bornTerminating := f.newObject("Widget", "bornterminating-"+when, map[string]any{"size": "born"})
	bornTerminating.SetFinalizers([]string{finalizer, metav1.FinalizerDeleteDependents})
	create(t, objects, bornTerminating)
	expect.NoError(t, objects.Delete(t.Context(), bornTerminating.GetName(), metav1.DeleteOptions{}))
	bare := create(t, objects, f.newObject("Widget", "unmanaged-"+when, map[string]any{"size": "born"}))
	patchObject(t, objects, bare.GetName(), `{"metadata":{"managedFields":[{}]}}`)
}

func (f *fixture) apply(t *testing.T, objects dynamic.ResourceInterface, name, size string) {
	t.Helper()
	object := f.newObject("Widget", name, map[string]any{"size": size, "parts": []any{map[string]any{"name": "b", "size": size}}})
	_, err := objects.Apply(t.Context(), name, object, metav1.ApplyOptions{FieldManager: "applier", Force: true})
	expect.NoError(t, err)
}

func patchObject(t *testing.T, objects dynamic.ResourceInterface, name, patch string) {
	t.Helper()
	_, err := objects.Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: "patcher"})
	expect.NoError(t, err)
}

// checkReturned compares the main cluster's objects with annex's.
func (f *fixture) checkReturned(t *testing.T, before map[string]types.UID, when string) {
	t.Helper()
	for _, name := range []string{"same", "applied", "status", "recreated", "terminating", "born", "bornterminating", "unmanaged"} {
		name += "-" + when
		inAnnex, inMain := get(t, f.inAnnex("widgets"), name), get(t, f.inMain("widgets"), name)
		if before[name] == inAnnex.GetUID() && inMain.GetUID() != before[name] {
			t.Errorf("the UID of %s changed from %s to %s", name, before[name], inMain.GetUID())
		}
		if inMain.GetGeneration() < inAnnex.GetGeneration() {
			t.Errorf("the generation of %s is %d, in annex it is %d", name, inMain.GetGeneration(), inAnnex.GetGeneration())
		}
		for _, field := range []string{"spec", "status"} {
			expect.Equal(t, encode(t, inAnnex, field), encode(t, inMain, field), "%s of %s", field, name)
		}
		maincluster.RemoveRaised(inMain)
		for _, field := range []string{"managedFields", "finalizers", "labels"} {
			expect.Equal(t, encode(t, inAnnex, "metadata", field), encode(t, inMain, "metadata", field), "%s of %s", field, name)
		}
		if (inAnnex.GetDeletionTimestamp() == nil) != (inMain.GetDeletionTimestamp() == nil) {
			t.Errorf("%s: the deletionTimestamp is %v, in annex it is %v", name, inMain.GetDeletionTimestamp(), inAnnex.GetDeletionTimestamp())
		}
	}
	for _, name := range []string{"deleted-" + when, "released-" + when} {
		if found, err := f.inMain("widgets").Get(t.Context(), name, metav1.GetOptions{}); err == nil {
			t.Errorf("%s still exists: %v", name, found)
		}
	}
}

func encode(t *testing.T, object *unstructured.Unstructured, fields ...string) string {
	t.Helper()
	value, _, _ := unstructured.NestedFieldNoCopy(object.Object, fields...)
	encoded, err := json.MarshalIndent(value, "", " ")
	expect.NoError(t, err)
	return string(encoded)
}

// testSyncOpensAgain: a Syncer continues after a chart has removed the version.
func testSyncOpensAgain(t *testing.T, standIn *maincluster.Cluster) {
	f := newFixture(t, standIn, "again.example.com")
	resource := f.open(t)["widgets"]
	syncer := f.start(t, resource, maincopy.NewPairs(f.group, resource))
	expect.NoError(t, f.copy.Close(t.Context(), f.group))
	create(t, f.inAnnex("widgets"), f.newObject("Widget", "a", map[string]any{}))
	drain(t, syncer)
}

// testSyncOfReplaced: a process that was replaced, and does not know yet what its successor has created, deletes nothing.
func testSyncOfReplaced(t *testing.T, standIn *maincluster.Cluster) {
	f := newFixture(t, standIn, "replaced.example.com")
	resource := f.open(t)["widgets"]
	successor := f.start(t, resource, maincopy.NewPairs(f.group, resource))
	create(t, f.inAnnex("widgets"), f.newObject("Widget", "a", map[string]any{}))
	drain(t, successor)
	created := get(t, f.inMain("widgets"), "a")

	errReplaced := errors.New("another process has taken over")
	replaced := f.copy.Fenced(func(context.Context) error { return errReplaced })
	syncer, err := replaced.NewSyncer(resource, f.source(t, resource), maincopy.NewPairs(f.group, resource))
	expect.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- syncer.Run(ctx, func() {}) }()
	poll.Until(t, "the replaced process is refused, or writes", func() string {
		if problem := syncer.Problem(); !errors.Is(problem, errReplaced) && syncer.Progress().Written == 0 {
			return fmt.Sprint(problem)
		}
		return ""
	})
	cancel()
	if err := <-ended; !errorsIsCanceled(err) {
		t.Errorf("the syncer ended with %v", err)
	}
	expect.Equal(t, created.GetUID(), get(t, f.inMain("widgets"), "a").GetUID(), "the UID in the main cluster")
	expect.Equal(t, int64(0), syncer.Progress().Written, "writes")
}

// testSyncManyObjects compares several pages, and what a second Syncer has to write.
func testSyncManyObjects(t *testing.T, standIn *maincluster.Cluster) {
	const objects = 300
	f := newFixture(t, standIn, "many.example.com")
	for i := range objects {
		create(t, f.inAnnex("widgets"), f.newObject("Widget", fmt.Sprintf("object-%d", i), map[string]any{"i": i}))
	}
	resource := f.open(t)["widgets"]
	pairs := maincopy.NewPairs(f.group, resource)
	started := time.Now()
	syncer := f.start(t, resource, pairs)
	t.Logf("created %d objects in %s", objects, time.Since(started).Round(time.Millisecond))
	drain(t, syncer)
	if got := pairs.Len(); got != objects {
		t.Errorf("%d pairs are known, want %d", got, objects)
	}
	started = time.Now()
	second := f.start(t, resource, pairs)
	t.Logf("compared them in %s", time.Since(started).Round(time.Millisecond))
	drain(t, second)
	if got := second.Progress().Written; got != 0 {
		t.Errorf("a second Syncer wrote %d times", got)
	}
	poll.UntilDone(t, "both clusters have all objects", func() (bool, string) {
		var seen [2]int
		for i, side := range []dynamic.ResourceInterface{f.inMain("widgets"), f.inAnnex("widgets")} {
			list, err := side.List(t.Context(), metav1.ListOptions{})
			expect.NoError(t, err)
			seen[i] = len(list.Items)
		}
		return seen == [2]int{objects, objects}, fmt.Sprint(seen)
	})
}

// testSyncUnderLoad: clients create, change and delete few objects, so that the Syncer often reads
// objects that change at the same time.
func testSyncUnderLoad(t *testing.T, standIn *maincluster.Cluster) {
	const writers, writes, names = 4, 150, 5
	f := newFixture(t, standIn, "load.example.com")
	objects := f.inAnnex("widgets")
	resource := f.open(t)["widgets"]
	syncer := f.start(t, resource, maincopy.NewPairs(f.group, resource))
	var running sync.WaitGroup
	for writer := range writers {
		running.Go(func() {
			for n := range writes {
				name := fmt.Sprintf("object-%d", (n*writer+n/7)%names)
				if err := writeAny(t.Context(), f, objects, name, n); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsAlreadyExists(err) && !apierrors.IsConflict(err) {
					t.Errorf("write %s: %v", name, err)
				}
			}
		})
	}
	running.Wait()
	drain(t, syncer)
}

func writeAny(ctx context.Context, f *fixture, objects dynamic.ResourceInterface, name string, n int) error {
	switch n % 6 {
	case 0:
		return objects.Delete(ctx, name, metav1.DeleteOptions{})
	case 1:
		object := f.newObject("Widget", name, map[string]any{"n": n})
		if n%4 == 1 {
			object.SetFinalizers([]string{finalizer})
		}
		_, err := objects.Create(ctx, object, metav1.CreateOptions{})
		return err
	case 2:
		_, err := objects.Patch(ctx, name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		return err
	case 3:
		_, err := objects.Patch(ctx, name, types.MergePatchType, fmt.Appendf(nil, `{"status":{"n":%d}}`, n), metav1.PatchOptions{}, "status")
		return err
	}
	_, err := objects.Patch(ctx, name, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"n":%d}}`, n), metav1.PatchOptions{})
	return err
}

// testSyncSurvivesRestarts is not parallel: it kills both kube-apiservers. A restarted one cannot
// continue the watch, so all objects are compared again.
func testSyncSurvivesRestarts(t *testing.T, standIn *maincluster.Cluster) {
	f := newFixture(t, standIn, "restarts.example.com")
	resource := f.open(t)["widgets"]
	create(t, f.inAnnex("widgets"), f.newObject("Widget", "deleted", map[string]any{}))
	syncer := f.start(t, resource, maincopy.NewPairs(f.group, resource))
	for _, cluster := range []*maincluster.Cluster{standIn, mainCluster} {
		cluster.KillAPIServer()
		expect.NoError(t, cluster.StartAPIServer(t.Context()))
	}
	expect.NoError(t, f.inAnnex("widgets").Delete(t.Context(), "deleted", metav1.DeleteOptions{}))
	create(t, f.inAnnex("widgets"), f.newObject("Widget", "created", map[string]any{}))
	drain(t, syncer)
	if err := syncer.Problem(); err != nil {
		t.Errorf("a problem is reported: %v", err)
	}
}

// testSyncUnchanged: an object that has not changed in annex gets a higher resource version by one write, in each rollback.
func testSyncUnchanged(t *testing.T, standIn *maincluster.Cluster) {
	const objects = 20
	f := newFixture(t, standIn, "unchanged.example.com")
	resource := f.prepareUnchanged(t, objects)
	for round := range 3 {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			syncer := f.start(t, resource, maincopy.NewPairs(f.group, resource))
			drain(t, syncer)
			expect.Equal(t, int64(objects), syncer.Progress().Written, "writes")
			inAnnex, inMain := get(t, f.inAnnex("widgets"), "object-1"), get(t, f.inMain("widgets"), "object-1")
			maincluster.RemoveRaised(inAnnex)
			maincluster.RemoveRaised(inMain)
			for _, field := range []string{"uid", "generation", "managedFields", "labels", "annotations"} {
				expect.Equal(t, encode(t, inAnnex, "metadata", field), encode(t, inMain, "metadata", field), "%s", field)
			}
		})
		// Clients go on to apply the object, and it moves again.
		stored := f.objects(f.main, "widgets", "v1")
		f.apply(t, stored, "object-1", fmt.Sprint(round))
		f.raiseAnnex(t, get(t, stored, "object-1"))
		f.move(t, "widgets")
	}
}

// prepareUnchanged creates objects in the main cluster, which annex then has with higher resource versions.
func (f *fixture) prepareUnchanged(t testing.TB, objects int) maincopy.Resource {
	t.Helper()
	var creating errgroup.Group
	creating.SetLimit(maincopy.Workers)
	for i := range objects {
		creating.Go(func() error {
			object := f.newObject("Widget", fmt.Sprintf("object-%d", i), map[string]any{"i": i, "text": strings.Repeat("x", 1000)})
			_, err := f.objects(f.main, "widgets", "v1").Create(t.Context(), object, metav1.CreateOptions{FieldManager: "creator"})
			return err
		})
	}
	expect.NoError(t, creating.Wait())
	last, err := f.objects(f.main, "widgets", "v1").List(t.Context(), metav1.ListOptions{Limit: 1})
	expect.NoError(t, err)
	f.raiseAnnex(t, last)
	f.move(t, "widgets")
	return f.open(t)["widgets"]
}

// raiseAnnex makes the revision of annex's etcd higher than the resource version of an object of the main cluster.
func (f *fixture) raiseAnnex(t testing.TB, above interface{ GetResourceVersion() string }) {
	t.Helper()
	revision, err := strconv.ParseInt(above.GetResourceVersion(), 10, 64)
	expect.NoError(t, err)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: hostingv1alpha1.NamespaceAnnexSystem}}
	if _, err := f.annex.Kube.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		expect.NoError(t, err)
	}
	inAnnex, err := maincopy.New(maincopy.Config{Main: f.standIn.Config, Annex: f.standIn.Config})
	expect.NoError(t, err)
	_, err = inAnnex.RaiseRevision(t.Context(), revision+100)
	expect.NoError(t, err)
}

// BenchmarkSyncUnchanged measures the objects per second of a rollback that have not changed in annex.
func BenchmarkSyncUnchanged(b *testing.B) {
	f := newFixture(b, startStandIn(b), fmt.Sprintf("bench-%d.example.com", b.N))
	resource := f.prepareUnchanged(b, b.N)
	b.ResetTimer()
	f.start(b, resource, maincopy.NewPairs(f.group, resource))
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "objects/s")
}
