// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"

	"github.com/annex-dev/annex/pkg/storage/etcd/embeddedetcd/etcdtest"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
	"github.com/annex-dev/annex/pkg/test/random"
)

var configMapKind = schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}

// testObject is an object that owns others or is owned.
type testObject struct {
	annex *annex
	kind  schema.GroupVersionKind
	meta  metav1.ObjectMeta
}

// objects returns a client for the resource and namespace of the object.
func (o *testObject) objects() metadata.ResourceInterface {
	plural := strings.ToLower(o.kind.Kind) + "s"
	return o.annex.Metadata.Resource(o.kind.GroupVersion().WithResource(plural)).Namespace(o.meta.Namespace)
}

// change modifies a new object.
type change func(*metav1.ObjectMeta)

// ownedBy adds owners whose deletion the object blocks.
func ownedBy(by ...*testObject) change {
	return func(meta *metav1.ObjectMeta) {
		for _, owner := range by {
			meta.OwnerReferences = append(meta.OwnerReferences, owner.reference(true))
		}
	}
}

// ownedWithoutBlocking adds owners that do not wait for the object.
func ownedWithoutBlocking(by ...*testObject) change {
	return func(meta *metav1.ObjectMeta) {
		for _, owner := range by {
			meta.OwnerReferences = append(meta.OwnerReferences, owner.reference(false))
		}
	}
}

// withFinalizer adds the finalizer of the tests.
func withFinalizer(meta *metav1.ObjectMeta) { meta.Finalizers = []string{testFinalizer} }

func (o *testObject) reference(blocks bool) metav1.OwnerReference {
	return metav1.OwnerReference{
		APIVersion: o.kind.GroupVersion().String(), Kind: o.kind.Kind, Name: o.meta.Name, UID: o.meta.UID,
		BlockOwnerDeletion: new(blocks),
	}
}

// configMap creates a ConfigMap.
func (a *annex) configMap(t *testing.T, namespace, name string, changes ...change) *testObject {
	t.Helper()
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	for _, change := range changes {
		change(&object.ObjectMeta)
	}
	made := expect.Create(t, a.Kube.CoreV1().ConfigMaps(namespace), object)
	return &testObject{annex: a, kind: configMapKind, meta: made.ObjectMeta}
}

// own creates a Widget in the namespace of the resource.
func (r *resource) own(t *testing.T, name string, changes ...change) *testObject {
	t.Helper()
	object := r.object(t, "v1", name, "spec: {}")
	meta := metav1.ObjectMeta{Namespace: object.GetNamespace(), Name: name}
	for _, change := range changes {
		change(&meta)
	}
	object.SetOwnerReferences(meta.OwnerReferences)
	object.SetFinalizers(meta.Finalizers)
	made, err := r.in("v1").Create(t.Context(), object, metav1.CreateOptions{})
	expect.NoError(t, err, "create Widget %s", name)
	meta.UID = made.GetUID()
	return &testObject{annex: r.annex, kind: r.kind(), meta: meta}
}

func (o *testObject) delete(t *testing.T, propagation metav1.DeletionPropagation) {
	t.Helper()
	expect.NoError(t, o.objects().Delete(t.Context(), o.meta.Name, metav1.DeleteOptions{PropagationPolicy: &propagation}), "delete %s", o)
}

func (o *testObject) String() string { return o.kind.Kind + " " + o.meta.Name }

// live reads the object, and returns nil if it is deleted.
func (o *testObject) live(t *testing.T) *metav1.PartialObjectMetadata {
	t.Helper()
	found, err := o.objects().Get(t.Context(), o.meta.Name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatalf("read %s: %v", o, err)
	}
	if err != nil || found.UID != o.meta.UID {
		return nil
	}
	return found
}

func (o *testObject) waitForDeletion(t *testing.T) {
	t.Helper()
	poll.UntilDone(t, fmt.Sprint(o, " is gone"), func() (bool, string) {
		found := o.live(t)
		return found == nil, fmt.Sprintf("%+v", found)
	})
}

