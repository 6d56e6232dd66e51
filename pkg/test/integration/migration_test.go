// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	hostingclient "github.com/annex-dev/annex/pkg/generated/clientset/versioned/typed/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/storage/etcd/embeddedetcd/etcdtest"
	"github.com/annex-dev/annex/pkg/test/etcdcluster"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/faultproxy"
	"github.com/annex-dev/annex/pkg/test/poll"
)

func (a *annex) migrations() hostingclient.MigrationInterface {
	return a.Hosting.HostingV1alpha1().Migrations()
}

// move creates the Migration of a resource, with the name of the resource.
func (r *resource) move(t *testing.T, store string, changes ...func(*hostingv1alpha1.MigrationSpec)) {
	t.Helper()
	migration := &hostingv1alpha1.Migration{
		ObjectMeta: metav1.ObjectMeta{Name: r.name}, Spec: hostingv1alpha1.MigrationSpec{Resource: r.name, StoreName: store},
	}
	for _, change := range changes {
		change(&migration.Spec)
	}
	expect.Create(t, r.annex.migrations(), migration)
}

func manually(spec *hostingv1alpha1.MigrationSpec) {
	spec.Switch = hostingv1alpha1.MigrationSwitchManual
}

func slowly(spec *hostingv1alpha1.MigrationSpec) { spec.ObjectsPerSecond = 20 }

// waitForMigration waits for the phase of a Migration, and words in the reason or message.
func (a *annex) waitForMigration(t *testing.T, name string, phase hostingv1alpha1.MigrationPhase, words ...string) *hostingv1alpha1.Migration {
	t.Helper()
	var found *hostingv1alpha1.Migration
	poll.Until(t, fmt.Sprintf("migration %s is %s %q", name, phase, words), func() string {
		migration, err := a.migrations().Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		found = migration
		text := ""
		if complete := meta.FindStatusCondition(migration.Status.Conditions, hostingv1alpha1.MigrationComplete); complete != nil {
			text = complete.Reason + ": " + complete.Message
		}
		if migration.Status.Phase != phase {
			return fmt.Sprintf("it is %s: %s", migration.Status.Phase, text)
		}
		return expect.Missing(text, words...)
	})
	return found
}

// createMany creates so many Widgets.
func (r *resource) createMany(t *testing.T, objects int) {
	t.Helper()
	for i := range objects {
		r.create(t, "v1", fmt.Sprintf("kept-%03d", i), "spec: {}")
	}
}

// identities returns the UID of each Widget.
func (r *resource) identities(t *testing.T) map[string]types.UID {
	t.Helper()
	found := map[string]types.UID{}
	for _, object := range r.list(t) {
		found[object.GetName()] = object.GetUID()
	}
	return found
}

// history records the objects that writers have written, and what they and an informer found wrong.
type history struct {
	mu sync.Mutex
	// exist has the objects of which writers know that they exist, with a number that they wrote.
	exist map[string]string
	// deleted are those that a writer deleted.
	deleted map[string]bool
	wrong   []string
}

func (h *history) note(format string, arguments ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wrong = append(h.wrong, fmt.Sprintf(format, arguments...))
}

// write creates, updates and deletes objects until ctx is done. Each request must succeed.
func (h *history) write(ctx context.Context, t *testing.T, r *resource, writer int) {
	widgets := r.in("v1")
	for n := 0; ctx.Err() == nil; n++ {
		name := fmt.Sprintf("writer-%d-%d", writer, n)
		object, err := widgets.Create(context.WithoutCancel(ctx), r.object(t, "v1", name, "spec: {}"), metav1.CreateOptions{})
		if err != nil {
			h.note("create %s: %v", name, err)
			return
		}
		value := fmt.Sprint(n)
		// Resource versions change in a switch, so that a client has to read the object again, at most
		// once for each of the three.
		for conflicts := 0; ; conflicts++ {
			object.Object["spec"] = map[string]any{"n": value}
			if _, err = widgets.Update(context.WithoutCancel(ctx), object, metav1.UpdateOptions{}); err == nil {
				break
			}
			if !apierrors.IsConflict(err) || conflicts == 3 {
				h.note("update %s: %v", name, err)
				return
			}
			if object, err = widgets.Get(context.WithoutCancel(ctx), name, metav1.GetOptions{}); err != nil {
				h.note("get %s: %v", name, err)
				return
			}
		}
		h.mu.Lock()
		h.exist[name] = value
		h.mu.Unlock()
		if n%3 != 0 {
			continue
		}
		h.mu.Lock()
		delete(h.exist, name)
		h.deleted[name] = true
		h.mu.Unlock()
		if err := widgets.Delete(context.WithoutCancel(ctx), name, metav1.DeleteOptions{}); err != nil {
			h.note("delete %s: %v", name, err)
			return
		}
	}
}

