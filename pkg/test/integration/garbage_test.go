// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
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
	"k8s.io/utils/ptr"

	"github.com/annex-dev/annex/pkg/test/poll"
	"github.com/annex-dev/annex/pkg/test/testserver"
)

var configMapKind = schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}

// thing is an object of a test that owns or is owned.
type thing struct {
	objects metadata.ResourceInterface
	kind    schema.GroupVersionKind
	meta    metav1.ObjectMeta
}

// objects is a client of an object's resource and namespace, for every kind alike.
func (a *annex) objects(t *testing.T, of *thing) metadata.ResourceInterface {
	t.Helper()
	annexMetadata, err := metadata.NewForConfigAndClient(metadata.ConfigFor(a.AnnexConfig), a.http)
	expectNoError(t, err)
	plural := strings.ToLower(of.kind.Kind) + "s"
	return annexMetadata.Resource(of.kind.GroupVersion().WithResource(plural)).Namespace(of.meta.Namespace)
}

// change says what is particular to an object that is made.
type change func(*metav1.ObjectMeta)

// owned has an object owned by others, which it blocks.
func owned(by ...*thing) change {
	return func(meta *metav1.ObjectMeta) {
		for _, owner := range by {
			meta.OwnerReferences = append(meta.OwnerReferences, owner.reference(true))
		}
	}
}

// ownedFreely has an object owned by others that do not wait for it.
func ownedFreely(by ...*thing) change {
	return func(meta *metav1.ObjectMeta) {
		for _, owner := range by {
			meta.OwnerReferences = append(meta.OwnerReferences, owner.reference(false))
		}
	}
}

// held keeps an object from going by itself.
func held(meta *metav1.ObjectMeta) { meta.Finalizers = []string{heldFinalizer} }

func (o *thing) reference(blocks bool) metav1.OwnerReference {
	return metav1.OwnerReference{
		APIVersion: o.kind.GroupVersion().String(), Kind: o.kind.Kind, Name: o.meta.Name, UID: o.meta.UID,
		BlockOwnerDeletion: ptr.To(blocks),
	}
}

// configMap makes a ConfigMap.
func (a *annex) configMap(t *testing.T, namespace, name string, changes ...change) *thing {
	t.Helper()
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	for _, change := range changes {
		change(&object.ObjectMeta)
	}
	made := mustCreate(t, a.kube.CoreV1().ConfigMaps(namespace), object)
	o := &thing{kind: configMapKind, meta: made.ObjectMeta}
	o.objects = a.objects(t, o)
	return o
}

// own makes a Widget, in the resource's namespace.
func (r *resource) own(t *testing.T, name string, changes ...change) *thing {
	t.Helper()
	object := r.object(t, "v1", name, "spec: {}")
	meta := metav1.ObjectMeta{Namespace: object.GetNamespace(), Name: name}
	for _, change := range changes {
		change(&meta)
	}
	object.SetOwnerReferences(meta.OwnerReferences)
	object.SetFinalizers(meta.Finalizers)
	made, err := r.in("v1").Create(t.Context(), object, metav1.CreateOptions{})
	expectNoError(t, err, "create Widget %s", name)
	meta.UID = made.GetUID()
	o := &thing{kind: r.kind(), meta: meta}
	o.objects = r.annex.objects(t, o)
	return o
}

func (o *thing) delete(t *testing.T, propagation metav1.DeletionPropagation) {
	t.Helper()
	expectNoError(t, o.objects.Delete(t.Context(), o.meta.Name, metav1.DeleteOptions{PropagationPolicy: &propagation}), "delete %s", o)
}

func (o *thing) String() string { return o.kind.Kind + " " + o.meta.Name }

// live reads the object, and returns nil if it is gone.
func (o *thing) live(t *testing.T) *metav1.PartialObjectMetadata {
	t.Helper()
	found, err := o.objects.Get(t.Context(), o.meta.Name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatalf("read %s: %v", o, err)
	}
	if err != nil || found.UID != o.meta.UID {
		return nil
	}
	return found
}

func (o *thing) waitGone(t *testing.T) {
	t.Helper()
	poll.Until(t, fmt.Sprint(o, " is gone"), func() string {
		if found := o.live(t); found != nil {
			return fmt.Sprintf("%+v", found.ObjectMeta)
		}
		return ""
	})
}

// wantThere fails if the object is gone or is going.
func (o *thing) wantThere(t *testing.T) {
	t.Helper()
	if found := o.live(t); found == nil || found.DeletionTimestamp != nil {
		t.Errorf("%s is %+v, want it there", o, found)
	}
}