// waitForTerminating waits until the object is being deleted, and fails if it is gone.
func (o *testObject) waitForTerminating(t *testing.T) {
	t.Helper()
	poll.UntilDone(t, fmt.Sprint(o, " is being deleted"), func() (bool, string) {
		live := o.live(t)
		return live != nil && live.DeletionTimestamp != nil, fmt.Sprintf("%+v", live)
	})
}

// expectPresent fails if the object is deleted or terminating.
func (o *testObject) expectPresent(t *testing.T) {
	t.Helper()
	if found := o.live(t); found == nil || found.DeletionTimestamp != nil {
		t.Errorf("%s is %+v, want it there", o, found)
	}
}

// removeFinalizer removes the finalizer of the tests.
func (o *testObject) removeFinalizer(t *testing.T) {
	t.Helper()
	patch := []byte(`{"metadata":{"$deleteFromPrimitiveList/finalizers":["` + testFinalizer + `"]}}`)
	kind := types.StrategicMergePatchType
	if o.kind != configMapKind {
		patch, kind = []byte(`{"metadata":{"finalizers":null}}`), types.MergePatchType
	}
	_, err := o.objects().Patch(t.Context(), o.meta.Name, kind, patch, metav1.PatchOptions{})
	expect.NoError(t, err, "release %s", o)
}