// follow runs an informer until ctx is done. Nothing that exists may be deleted or added twice.
func (h *history) follow(ctx context.Context, t *testing.T, r *resource) cache.SharedIndexInformer {
	t.Helper()
	informer := dynamicinformer.NewFilteredDynamicInformer(r.annex.Dynamic, r.gvr("v1"), metav1.NamespaceAll, 0, nil, nil).Informer()
	seen := map[string]bool{}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			name := obj.(metav1.Object).GetName()
			if seen[name] {
				h.note("the informer saw that %s was added twice", name)
			}
			seen[name] = true
		},
		DeleteFunc: func(obj any) {
			key, _ := cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
			name := key[strings.Index(key, "/")+1:]
			h.mu.Lock()
			deleted := h.deleted[name]
			h.mu.Unlock()
			if !deleted {
				h.note("the informer saw that %s was deleted", name)
			}
		},
	})
	expect.NoError(t, err)
	go informer.RunWithContext(ctx)
	poll.UntilDone(t, "the informer is synced", func() (bool, string) { return informer.HasSynced(), "" })
	return informer
}

// TestMigration moves a resource to another Store and back while it is used.
func TestMigration(t *testing.T) {
	t.Parallel()
	a := startAnnex(t)
	moveUnderLoad(t, a.etcd(t), a, a, a)
}

// TestMigrationOnReplicas does the same with a replica that receives the events of etcd late.
func TestMigrationOnReplicas(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t, nil)
	slow, err := faultproxy.New(t.Context(), strings.TrimPrefix(etcd.Endpoint(), "unix://"))
	expect.NoError(t, err)
	t.Cleanup(slow.Close)
	first, second := startReplica(t, etcd.Endpoint()), startReplica(t, "http://"+slow.Address())
	slow.SetDelay(100 * time.Millisecond)
	moveUnderLoad(t, etcd.Client(), first.annex, second.annex)
	slow.SetDelay(0) // for a fast stop
}

// moveUnderLoad moves a resource while clients of these replicas write it, and a client of the last
// replica watches it. etcd belongs to the Store default.
func moveUnderLoad(t *testing.T, etcd *clientv3.Client, replicas ...*annex) {
	t.Helper()
	a := replicas[0]
	other := a.addEtcd(t, "second")
	r := a.installOn(t, "default")
	r.createMany(t, 50)
	before := r.identities(t)

	writing, stop := context.WithCancel(t.Context())
	defer stop()
	h := &history{exist: map[string]string{}, deleted: map[string]bool{}}
	informer := h.follow(t.Context(), t, r.on(replicas[len(replicas)-1]))
	var writers sync.WaitGroup
	for i, replica := range replicas {
		writers.Go(func() { h.write(writing, t, r.on(replica), i) })
	}
	for _, store := range []string{"second", "default", "second"} {
		r.move(t, store)
		migration := a.waitForMigration(t, r.name, hostingv1alpha1.MigrationCompleted, store)
		if migration.Status.CopiedObjects < 50 || migration.Status.CompletionTime == nil || migration.Status.Lag != nil {
			t.Errorf("the status is %+v", migration.Status)
		}
		if on := r.hosted(t).Spec.StoreName; on != store {
			t.Errorf("it is on the Store %q, want %q", on, store)
		}
		expect.Delete(t, a.migrations(), r.name)
		expect.Gone(t, a.migrations(), r.name)
	}
	stop()
	writers.Wait()
	h.wantState(t, r, informer, before)

	if left := r.keysOf(t, etcd); left != 0 {
		t.Errorf("%d keys are left in the Store default", left)
	}
	if moved := r.keysOf(t, other.Client(t)); int(moved) != len(r.identities(t)) {
		t.Errorf("the Store second has %d keys of %d objects", moved, len(r.identities(t)))
	}
	if finalizers := r.hosted(t).Finalizers; len(finalizers) > 0 {
		t.Errorf("finalizers %q are left", finalizers)
	}
	r.waitForHostedResource(t, "all objects are counted", func(hosted *hostingv1alpha1.HostedResource) bool {
		return int(hosted.Status.Objects) == len(r.identities(t))
	})
}