// release takes away the finalizer of the tests.
func (o *thing) release(t *testing.T) {
	t.Helper()
	patch := []byte(`{"metadata":{"$deleteFromPrimitiveList/finalizers":["` + heldFinalizer + `"]}}`)
	kind := types.StrategicMergePatchType
	if o.kind != configMapKind {
		patch, kind = []byte(`{"metadata":{"finalizers":null}}`), types.MergePatchType
	}
	if _, err := o.objects.Patch(t.Context(), o.meta.Name, kind, patch, metav1.PatchOptions{}); err != nil {
		t.Fatalf("releasing %s: %v", o, err)
	}
}

// fence returns when the garbage collector has done what it had to do before, or
// nearly so: it collects something that came later.
func (a *annex) fence(t *testing.T, namespace string) {
	t.Helper()
	owner := a.configMap(t, namespace, "fence-owner")
	fence := a.configMap(t, namespace, "fence", owned(owner))
	owner.delete(t, metav1.DeletePropagationBackground)
	fence.waitGone(t)
}

// clusterWidgets installs Widgets without a namespace.
func (a *annex) clusterWidgets(t *testing.T) *resource {
	t.Helper()
	crd := newDefinition(t, anySchema)
	crd.Spec.Scope = apiextensionsv1.ClusterScoped
	a.create(t, crd)
	return &resource{annex: a, name: crd.Name, group: crd.Spec.Group}
}

func TestGarbageGoesWithItsOwners(t *testing.T) {
	t.Parallel()
	a := readableAnnex(t)
	widgets, cluster := a.install(t, newDefinition(t, anySchema)), a.clusterWidgets(t)
	namespace := widgets.namespace

	typed := a.configMap(t, namespace, "typed")
	custom := widgets.own(t, "custom", owned(typed))
	last := a.configMap(t, namespace, "last", owned(custom))
	global := cluster.own(t, "global")
	inNamespace := widgets.own(t, "in-namespace", owned(global))
	globalToo := cluster.own(t, "global-too", owned(global))
	keeper := a.configMap(t, namespace, "keeper")
	kept := widgets.own(t, "kept", owned(typed, keeper))

	typed.delete(t, metav1.DeletePropagationBackground)
	global.delete(t, metav1.DeletePropagationBackground)
	for _, object := range []*thing{typed, custom, last, global, inNamespace, globalToo} {
		object.waitGone(t)
	}
	poll.Until(t, "an owner that is gone is taken away", func() string {
		if owners := kept.live(t).OwnerReferences; len(owners) != 1 || owners[0].UID != keeper.meta.UID {
			return fmt.Sprint(owners)
		}
		return ""
	})
	kept.wantThere(t)
}

func TestGarbageInTheForeground(t *testing.T) {
	t.Parallel()
	a := readableAnnex(t)
	widgets := a.install(t, newDefinition(t, anySchema))
	namespace := widgets.namespace
	for name, makeOwner := range map[string]func(string) *thing{
		"typed":  func(name string) *thing { return a.configMap(t, namespace, name) },
		"custom": func(name string) *thing { return widgets.own(t, name) },
	} {
		owner := makeOwner(name + "-owner")
		child := widgets.own(t, name+"-child", owned(owner))
		grandchild := a.configMap(t, namespace, name+"-grandchild", owned(child), held)
		free := a.configMap(t, namespace, name+"-free", ownedFreely(owner), held)

		owner.delete(t, metav1.DeletePropagationForeground)
		poll.Until(t, "all are being deleted", func() string {
			for _, object := range []*thing{owner, child, grandchild, free} {
				if live := object.live(t); live == nil || live.DeletionTimestamp == nil {
					return fmt.Sprintf("%s is %+v", object, live)
				}
			}
			return ""
		})
		for _, object := range []*thing{owner, child} {
			if got := object.live(t).Finalizers; !slices.Contains(got, metav1.FinalizerDeleteDependents) {
				t.Errorf("%s has the finalizers %q", object, got)
			}
		}
		grandchild.release(t)
		for _, object := range []*thing{grandchild, child, owner} {
			object.waitGone(t)
		}
		if free.live(t) == nil {
			t.Error("what blocks nothing and is held is gone")
		}
		free.release(t)
		free.waitGone(t)
	}
}