// waitForEvent waits for the only event about the object, a warning.
func (o *testObject) waitForEvent(t *testing.T, namespace, reason, words string) {
	t.Helper()
	poll.UntilDone(t, fmt.Sprintf("an event %s about %s has %q", reason, o, words), func() (bool, string) {
		events, err := o.annex.Kube.CoreV1().Events(namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.uid=" + string(o.meta.UID)})
		done := err == nil && len(events.Items) == 1 && events.Items[0].Reason == reason && events.Items[0].Type == corev1.EventTypeWarning &&
			strings.Contains(events.Items[0].Message, words)
		return done, fmt.Sprintf("%v, error %v", events, err)
	})
}

// waitForGarbageCollector waits until the garbage collector has deleted a new ConfigMap, and so
// has observed the ConfigMaps before it, and most likely everything else.
func (a *annex) waitForGarbageCollector(t *testing.T, namespace string) {
	t.Helper()
	owner := a.configMap(t, namespace, "fence-owner")
	fence := a.configMap(t, namespace, "fence", ownedBy(owner))
	owner.delete(t, metav1.DeletePropagationBackground)
	fence.waitForDeletion(t)
}

// waitForGarbageCollector waits until the garbage collector has observed the objects of the
// resource, and the ConfigMaps in its namespace.
func (r *resource) waitForGarbageCollector(t *testing.T) {
	t.Helper()
	owner := r.annex.configMap(t, r.namespace, "fence-owner-of-custom")
	fence := r.own(t, "fence", ownedBy(owner))
	owner.delete(t, metav1.DeletePropagationBackground)
	fence.waitForDeletion(t)
	r.annex.waitForGarbageCollector(t, r.namespace)
}

// clusterWidgets installs cluster-scoped Widgets.
func (a *annex) clusterWidgets(t *testing.T) *resource {
	t.Helper()
	crd := newCRD(t, anySchema)
	crd.Spec.Scope = apiextensionsv1.ClusterScoped
	a.createCRD(t, crd)
	return &resource{annex: a, name: crd.Name, group: crd.Spec.Group}
}

func TestGarbageCollectionOfDependents(t *testing.T) {
	t.Parallel()
	a := readableAnnex(t)
	widgets, cluster := a.installCRD(t, newCRD(t, anySchema)), a.clusterWidgets(t)
	namespace := widgets.namespace

	typed := a.configMap(t, namespace, "typed")
	custom := widgets.own(t, "custom", ownedBy(typed))
	last := a.configMap(t, namespace, "last", ownedBy(custom))
	global := cluster.own(t, "global")
	inNamespace := widgets.own(t, "in-namespace", ownedBy(global))
	globalToo := cluster.own(t, "global-too", ownedBy(global))
	keeper := a.configMap(t, namespace, "keeper")
	kept := widgets.own(t, "kept", ownedBy(typed, keeper))

	typed.delete(t, metav1.DeletePropagationBackground)
	global.delete(t, metav1.DeletePropagationBackground)
	for _, object := range []*testObject{typed, custom, last, global, inNamespace, globalToo} {
		object.waitForDeletion(t)
	}
	poll.UntilDone(t, "the reference to a deleted owner is removed", func() (bool, string) {
		owners := kept.live(t).OwnerReferences
		return len(owners) == 1 && owners[0].UID == keeper.meta.UID, fmt.Sprint(owners)
	})
	kept.expectPresent(t)
}

func TestForegroundDeletion(t *testing.T) {
	t.Parallel()
	a := readableAnnex(t)
	widgets := a.installCRD(t, newCRD(t, anySchema))
	namespace := widgets.namespace
	for name, makeOwner := range map[string]func(string) *testObject{
		"typed":  func(name string) *testObject { return a.configMap(t, namespace, name) },
		"custom": func(name string) *testObject { return widgets.own(t, name) },
	} {
		owner := makeOwner(name + "-owner")
		child := widgets.own(t, name+"-child", ownedBy(owner))
		grandchild := a.configMap(t, namespace, name+"-grandchild", ownedBy(child), withFinalizer)
		free := a.configMap(t, namespace, name+"-free", ownedWithoutBlocking(owner), withFinalizer)
		// A deletion in the foreground is passed on to dependents that were observed.
		widgets.waitForGarbageCollector(t)

		owner.delete(t, metav1.DeletePropagationForeground)
		for _, object := range []*testObject{owner, child, grandchild, free} {
			object.waitForTerminating(t)
		}
		for _, object := range []*testObject{owner, child} {
			if got := object.live(t).Finalizers; !slices.Contains(got, metav1.FinalizerDeleteDependents) {
				t.Errorf("%s has the finalizers %q", object, got)
			}
		}
		grandchild.removeFinalizer(t)
		for _, object := range []*testObject{grandchild, child, owner} {
			object.waitForDeletion(t)
		}
		if free.live(t) == nil {
			t.Error("a dependent with a finalizer that does not block is deleted")
		}
		free.removeFinalizer(t)
		free.waitForDeletion(t)
	}
}

// A dependent may name its owner in a version that is no longer served. An object in another namespace
// that names it too, and cannot be deleted, delays nothing.
func TestForegroundDeletionWithOddReferences(t *testing.T) {
	t.Parallel()
	a := readableAnnex(t)
	widgets := a.installCRD(t, newCRD(t, anySchema))
	owner := widgets.own(t, "owner")
	old := *owner
	old.kind.Version, old.kind.Kind = "v1beta1", "widget"
	child := a.configMap(t, widgets.namespace, "child", ownedBy(&old))
	forged := a.configMap(t, a.newNamespace(t), "forged", ownedBy(owner), withFinalizer)
	widgets.waitForGarbageCollector(t)

	owner.delete(t, metav1.DeletePropagationForeground)
	child.waitForDeletion(t)
	owner.waitForDeletion(t)
	forged.removeFinalizer(t)
}

func TestOrphanDeletion(t *testing.T) {
	t.Parallel()
	a := readableAnnex(t)
	widgets := a.installCRD(t, newCRD(t, anySchema))
	// A cluster-scoped owner would wait while another test has unreadable Widgets.
	owners := []*testObject{a.configMap(t, widgets.namespace, "typed"), widgets.own(t, "custom")}
	var orphans []*testObject
	for i, owner := range owners {
		orphans = append(orphans,
			a.configMap(t, widgets.namespace, fmt.Sprintf("typed-orphan-%d", i), ownedBy(owner)),
			widgets.own(t, fmt.Sprintf("custom-orphan-%d", i), ownedBy(owner)))
		owner.delete(t, metav1.DeletePropagationOrphan)
	}
	for _, owner := range owners {
		owner.waitForDeletion(t)
	}
	a.waitForGarbageCollector(t, widgets.namespace)
	for _, orphan := range orphans {
		orphan.expectPresent(t)
		if got := orphan.live(t).OwnerReferences; len(got) > 0 {
			t.Errorf("%s still has the owners %v", orphan, got)
		}
	}
}

// TestGarbageCollectionWithInvalidOwners has references to objects that do not exist or that
// cannot be resolved.
func TestGarbageCollectionWithInvalidOwners(t *testing.T) {
	t.Parallel()
	a := readableAnnex(t)
	widgets, cluster := a.installCRD(t, newCRD(t, anySchema)), a.clusterWidgets(t)
	namespace, elsewhere := widgets.namespace, a.newNamespace(t)
	owner := widgets.own(t, "owner")
	// An event tells of an owner in another namespace that was observed.
	widgets.waitForGarbageCollector(t)
	refer := func(change func(*metav1.OwnerReference)) change {
		reference := owner.reference(true)
		change(&reference)
		return func(meta *metav1.ObjectMeta) { meta.OwnerReferences = []metav1.OwnerReference{reference} }
	}

	gone := map[string]*testObject{
		"UID":       a.configMap(t, namespace, "uid", refer(func(r *metav1.OwnerReference) { r.UID = "00000000-0000-0000-0000-000000000000" })),
		"name":      a.configMap(t, namespace, "name", refer(func(r *metav1.OwnerReference) { r.Name = "another" })),
		"kind":      a.configMap(t, namespace, "kind", refer(func(r *metav1.OwnerReference) { r.APIVersion, r.Kind = "v1", "Secret" })),
		"namespace": a.configMap(t, elsewhere, "namespace", ownedBy(owner)),
		"version":   a.configMap(t, namespace, "version", refer(func(r *metav1.OwnerReference) { r.APIVersion, r.UID = widgets.group+"/v9", "no-such" })),
	}
	stays := map[string]*testObject{
		"other version":     a.configMap(t, namespace, "other-version", refer(func(r *metav1.OwnerReference) { r.APIVersion, r.Kind = widgets.group+"/v9", "widget" })),
		"unknown kind":      a.configMap(t, namespace, "unknown-kind", refer(func(r *metav1.OwnerReference) { r.Kind = "Gadget" })),
		"unknown group":     a.configMap(t, namespace, "unknown-group", refer(func(r *metav1.OwnerReference) { r.APIVersion = "unknown.example.com/v1" })),
		"cluster-scoped":    cluster.own(t, "cluster-scoped", ownedBy(owner)),
		"one of two counts": a.configMap(t, namespace, "two", ownedBy(owner, &testObject{kind: widgets.kind(), meta: metav1.ObjectMeta{Name: "x", UID: "no-such"}})),
	}
	for what, object := range gone {
		t.Log("wrong", what)
		object.waitForDeletion(t)
	}
	a.waitForGarbageCollector(t, namespace)
	for what, object := range stays {
		t.Log(what)
		object.expectPresent(t)
	}
	for _, dependent := range []*testObject{gone["namespace"], stays["cluster-scoped"]} {
		in := dependent.meta.Namespace
		if in == "" {
			in = metav1.NamespaceDefault
		}
		dependent.waitForEvent(t, in, "OwnerRefInvalidNamespace", string(owner.meta.UID))
	}
}

func (r *resource) kind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: r.group, Version: "v1", Kind: "Widget"}
}