// wantState compares the objects with the history, and the informer with the objects.
func (h *history) wantState(t *testing.T, r *resource, informer cache.SharedIndexInformer, before map[string]types.UID) {
	t.Helper()
	now := r.identities(t)
	for name, uid := range before {
		if now[name] != uid {
			t.Errorf("%s had the UID %s, and has %q", name, uid, now[name])
		}
		delete(now, name)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, wrong := range h.wrong {
		t.Error(wrong)
	}
	if len(h.exist) < 10 {
		t.Errorf("only %d objects were written", len(h.exist))
	}
	expect.Equal(t, slices.Sorted(maps.Keys(h.exist)), slices.Sorted(maps.Keys(now)), "the objects")
	for name, value := range h.exist {
		if got, _, _ := unstructured.NestedString(r.get(t, "v1", name).Object, "spec", "n"); got != value {
			t.Errorf("%s has the value %q, want %q", name, got, value)
		}
	}
	poll.UntilDone(t, "the informer has what a list has", func() (bool, string) {
		cached, listed := map[string]string{}, map[string]string{}
		for _, object := range informer.GetStore().List() {
			cached[object.(metav1.Object).GetName()] = object.(metav1.Object).GetResourceVersion()
		}
		for _, object := range r.list(t) {
			listed[object.GetName()] = object.GetResourceVersion()
		}
		return maps.Equal(cached, listed), fmt.Sprintf("%d and %d objects", len(cached), len(listed))
	})
}

// TestMigrationIsRefused checks what a Migration reports that cannot begin.
func TestMigrationIsRefused(t *testing.T) {
	t.Parallel()
	a := startAnnex(t)
	etcd := a.addEtcd(t, "second")
	r := a.installOn(t, "default")
	r.create(t, "v1", "first", "spec: {}")
	a.createHostedResource(t, "undefined.example.com", hostingv1alpha1.HostedResourceSpec{StoreName: "default"})
	occupied := a.installOn(t, "default")
	_, err := etcd.Client(t).Put(t.Context(), "/annex/"+strings.TrimPrefix(occupied.name, strings.SplitN(occupied.name, ".", 2)[0]+".")+"/"+strings.SplitN(occupied.name, ".", 2)[0]+"/x", "kept")
	expect.NoError(t, err)
	for name, test := range map[string]struct {
		resource, store string
		words           []string
	}{
		"unknown resource":   {"lost.example.com", "second", []string{"NotFound", "lost.example.com"}},
		"unknown Store":      {r.name, "third", []string{"StoreNotFound", "third"}},
		"same Store":         {r.name, "default", []string{"SameStore"}},
		"undefined resource": {"undefined.example.com", "second", []string{"NotDefined"}},
		"target with keys":   {occupied.name, "second", []string{"NotEmpty"}},
	} {
		name = strings.ToLower(strings.ReplaceAll(name, " ", "-"))
		expect.Create(t, a.migrations(), &hostingv1alpha1.Migration{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: hostingv1alpha1.MigrationSpec{Resource: test.resource, StoreName: test.store},
		})
		a.waitForMigration(t, name, hostingv1alpha1.MigrationFailed, test.words...)
		expect.Delete(t, a.migrations(), name)
		expect.Gone(t, a.migrations(), name)
	}

	a.patchStore(t, "second", `{"spec":{"unschedulable":true}}`)
	r.move(t, "second")
	a.waitForMigration(t, r.name, hostingv1alpha1.MigrationFailed, "DoesNotFit", "unschedulable")
	r.wantNames(t, "after refusals", "first")
	r.create(t, "v1", "second", "spec: {}")
	if finalizers := r.hosted(t).Finalizers; len(finalizers) > 0 {
		t.Errorf("finalizers %q are left", finalizers)
	}
}

// TestMigrationIsCanceled deletes Migrations before the switch.
func TestMigrationIsCanceled(t *testing.T) {
	t.Parallel()
	a := startAnnex(t)
	etcd := a.addEtcd(t, "second")
	r := a.installOn(t, "default")
	r.createMany(t, 150)
	undone := func(phase string) {
		t.Helper()
		expect.Delete(t, a.migrations(), r.name)
		expect.Gone(t, a.migrations(), r.name)
		if left := r.keysOf(t, etcd.Client(t)); left != 0 {
			t.Errorf("canceled while %s: %d keys are left", phase, left)
		}
		if hosted := r.hosted(t); hosted.Spec.StoreName != "default" || len(hosted.Finalizers) > 0 {
			t.Errorf("canceled while %s: it is on %s with the finalizers %q", phase, hosted.Spec.StoreName, hosted.Finalizers)
		}
		r.mustPatch(t, "v1", "kept-000", `{"spec":{"after":"`+phase+`"}}`)
	}
	r.move(t, "second", slowly)
	a.waitForMigration(t, r.name, hostingv1alpha1.MigrationCopying)
	other := &hostingv1alpha1.Migration{
		ObjectMeta: metav1.ObjectMeta{Name: "other"}, Spec: hostingv1alpha1.MigrationSpec{Resource: r.name, StoreName: "second"},
	}
	expect.Create(t, a.migrations(), other)
	a.waitForMigration(t, "other", hostingv1alpha1.MigrationPending, "Waiting", r.name)
	expect.Delete(t, a.migrations(), "other")
	expect.Gone(t, a.migrations(), "other")
	undone("Copying")

	r.move(t, "second", manually)
	a.waitForMigration(t, r.name, hostingv1alpha1.MigrationFollowing, "spec.confirmed")
	if err := a.Stores().Delete(t.Context(), "second", metav1.DeleteOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("delete the target of a Migration: %v, want a conflict", err)
	}
	_, err := a.HostedResources().Bind(t.Context(), r.name, &hostingv1alpha1.HostedResourceBinding{
		ObjectMeta: metav1.ObjectMeta{Name: r.name}, StoreName: "second", MigrationUID: expect.Get(t, a.migrations(), r.name).UID,
	}, metav1.CreateOptions{})
	if !apierrors.IsConflict(err) {
		t.Errorf("bind it before the switch: %v, want a conflict", err)
	}
	undone("Following")

	gone := a.installOn(t, "default")
	gone.create(t, "v1", "first", "spec: {}")
	gone.move(t, "second", manually)
	a.waitForMigration(t, gone.name, hostingv1alpha1.MigrationFollowing, "spec.confirmed")
	gone.deleteCRD(t)
	gone.waitForCRDDeleted(t)
	poll.UntilNoError(t, "the HostedResource can be deleted", func() error {
		return a.HostedResources().Delete(t.Context(), gone.name, metav1.DeleteOptions{})
	})
	a.waitForMigration(t, gone.name, hostingv1alpha1.MigrationFailed, "BeingDeleted")
	expect.Gone(t, a.HostedResources(), gone.name)

	// The next one is not affected.
	r.move(t, "second", manually)
	a.waitForMigration(t, r.name, hostingv1alpha1.MigrationFollowing, "spec.confirmed")
	expect.Patch(t, a.migrations(), r.name, `{"spec":{"confirmed":true}}`)
	a.waitForMigration(t, r.name, hostingv1alpha1.MigrationCompleted)
	if moved := r.keysOf(t, etcd.Client(t)); moved != 150 {
		t.Errorf("%d objects were moved, want 150", moved)
	}
	expect.Patch(t, a.migrations(), r.name, `{"spec":{"ttlSecondsAfterFinished":0}}`)
	expect.Gone(t, a.migrations(), r.name)
}

// TestMigrationIntoFullStore fills the target while a Migration follows. It is undone, which makes room there.
func TestMigrationIntoFullStore(t *testing.T) {
	t.Parallel()
	a := startAnnex(t)
	etcd := etcdcluster.Start(t, etcdcluster.Config{QuotaBytes: 8 << 20})
	a.addStore(t, "small", etcd)
	r := a.installOn(t, "default")
	r.createMany(t, 20)
	r.move(t, "small", manually)
	a.waitForMigration(t, r.name, hostingv1alpha1.MigrationFollowing, "spec.confirmed")
	etcd.Fill(t, "/others")
	r.create(t, "v1", "late", "spec: {}")
	a.waitForMigration(t, r.name, hostingv1alpha1.MigrationFailed, "NoSpace: ", `store "small" is out of space`)
	if left := r.keysOf(t, etcd.Client(t)); left != 0 {
		t.Errorf("%d keys are left", left)
	}
	if hosted := r.hosted(t); hosted.Spec.StoreName != "default" || len(hosted.Finalizers) > 0 {
		t.Errorf("it is on %s with the finalizers %q", hosted.Spec.StoreName, hosted.Finalizers)
	}
	r.create(t, "v1", "later", "spec: {}")
}

// TestMigrationOffFullStore refuses a move off a Store that is full, which cannot be frozen. The resource stays there, and
// moves once there is room.
func TestMigrationOffFullStore(t *testing.T) {
	t.Parallel()
	a := startAnnex(t)
	etcd := etcdcluster.Start(t, etcdcluster.Config{QuotaBytes: 8 << 20})
	a.addStore(t, "small", etcd)
	r := a.installOn(t, "small")
	r.createMany(t, 20)
	etcd.Fill(t, "/others")
	r.move(t, "default")
	a.waitForMigration(t, r.name, hostingv1alpha1.MigrationFailed, "NoSpace: ", `store "small" is out of space`, "etcdctl alarm disarm")
	if listed, hosted := r.list(t), r.hosted(t); len(listed) != 20 || hosted.Spec.StoreName != "small" || len(hosted.Finalizers) > 0 {
		t.Errorf("%d objects are on %s, with the finalizers %q", len(listed), hosted.Spec.StoreName, hosted.Finalizers)
	}
}

// TestMigrationContinues restarts annex and the etcd of the target during a Migration.
func TestMigrationContinues(t *testing.T) {
	t.Parallel()
	a := startAnnex(t)
	etcd := a.addEtcd(t, "second")
	r := a.installOn(t, "default")
	r.createMany(t, 160)
	before := r.identities(t)
	r.move(t, "second", slowly, manually)
	a.waitForMigration(t, r.name, hostingv1alpha1.MigrationCopying)
	a = a.restart(t)
	r.annex = a
	a.waitForMigration(t, r.name, hostingv1alpha1.MigrationCopying)
	etcd.Members[0].Kill(t)
	a.waitForMigration(t, r.name, hostingv1alpha1.MigrationCopying, "Retrying", "second")
	r.mustPatch(t, "v1", "kept-000", `{"spec":{"while":"lost"}}`)
	etcd.Members[0].Start(t)
	a.waitForMigration(t, r.name, hostingv1alpha1.MigrationFollowing, "spec.confirmed")
	a = a.restart(t)
	r.annex = a
	a.waitForMigration(t, r.name, hostingv1alpha1.MigrationFollowing, "spec.confirmed")
	expect.Patch(t, a.migrations(), r.name, `{"spec":{"confirmed":true}}`)
	// After the switch, a deleted one is completed.
	a.waitForMigration(t, r.name, hostingv1alpha1.MigrationCleaning, "second")
	expect.Delete(t, a.migrations(), r.name)
	a = a.restart(t)
	r.annex = a
	expect.Gone(t, a.migrations(), r.name)
	if left := r.keysOf(t, a.etcd(t)); left != 0 || r.hosted(t).Spec.StoreName != "second" {
		t.Errorf("it is on %s, with %d keys in the Store default", r.hosted(t).Spec.StoreName, left)
	}
	expect.Equal(t, before, r.identities(t), "UIDs")
	if got, _, _ := unstructured.NestedString(r.get(t, "v1", "kept-000").Object, "spec", "while"); got != "lost" {
		t.Errorf("the write while the target was lost has the value %q", got)
	}
}

// TestMigrationWithoutStore deletes the Store that a resource is moved to, after its etcd was lost.
func TestMigrationWithoutStore(t *testing.T) {
	t.Parallel()
	a := startAnnex(t)
	etcd := a.addEtcd(t, "second")
	r := a.installOn(t, "default")
	r.create(t, "v1", "first", "spec: {}")
	r.move(t, "second", manually)
	a.waitForMigration(t, r.name, hostingv1alpha1.MigrationFollowing, "spec.confirmed")
	etcd.Members[0].Kill(t)
	poll.UntilNoError(t, "the Store is deleted", func() error {
		return a.Stores().Delete(t.Context(), "second", metav1.DeleteOptions{})
	})
	a.waitForMigration(t, r.name, hostingv1alpha1.MigrationFailed, "StoreDeleted", "second")
	r.create(t, "v1", "second", "spec: {}")
	if hosted := r.hosted(t); hosted.Spec.StoreName != "default" || len(hosted.Finalizers) > 0 {
		t.Errorf("it is on %s, with the finalizers %q", hosted.Spec.StoreName, hosted.Finalizers)
	}
	expect.Delete(t, a.migrations(), r.name)
	expect.Gone(t, a.migrations(), r.name)
	a.addEtcd(t, "third")
	r.move(t, "third")
	a.waitForMigration(t, r.name, hostingv1alpha1.MigrationCompleted)
	r.wantNames(t, "moved elsewhere", "first", "second")
}