func TestGarbageOrphans(t *testing.T) {
	t.Parallel()
	a := readableAnnex(t)
	widgets := a.install(t, newDefinition(t, anySchema))
	// One without a namespace would wait while another test has broken Widgets.
	owners := []*thing{a.configMap(t, widgets.namespace, "typed"), widgets.own(t, "custom")}
	var orphans []*thing
	for i, owner := range owners {
		orphans = append(orphans,
			a.configMap(t, widgets.namespace, fmt.Sprintf("typed-orphan-%d", i), owned(owner)),
			widgets.own(t, fmt.Sprintf("custom-orphan-%d", i), owned(owner)))
		owner.delete(t, metav1.DeletePropagationOrphan)
	}
	for _, owner := range owners {
		owner.waitGone(t)
	}
	a.fence(t, widgets.namespace)
	for _, orphan := range orphans {
		orphan.wantThere(t)
		if got := orphan.live(t).OwnerReferences; len(got) > 0 {
			t.Errorf("%s still has the owners %v", orphan, got)
		}
	}
}

// TestGarbageWithOwnersThatCannotBe has references that lead nowhere, or that
// nothing can be said about.
func TestGarbageWithOwnersThatCannotBe(t *testing.T) {
	t.Parallel()
	a := readableAnnex(t)
	widgets, cluster := a.install(t, newDefinition(t, anySchema)), a.clusterWidgets(t)
	namespace, elsewhere := widgets.namespace, a.newNamespace(t)
	owner := widgets.own(t, "owner")
	refer := func(change func(*metav1.OwnerReference)) change {
		reference := owner.reference(true)
		change(&reference)
		return func(meta *metav1.ObjectMeta) { meta.OwnerReferences = []metav1.OwnerReference{reference} }
	}

	gone := map[string]*thing{
		"UID":       a.configMap(t, namespace, "uid", refer(func(r *metav1.OwnerReference) { r.UID = "00000000-0000-0000-0000-000000000000" })),
		"name":      a.configMap(t, namespace, "name", refer(func(r *metav1.OwnerReference) { r.Name = "another" })),
		"kind":      a.configMap(t, namespace, "kind", refer(func(r *metav1.OwnerReference) { r.APIVersion, r.Kind = "v1", "Secret" })),
		"namespace": a.configMap(t, elsewhere, "namespace", owned(owner)),
	}
	stays := map[string]*thing{
		"unknown kind":      a.configMap(t, namespace, "unknown-kind", refer(func(r *metav1.OwnerReference) { r.Kind = "Gadget" })),
		"unknown version":   a.configMap(t, namespace, "unknown-version", refer(func(r *metav1.OwnerReference) { r.APIVersion, r.UID = widgets.group+"/v9", "no-such" })),
		"unknown group":     a.configMap(t, namespace, "unknown-group", refer(func(r *metav1.OwnerReference) { r.APIVersion = "nobody.example.com/v1" })),
		"cluster-scoped":    cluster.own(t, "cluster-scoped", owned(owner)),
		"one of two counts": a.configMap(t, namespace, "two", owned(owner, &thing{kind: widgets.kind(), meta: metav1.ObjectMeta{Name: "x", UID: "no-such"}})),
	}
	for what, object := range gone {
		t.Log("wrong", what)
		object.waitGone(t)
	}
	a.fence(t, namespace)
	for what, object := range stays {
		t.Log(what)
		object.wantThere(t)
	}
	for _, dependent := range []*thing{gone["namespace"], stays["cluster-scoped"]} {
		in := dependent.meta.Namespace
		if in == "" {
			in = metav1.NamespaceDefault
		}
		poll.Until(t, fmt.Sprint("an event about ", dependent), func() string {
			events, err := a.kube.CoreV1().Events(in).List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.uid=" + string(dependent.meta.UID)})
			if err != nil || len(events.Items) != 1 || events.Items[0].Reason != "OwnerRefInvalidNamespace" || events.Items[0].Type != corev1.EventTypeWarning {
				return fmt.Sprintf("%v, error %v", events, err)
			}
			if !strings.Contains(events.Items[0].Message, string(owner.meta.UID)) {
				t.Errorf("the event says %q", events.Items[0].Message)
			}
			return ""
		})
	}
}

func (r *resource) kind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: r.group, Version: "v1", Kind: "Widget"}
}

// Owners of a kind that comes to be served can be told apart.
func TestGarbageOfAKindThatComesLater(t *testing.T) {
	t.Parallel()
	a := readableAnnex(t)
	crd := newDefinition(t, anySchema)
	later := &resource{annex: a, group: crd.Spec.Group}
	namespace := a.newNamespace(t)
	dependent := a.configMap(t, namespace, "dependent", owned(&thing{kind: later.kind(), meta: metav1.ObjectMeta{Name: "x", UID: "no-such"}}))
	a.fence(t, namespace)
	dependent.wantThere(t)
	a.create(t, crd)
	dependent.waitGone(t)
}