// Once the kind of an owner is served, references to it are resolved.
func TestGarbageCollectionOfLaterCRD(t *testing.T) {
	t.Parallel()
	a := readableAnnex(t)
	crd := newCRD(t, anySchema)
	later := &resource{annex: a, group: crd.Spec.Group}
	namespace := a.newNamespace(t)
	dependent := a.configMap(t, namespace, "dependent", ownedBy(&testObject{kind: later.kind(), meta: metav1.ObjectMeta{Name: "x", UID: "no-such"}}))
	a.waitForGarbageCollector(t, namespace)
	dependent.expectPresent(t)
	a.createCRD(t, crd)
	dependent.waitForDeletion(t)
}

// The objects of a CRD are deleted with it, and their dependents too.
func TestGarbageCollectionAfterCRDDeletion(t *testing.T) {
	t.Parallel()
	a := readableAnnex(t)
	widgets := a.installCRD(t, newCRD(t, anySchema))
	// The collector watches a resource from its first object on, and only this deletion waits for it.
	first := widgets.own(t, "first")
	first.delete(t, metav1.DeletePropagationForeground)
	first.waitForDeletion(t)
	var dependents []*testObject
	for i := range 20 {
		dependents = append(dependents, a.configMap(t, widgets.namespace, fmt.Sprintf("dependent-%d", i), ownedBy(widgets.own(t, fmt.Sprintf("owner-%d", i)))))
	}
	expect.Delete(t, a.CRDs(), widgets.name)
	for _, dependent := range dependents {
		dependent.waitForDeletion(t)
	}
}

// An unreadable resource delays only deletions of owners that may have dependents in it.
func TestGarbageCollectionWithUnreadableResource(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	crd := newCRD(t, anySchema)
	crd.Spec.Versions = append(crd.Spec.Versions, newVersion(t, "v2", anySchema))
	broken := a.installCRD(t, crd)
	elsewhere := a.newNamespace(t)
	broken.create(t, "v1", "stored-in-v1", "spec: {}")
	broken.updateCRD(t, func(crd *apiextensionsv1.CustomResourceDefinition) {
		for i := range crd.Spec.Versions {
			crd.Spec.Versions[i].Storage = crd.Spec.Versions[i].Name == "v2"
		}
		crd.Spec.Conversion = unreachableConversion()
	})
	poll.UntilDone(t, "objects cannot be read", func() (bool, string) {
		_, err := broken.in("v2").Get(t.Context(), "stored-in-v1", metav1.GetOptions{})
		return err != nil, "they can"
	})
	for _, propagation := range []metav1.DeletionPropagation{metav1.DeletePropagationForeground, metav1.DeletePropagationBackground, metav1.DeletePropagationOrphan} {
		name := strings.ToLower(string(propagation))
		owner := a.configMap(t, elsewhere, name)
		dependent := a.configMap(t, elsewhere, name+"-dependent", ownedBy(owner))
		owner.delete(t, propagation)
		owner.waitForDeletion(t)
		if propagation == metav1.DeletePropagationOrphan {
			dependent.expectPresent(t)
		} else {
			dependent.waitForDeletion(t)
		}
	}
	// In this namespace it may have dependents.
	owner := a.configMap(t, broken.namespace, "owner")
	dependent := a.configMap(t, broken.namespace, "dependent", ownedBy(owner))
	owner.delete(t, metav1.DeletePropagationOrphan)
	owner.waitForEvent(t, broken.namespace, "DependentsUnknown", broken.name)
	if live := owner.live(t); live == nil || !slices.Contains(live.Finalizers, metav1.FinalizerOrphanDependents) {
		t.Errorf("the owner is %+v, want it to wait for unreadable dependents", live)
	}
	broken.updateCRD(t, func(crd *apiextensionsv1.CustomResourceDefinition) {
		crd.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter}
	})
	owner.waitForDeletion(t)
	dependent.expectPresent(t)
}

func TestGarbageCollectionInTerminatingNamespace(t *testing.T) {
	t.Parallel()
	a := readableAnnex(t)
	widgets := a.installCRD(t, newCRD(t, anySchema))
	owner := widgets.own(t, "owner")
	dependent := a.configMap(t, widgets.namespace, "dependent", ownedBy(owner), withFinalizer)
	owner.delete(t, metav1.DeletePropagationForeground)
	foreground := metav1.DeletePropagationForeground
	expect.NoError(t, a.Kube.CoreV1().Namespaces().Delete(t.Context(), widgets.namespace, metav1.DeleteOptions{PropagationPolicy: &foreground}))
	a.waitForNamespaceCondition(t, widgets.namespace, corev1.NamespaceFinalizersRemaining, testFinalizer)
	dependent.removeFinalizer(t)
	a.waitForNamespaceDeleted(t, widgets.namespace)
	if keys := a.keysIn(t, widgets.namespace); len(keys) > 0 {
		t.Errorf("etcd still holds %q", keys)
	}
}