// The objects of a definition go with it, and what they own too.
func TestGarbageOfADefinition(t *testing.T) {
	t.Parallel()
	a := readableAnnex(t)
	widgets := a.install(t, newDefinition(t, anySchema))
	var dependents []*thing
	for i := range 20 {
		dependents = append(dependents, a.configMap(t, widgets.namespace, fmt.Sprintf("dependent-%d", i), owned(widgets.own(t, fmt.Sprintf("owner-%d", i)))))
	}
	mustDelete(t, a.extensions.ApiextensionsV1().CustomResourceDefinitions(), widgets.name)
	for _, dependent := range dependents {
		dependent.waitGone(t)
	}
}

func TestGarbageInCycles(t *testing.T) {
	t.Parallel()
	a := readableAnnex(t)
	namespace := a.newNamespace(t)
	cycle := func(name string, n int) []*thing {
		var objects []*thing
		for i := range n {
			objects = append(objects, a.configMap(t, namespace, fmt.Sprintf("%s-%d", name, i)))
		}
		for i, object := range objects {
			reference := objects[(i+1)%n].reference(true)
			patch := fmt.Sprintf(`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":%q,"uid":%q,"blockOwnerDeletion":true}]}}`, reference.Name, reference.UID)
			if _, err := object.objects.Patch(t.Context(), object.meta.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		return objects
	}
	one, three, both, untouched := cycle("one", 1), cycle("three", 3), cycle("both", 2), cycle("untouched", 3)
	one[0].delete(t, metav1.DeletePropagationForeground)
	three[0].delete(t, metav1.DeletePropagationForeground)
	both[0].delete(t, metav1.DeletePropagationForeground)
	// It may be gone by then.
	foreground := metav1.DeletePropagationForeground
	if err := both[1].objects.Delete(t.Context(), both[1].meta.Name, metav1.DeleteOptions{PropagationPolicy: &foreground}); err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	for _, object := range slices.Concat(one, three, both) {
		object.waitGone(t)
	}
	for _, object := range untouched {
		object.wantThere(t)
	}
}

// A resource that cannot be read keeps only those deletions from ending that it may
// have dependents of.
func TestGarbageBesideABrokenResource(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	crd := newDefinition(t, anySchema)
	crd.Spec.Versions = append(crd.Spec.Versions, newVersion(t, "v2", anySchema))
	broken := a.install(t, crd)
	elsewhere := a.newNamespace(t)
	broken.create(t, "v1", "stored-in-v1", "spec: {}")
	broken.update(t, func(crd *apiextensionsv1.CustomResourceDefinition) {
		for i := range crd.Spec.Versions {
			crd.Spec.Versions[i].Storage = crd.Spec.Versions[i].Name == "v2"
		}
		crd.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{
			Strategy: apiextensionsv1.WebhookConverter,
			Webhook: &apiextensionsv1.WebhookConversion{
				ClientConfig:             &apiextensionsv1.WebhookClientConfig{URL: ptr.To("https://127.0.0.1:1/nobody-listens")},
				ConversionReviewVersions: []string{"v1"},
			},
		}
	})
	poll.Until(t, "objects cannot be read", func() string {
		if _, err := broken.in("v2").Get(t.Context(), "stored-in-v1", metav1.GetOptions{}); err == nil {
			return "they can"
		}
		return ""
	})
	for _, propagation := range []metav1.DeletionPropagation{metav1.DeletePropagationForeground, metav1.DeletePropagationBackground, metav1.DeletePropagationOrphan} {
		name := strings.ToLower(string(propagation))
		owner := a.configMap(t, elsewhere, name)
		dependent := a.configMap(t, elsewhere, name+"-dependent", owned(owner))
		owner.delete(t, propagation)
		owner.waitGone(t)
		if propagation == metav1.DeletePropagationOrphan {
			dependent.wantThere(t)
		} else {
			dependent.waitGone(t)
		}
	}
	// Here it may have dependents.
	owner := a.configMap(t, broken.namespace, "owner")
	dependent := a.configMap(t, broken.namespace, "dependent", owned(owner))
	owner.delete(t, metav1.DeletePropagationOrphan)
	poll.Until(t, "an event says what the deletion waits for", func() string {
		events, err := a.kube.CoreV1().Events(broken.namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.uid=" + string(owner.meta.UID)})
		if err != nil || len(events.Items) != 1 || events.Items[0].Reason != "DependentsUnknown" || !strings.Contains(events.Items[0].Message, broken.name) {
			return fmt.Sprintf("%v, error %v", events, err)
		}
		return ""
	})
	if live := owner.live(t); live == nil || !slices.Contains(live.Finalizers, metav1.FinalizerOrphanDependents) {
		t.Errorf("the owner is %+v, want it to wait for what cannot be read", live)
	}
	broken.update(t, func(crd *apiextensionsv1.CustomResourceDefinition) {
		crd.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter}
	})
	owner.waitGone(t)
	dependent.wantThere(t)
}

func TestGarbageWithItsNamespace(t *testing.T) {
	t.Parallel()
	a := readableAnnex(t)
	widgets := a.install(t, newDefinition(t, anySchema))
	owner := widgets.own(t, "owner")
	dependent := a.configMap(t, widgets.namespace, "dependent", owned(owner), held)
	owner.delete(t, metav1.DeletePropagationForeground)
	foreground := metav1.DeletePropagationForeground
	expectNoError(t, a.kube.CoreV1().Namespaces().Delete(t.Context(), widgets.namespace, metav1.DeleteOptions{PropagationPolicy: &foreground}))
	a.waitNamespaceSays(t, widgets.namespace, corev1.NamespaceFinalizersRemaining, heldFinalizer)
	dependent.release(t)
	a.waitNamespaceGone(t, widgets.namespace)
	if keys := a.keysIn(t, widgets.namespace); len(keys) > 0 {
		t.Errorf("etcd still holds %q", keys)
	}
}

func TestGarbageAfterARestart(t *testing.T) {
	t.Parallel()
	a := startAnnex(t)
	widgets, cluster := a.install(t, newDefinition(t, anySchema)), a.clusterWidgets(t)
	owner := widgets.own(t, "owner")
	child := a.configMap(t, widgets.namespace, "child", owned(owner), held)
	late := cluster.own(t, "late")
	orphan := a.configMap(t, widgets.namespace, "orphan", owned(late))
	owner.delete(t, metav1.DeletePropagationForeground)
	late.delete(t, metav1.DeletePropagationOrphan)
	a.Stop(t)

	a = newAnnex(t, testserver.StartIn(t, a.DataDir))
	for _, object := range []*thing{owner, child, late, orphan} {
		object.objects = a.objects(t, object)
	}
	late.waitGone(t)
	orphan.wantThere(t)
	poll.Until(t, "the child is being deleted", func() string {
		if live := child.live(t); live == nil || live.DeletionTimestamp == nil {
			return fmt.Sprintf("%+v", live)
		}
		return ""
	})
	if live := owner.live(t); live == nil || live.DeletionTimestamp == nil {
		t.Errorf("the owner is %+v, want it to wait", live)
	}
	child.release(t)
	child.waitGone(t)
	owner.waitGone(t)
}

// The next leader ends what the last one began.
func TestGarbageWithTheNextLeader(t *testing.T) {
	t.Parallel()
	endpoint := startEtcd(t, nil)
	first := startReplica(t, endpoint)
	leader := first.waitHolder(t, "")
	second := startReplica(t, endpoint)
	widgets := second.install(t, newDefinition(t, anySchema))
	owner := widgets.own(t, "owner")
	child := second.configMap(t, widgets.namespace, "child", owned(owner), held)
	owner.delete(t, metav1.DeletePropagationForeground)
	poll.Until(t, "the child is being deleted", func() string {
		if live := child.live(t); live == nil || live.DeletionTimestamp == nil {
			return fmt.Sprintf("%+v", live)
		}
		return ""
	})
	first.Stop(t)
	// Nobody leads for a moment.
	child.release(t)
	cause := widgets.own(t, "cause")
	effect := second.configMap(t, widgets.namespace, "effect", owned(cause))
	cause.delete(t, metav1.DeletePropagationBackground)
	second.waitHolder(t, leader)
	for _, object := range []*thing{child, owner, effect} {
		object.waitGone(t)
	}
}

func TestGarbageStaysWithoutACollector(t *testing.T) {
	t.Parallel()
	a := startAnnex(t, "--enable-garbage-collector=false")
	widgets := a.install(t, newDefinition(t, anySchema))
	var dependents []*thing
	for _, propagation := range []metav1.DeletionPropagation{metav1.DeletePropagationForeground, metav1.DeletePropagationBackground, metav1.DeletePropagationOrphan} {
		name := strings.ToLower(string(propagation))
		owner := widgets.own(t, name)
		dependents = append(dependents, a.configMap(t, widgets.namespace, name, owned(owner)))
		owner.delete(t, propagation)
		if live := owner.live(t); live != nil {
			t.Errorf("%s deletion leaves %+v", propagation, live.ObjectMeta)
		}
	}
	for _, dependent := range dependents {
		dependent.wantThere(t)
	}
}