func TestGarbageCollectionAfterRestart(t *testing.T) {
	t.Parallel()
	a := startAnnex(t)
	widgets, cluster := a.installCRD(t, newCRD(t, anySchema)), a.clusterWidgets(t)
	owner := widgets.own(t, "owner")
	child := a.configMap(t, widgets.namespace, "child", ownedBy(owner), withFinalizer)
	late := cluster.own(t, "late")
	orphan := a.configMap(t, widgets.namespace, "orphan", ownedBy(late))
	widgets.waitForGarbageCollector(t)
	owner.delete(t, metav1.DeletePropagationForeground)
	late.delete(t, metav1.DeletePropagationOrphan)
	a = a.restart(t)
	for _, object := range []*testObject{owner, child, late, orphan} {
		object.annex = a
	}
	late.waitForDeletion(t)
	orphan.expectPresent(t)
	child.waitForTerminating(t)
	if live := owner.live(t); live == nil || live.DeletionTimestamp == nil {
		t.Errorf("the owner is %+v, want it to wait", live)
	}
	child.removeFinalizer(t)
	child.waitForDeletion(t)
	owner.waitForDeletion(t)
}

// A new leader completes deletions of the previous one.
func TestGarbageCollectionAfterLeaderChange(t *testing.T) {
	t.Parallel()
	endpoint := etcdtest.Start(t, nil).Endpoint()
	first := startReplica(t, endpoint)
	leader := first.waitForLeader(t, "")
	second := startReplica(t, endpoint)
	widgets := second.installCRD(t, newCRD(t, anySchema))
	owner := widgets.own(t, "owner")
	child := second.configMap(t, widgets.namespace, "child", ownedBy(owner), withFinalizer)
	owner.delete(t, metav1.DeletePropagationForeground)
	child.waitForTerminating(t)
	first.Stop(t)
	// There is no leader for a moment.
	child.removeFinalizer(t)
	cause := widgets.own(t, "cause")
	effect := second.configMap(t, widgets.namespace, "effect", ownedBy(cause))
	cause.delete(t, metav1.DeletePropagationBackground)
	second.waitForLeader(t, leader)
	for _, object := range []*testObject{child, owner, effect} {
		object.waitForDeletion(t)
	}
}

func TestGarbageCollectorDisabled(t *testing.T) {
	t.Parallel()
	a := startAnnex(t, "--enable-garbage-collector=false")
	widgets := a.installCRD(t, newCRD(t, anySchema))
	var dependents []*testObject
	for _, propagation := range []metav1.DeletionPropagation{metav1.DeletePropagationForeground, metav1.DeletePropagationBackground, metav1.DeletePropagationOrphan} {
		name := strings.ToLower(string(propagation))
		owner := widgets.own(t, name)
		dependents = append(dependents, a.configMap(t, widgets.namespace, name, ownedBy(owner)))
		owner.delete(t, propagation)
		if live := owner.live(t); live != nil {
			t.Errorf("%s deletion leaves %+v", propagation, live.ObjectMeta)
		}
	}
	for _, dependent := range dependents {
		dependent.expectPresent(t)
	}
}

// family is a set of objects that own each other, with a model of them: the UIDs of the
// owners of each.
type family struct {
	members []*testObject
	owners  map[types.UID][]types.UID
}

// newFamily creates objects of two kinds, each owned by some of the previous ones.
func newFamily(t *testing.T, widgets *resource, choices *rand.Rand, name string) *family {
	t.Helper()
	f := &family{owners: map[types.UID][]types.UID{}}
	for i := range 8 {
		var changes []change
		var owners []types.UID
		for _, owner := range f.members {
			if choices.IntN(3) > 0 {
				continue
			}
			owners = append(owners, owner.meta.UID)
			if choices.IntN(2) == 0 {
				changes = append(changes, ownedBy(owner))
			} else {
				changes = append(changes, ownedWithoutBlocking(owner))
			}
		}
		var member *testObject
		if name := fmt.Sprintf("%s-%d", name, i); choices.IntN(2) == 0 {
			member = widgets.own(t, name, changes...)
		} else {
			member = widgets.annex.configMap(t, widgets.namespace, name, changes...)
		}
		f.members = append(f.members, member)
		f.owners[member.meta.UID] = owners
	}
	return f
}

// delete deletes a member, and updates the model: dependents without any owner left are
// deleted, others lose the reference.
func (f *family) delete(t *testing.T, choices *rand.Rand) (what string) {
	t.Helper()
	var left []*testObject
	for _, member := range f.members {
		if _, alive := f.owners[member.meta.UID]; alive {
			left = append(left, member)
		}
	}
	if len(left) == 0 {
		return ""
	}
	member := left[choices.IntN(len(left))]
	propagation := []metav1.DeletionPropagation{
		metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan,
	}[choices.IntN(3)]
	member.delete(t, propagation)
	if propagation == metav1.DeletePropagationOrphan {
		for uid, owners := range f.owners {
			f.owners[uid] = slices.DeleteFunc(owners, func(owner types.UID) bool { return owner == member.meta.UID })
		}
	}
	delete(f.owners, member.meta.UID)
	for changed := true; changed; {
		changed = false
		for uid, owners := range f.owners {
			if len(owners) > 0 && !slices.ContainsFunc(owners, f.has) {
				delete(f.owners, uid)
				changed = true
			}
		}
	}
	for uid, owners := range f.owners {
		f.owners[uid] = slices.DeleteFunc(owners, func(owner types.UID) bool { return !f.has(owner) })
	}
	return fmt.Sprintf("%s deleted (%s); ", member, propagation)
}

func (f *family) has(uid types.UID) bool {
	_, alive := f.owners[uid]
	return alive
}

// difference returns the members that differ from the model.
func (f *family) difference(t *testing.T) (problem string) {
	t.Helper()
	for _, member := range f.members {
		live, want := member.live(t), f.owners[member.meta.UID]
		if there := live != nil; there != f.has(member.meta.UID) {
			problem += fmt.Sprintf("%s there: %t; ", member, there)
		} else if there && !slices.EqualFunc(live.OwnerReferences, want, func(ref metav1.OwnerReference, uid types.UID) bool { return ref.UID == uid }) {
			problem += fmt.Sprintf("%s has the owners %v, not %v; ", member, live.OwnerReferences, want)
		}
	}
	return problem
}

// TestGarbageCollectionMatchesModel deletes random members of random families, and compares
// the remaining ones with the model.
func TestGarbageCollectionMatchesModel(t *testing.T) {
	t.Parallel()
	a := readableAnnex(t)
	widgets := a.installCRD(t, newCRD(t, anySchema))
	run := random.Start(t, 3)
	choices := run.Rand(0)
	families := make([]*family, 12)
	history := make([]string, len(families))
	for i := range families {
		families[i] = newFamily(t, widgets, choices, fmt.Sprintf("family-%d", i))
	}
	for run.Next() {
		for i, f := range families {
			history[i] += f.delete(t, choices)
		}
		for i, f := range families {
			poll.Until(t, fmt.Sprintf("family %d agrees after: %s", i, history[i]), func() string { return f.difference(t) })
		}
	}
	a.waitForGarbageCollector(t, widgets.namespace)
	for i, f := range families {
		if problem := f.difference(t); problem != "" {
			t.Errorf("family %d in the end: %s after: %s", i, problem, history[i])
		}
	}
}
