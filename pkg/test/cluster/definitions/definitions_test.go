// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package definitions

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/annextest"
)

// TestDefinitions runs every story with a group of its own, behind one annex.
func TestDefinitions(t *testing.T) {
	annex := annextest.Start(t, mainCluster)
	// The first group waits until annex has been reachable for a while.
	labelledAtOnce(newFixture(t, annex, "first.example.com"))
	// This one is alone, and its time says something.
	labelledAtOnce(newFixture(t, annex, "second.example.com"))
	for name, story := range map[string]struct {
		group string
		tell  func(*fixture)
	}{
		"labelled":                      {"labelled.example.com", labelled},
		"labelled when it is made":      {"new.example.com", labelledAtOnce},
		"objects exist":                 {"objects.example.com", objectsExist},
		"mixed group":                   {"mixed.example.com", mixedGroup},
		"upgraded by a chart":           {"upgraded.example.com", upgraded},
		"upgraded with objects in main": {"split.example.com", upgradedWithObjects},
		"edited so that annex refuses":  {"refused.example.com", refused},
		"label removed":                 {"unlabelled.example.com", labelRemoved},
		"deleted in main":               {"deleted.example.com", deletedInMain},
		"one of two deleted in main":    {"half.example.com", oneOfTwoDeleted},
		"deleted with finalizers":       {"stuck.example.com", deletedWithFinalizers},
		"deleted, to be kept":           {"kept.example.com", deletedAndKept},
		"deleted without its label":     {"released.example.com", deletedWithoutLabel},
		"missing in main":               {"missing.example.com", missingInMain},
		"older than what is followed":   {"older.example.com", olderDeletion},
		"deleted in annex":              {"remade.example.com", deletedInAnnex},
		"an unlabelled one joins":       {"joined.example.com", unlabelledJoins},
		"defined in annex by somebody":  {"defined.example.com", definedInAnnex},
		"forged":                        {"forged.example.com", forged},
		"an object slips in":            {"slipped.example.com", objectSlipsIn},
		"a late object is hidden":       {"hidden.example.com", lateObjectIsHidden},
		"restored from a backup":        {"restored.example.com", restored},
		"on another Store":              {"far.example.com", onAnotherStore},
		"of a compiled-in group":        {"hosting.annex.dev", ofACompiledInGroup},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			story.tell(newFixture(t, annex, story.group))
		})
	}
	t.Run("not allowed to look", func(t *testing.T) {
		t.Parallel()
		notAllowed(unallowed(t, annex, "forbidden.example.com"))
	})
	t.Run("cert-manager", func(t *testing.T) {
		t.Parallel()
		certManager(t, annex)
	})
}

// labelled: a definition that is there gets its label, and annex serves exactly
// what the main cluster did.
func labelled(w *fixture) {
	w.define(w.crd("widgets", "v1"))
	before := w.mainDocument("v1", "widgets")

	w.label("widgets." + w.group)
	w.published("v1")
	w.asksAnnex("widgets", "v1")
	w.create("widgets", "v1", "one")

	w.has(w.annexObjects, "widgets", "v1", "one")
	w.stored(0)
	w.followed("widgets." + w.group)
	w.sameDocuments("v1", before, "widgets")
	resource, err := w.annexHosting.HostingV1alpha1().HostedResources().Get(w.Context(), "widgets."+w.group, metav1.GetOptions{})
	w.no(err)
	if resource.Status.Phase != hostingv1alpha1.HostedResourceHosted {
		w.Errorf("phase %s, want Hosted", resource.Status.Phase)
	}
	w.eventually("ready", func(ctx context.Context) (bool, string) {
		resource, err := w.annexHosting.HostingV1alpha1().HostedResources().Get(ctx, resource.Name, metav1.GetOptions{})
		return err == nil && meta.IsStatusConditionTrue(resource.Status.Conditions, hostingv1alpha1.HostedResourceReady), fmt.Sprint(err)
	})
}

func labelledAtOnce(w *fixture) {
	started := time.Now()
	w.define(hosted(w.crd("widgets", "v1")))
	w.published("v1")
	published := time.Since(started)
	// Kubernetes makes whoever creates the first object of a new definition wait for
	// two seconds; reading has to work at once.
	_, err := w.in(w.mainObjects, "widgets", "v1").List(w.Context(), metav1.ListOptions{})
	w.no(err)
	w.Logf("from the definition to requests being sent to annex: %s; to the first list through the main cluster: %s",
		published.Round(time.Millisecond), time.Since(started).Round(time.Millisecond))
	w.followed("widgets." + w.group)
	w.create("widgets", "v1", "one")
	w.stored(0)
}

func objectsExist(w *fixture) {
	name := "widgets." + w.group
	w.define(w.crd("widgets", "v1"))
	w.create("widgets", "v1", "old")
	w.label(name)
	w.says(name, metav1.ConditionFalse, "ObjectsExist", `"default/old"`)
	w.isMains("v1")
	w.notInAnnex(name)
	w.has(w.mainObjects, "widgets", "v1", "old")
	w.stored(1)

	w.no(w.in(w.mainObjects, "widgets", "v1").Delete(w.Context(), "old", metav1.DeleteOptions{}))
	w.published("v1")
	w.followed(name)
}

func mixedGroup(w *fixture) {
	widgets, gadgets := "widgets."+w.group, "gadgets."+w.group
	w.define(w.crd("gadgets", "v1"), hosted(w.crd("widgets", "v1")))
	w.says(widgets, metav1.ConditionFalse, "GroupIncomplete", "kubectl label crd "+gadgets+" annex.dev/hosted=true")
	w.isMains("v1")
	w.notInAnnex(widgets)
	if _, err := w.annexHosting.HostingV1alpha1().HostedResources().Get(w.Context(), gadgets, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		w.Errorf("a hosted resource for what nobody labelled: %v", err)
	}

	w.label(gadgets)
	w.published("v1")
	w.followed(widgets)
	w.followed(gadgets)
	w.create("gadgets", "v1", "one")
	w.stored(0)

	// Without its label, and the group with annex, everything stays.
	w.patch(gadgets, `{"metadata":{"labels":{"annex.dev/hosted":null}}}`)
	w.says(gadgets, metav1.ConditionFalse, "NotLabelled")
	w.followed(widgets)
	w.has(w.mainObjects, "gadgets", "v1", "one")
}

func upgraded(w *fixture) {
	name := "widgets." + w.group
	w.apply(hosted(w.crd("widgets", "v1")))
	w.published("v1")
	w.create("widgets", "v1", "one")

	newer := hosted(w.crd("widgets", "v2", "v1"))
	newer.Labels["app.kubernetes.io/version"] = "2.0"
	newer.Spec.Names.Categories = []string{"all"}
	newer.Spec.Names.ShortNames = []string{"wi"}
	w.apply(newer)
	w.published("v2")
	w.has(w.mainObjects, "widgets", "v2", "one")
	w.create("widgets", "v2", "two")
	w.has(w.mainObjects, "widgets", "v1", "two")
	w.stored(0)
	w.followed(name)
	w.sameDocuments("v2", w.mainDocument("v2", "widgets"), "widgets")

	own, err := w.annexDefinitions.ApiextensionsV1().CustomResourceDefinitions().Get(w.Context(), name, metav1.GetOptions{})
	w.no(err)
	if own.Labels["app.kubernetes.io/version"] != "2.0" || len(own.Status.AcceptedNames.ShortNames) != 1 {
		w.Errorf("annex's definition has labels %v and short names %v", own.Labels, own.Status.AcceptedNames.ShortNames)
	}
}

// upgradedWithObjects: annex was away while its group got a version, and somebody
// used that. The main cluster goes on answering for it.
func upgradedWithObjects(w *fixture) {
	name := "widgets." + w.group
	w.apply(hosted(w.crd("widgets", "v1")))
	w.published("v1")
	w.create("widgets", "v1", "one")
	w.slipInAfterGrace("widgets", "v1", "late")

	w.apply(hosted(w.crd("widgets", "v1", "v2")))
	w.says(name, metav1.ConditionFalse, "ObjectsExist", "still answers for v2", `"default/late"`)
	w.isMains("v2")
	w.has(w.mainObjects, "widgets", "v1", "one")
	w.has(w.mainObjects, "widgets", "v2", "late")

	w.no(w.in(w.mainObjects, "widgets", "v2").Delete(w.Context(), "late", metav1.DeleteOptions{}))
	w.published("v2")
	w.followed(name)
	w.has(w.mainObjects, "widgets", "v2", "one")
}

// refused: the main cluster, which has stored nothing, may forget a version that
// annex has stored objects in.
func refused(w *fixture) {
	name := "widgets." + w.group
	w.define(hosted(w.crd("widgets", "v1", "v2")))
	w.published("v1")
	w.published("v2")
	w.create("widgets", "v1", "one")

	w.apply(hosted(w.crd("widgets", "v2", "v1")))
	w.followed(name)
	w.patch(name, `{"status":{"storedVersions":["v2"]}}`, "status")
	w.patch(name, fmt.Sprintf(`{"spec":{"versions":%s}}`, w.versions("widgets", "v2")))
	w.says(name, metav1.ConditionFalse, "Rejected", "storedVersions")
	w.has(w.mainObjects, "widgets", "v1", "one")
	w.has(w.mainObjects, "widgets", "v2", "one")

	w.patch(name, fmt.Sprintf(`{"spec":{"versions":%s}}`, w.versions("widgets", "v2", "v1")))
	w.followed(name)
}

func labelRemoved(w *fixture) {
	name := "widgets." + w.group
	w.define(hosted(w.crd("widgets", "v1")))
	w.published("v1")
	w.create("widgets", "v1", "one")
	w.patch(name, `{"metadata":{"labels":{"annex.dev/hosted":null}}}`)
	w.says(name, metav1.ConditionFalse, "NotLabelled", "kubectl label crd "+name)
	w.published("v1")
	w.has(w.mainObjects, "widgets", "v1", "one")

	w.label(name)
	w.followed(name)
}

func deletedInAnnex(w *fixture) {
	name := "widgets." + w.group
	w.define(hosted(w.crd("widgets", "v1")))
	w.published("v1")
	w.followed(name)
	first, err := w.annexDefinitions.ApiextensionsV1().CustomResourceDefinitions().Get(w.Context(), name, metav1.GetOptions{})
	w.no(err)
	w.no(w.annexDefinitions.ApiextensionsV1().CustomResourceDefinitions().Delete(w.Context(), name, metav1.DeleteOptions{}))
	w.eventually("annex makes it again", func(ctx context.Context) (bool, string) {
		again, err := w.annexDefinitions.ApiextensionsV1().CustomResourceDefinitions().Get(ctx, name, metav1.GetOptions{})
		return err == nil && again.UID != first.UID, fmt.Sprint(err)
	})
	w.published("v1")
	w.followed(name)
	w.create("widgets", "v1", "one")
	w.stored(0)
}

func unlabelledJoins(w *fixture) {
	widgets, gadgets := "widgets."+w.group, "gadgets."+w.group
	w.apply(hosted(w.crd("widgets", "v1")))
	w.published("v1")
	w.define(w.crd("gadgets", "v1"))
	w.says(gadgets, metav1.ConditionFalse, "NotLabelled", "kubectl label crd "+gadgets)

	newer := hosted(w.crd("widgets", "v1"))
	newer.Spec.Names.ShortNames = []string{"wi"}
	w.apply(newer)
	w.eventually("the other is followed", func(ctx context.Context) (bool, string) {
		own, err := w.annexDefinitions.ApiextensionsV1().CustomResourceDefinitions().Get(ctx, widgets, metav1.GetOptions{})
		return err == nil && len(own.Spec.Names.ShortNames) == 1, fmt.Sprint(err)
	})

	w.label(gadgets)
	w.followed(gadgets)
	w.create("gadgets", "v1", "one")
	w.stored(0)
}

func definedInAnnex(w *fixture) {
	name := "widgets." + w.group
	_, err := w.annexDefinitions.ApiextensionsV1().CustomResourceDefinitions().Create(w.Context(), w.crd("widgets", "v1"), metav1.CreateOptions{})
	w.no(err)
	w.published("v1")
	w.create("widgets", "v1", "one")
	newer := hosted(w.crd("widgets", "v1"))
	newer.Spec.Names.ShortNames = []string{"wi"}
	w.define(newer)
	w.says(name, metav1.ConditionFalse, "DefinedInAnnex", "kubectl annotate crd "+name+" annex.dev/definition-from=main")
	own, err := w.annexDefinitions.ApiextensionsV1().CustomResourceDefinitions().Get(w.Context(), name, metav1.GetOptions{})
	w.no(err)
	if len(own.Spec.Names.ShortNames) > 0 {
		w.Error("annex's definition was overwritten")
	}

	_, err = w.annexDefinitions.ApiextensionsV1().CustomResourceDefinitions().Patch(w.Context(), name, types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"annex.dev/definition-from":"main"}}}`), metav1.PatchOptions{})
	w.no(err)
	w.followed(name)
	w.has(w.mainObjects, "widgets", "v1", "one")
}

// objectSlipsIn: a server of the main cluster that learns late of the switch takes
// an object. The group goes back to where that object is.
func objectSlipsIn(w *fixture) {
	widgets, gadgets := "widgets."+w.group, "gadgets."+w.group
	w.define(hosted(w.crd("widgets", "v1")), hosted(w.crd("gadgets", "v1")))
	w.published("v1")
	w.slipIn("widgets", "v1", "late")
	w.says(widgets, metav1.ConditionFalse, "ObjectsAppeared", `"default/late"`)
	w.says(gadgets, metav1.ConditionFalse, "ObjectsAppeared", `"default/late"`)
	w.eventually("the main cluster answers again", func(ctx context.Context) (bool, string) {
		found, err := w.mainAPIServices.ApiregistrationV1().APIServices().Get(ctx, "v1."+w.group, metav1.GetOptions{})
		return err == nil && found.Spec.Service == nil, fmt.Sprint(err)
	})
	w.isMains("v1")
	w.has(w.mainObjects, "widgets", "v1", "late")
	own, err := w.annexHosting.HostingV1alpha1().HostedResources().Get(w.Context(), widgets, metav1.GetOptions{})
	w.no(err)
	if own.Status.Takeover != nil {
		w.Errorf("the takeover is still cleared: %+v", own.Status.Takeover)
	}

	w.no(w.in(w.mainObjects, "widgets", "v1").Delete(w.Context(), "late", metav1.DeleteOptions{}))
	w.published("v1")
	w.followed(widgets)
	w.followed(gadgets)
}

// lateObjectIsHidden: annex has objects already, which giving the group back would
// hide.
func lateObjectIsHidden(w *fixture) {
	name := "widgets." + w.group
	w.define(hosted(w.crd("widgets", "v1")))
	w.published("v1")
	w.create("widgets", "v1", "one")
	w.slipIn("widgets", "v1", "late")
	w.says(name, metav1.ConditionFalse, "ObjectsAppeared", `"default/late"`, "deleting this HostedResource")
	w.published("v1")
	w.has(w.mainObjects, "widgets", "v1", "one")
	w.stored(1)
}

func notAllowed(w *fixture) {
	name := "widgets." + w.group
	w.define(hosted(w.crd("widgets", "v1")))
	w.says(name, metav1.ConditionFalse, "Forbidden", "kubectl create clusterrole annex-hosted-"+w.group+" --verb=list,watch --resource="+name)
	w.isMains("v1")
	w.notInAnnex(name)
	w.no(w.annex.AllowGroup(w.Context(), w.group))
	w.published("v1")
	w.followed(name)
}

// notInAnnex fails if annex has a definition.
func (w *fixture) notInAnnex(name string) {
	w.Helper()
	_, err := w.annexDefinitions.ApiextensionsV1().CustomResourceDefinitions().Get(w.Context(), name, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		w.Errorf("annex has definition %s: %v", name, err)
	}
}

func (w *fixture) gone(what string, get func(context.Context) error) {
	w.Helper()
	w.eventually(what+" is gone", func(ctx context.Context) (bool, string) {
		err := get(ctx)
		return apierrors.IsNotFound(err), fmt.Sprint(err)
	})
}

// slipInAfterGrace puts an object into the main cluster's etcd when nobody watches
// that any more.
func (w *fixture) slipInAfterGrace(plural, version, name string) {
	w.Helper()
	w.followed(plural + "." + w.group)
	timer := time.NewTimer(12 * time.Second)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.Context().Done():
	}
	w.slipIn(plural, version, name)
}

// versions are those of a definition, as JSON.
func (w *fixture) versions(plural string, versions ...string) string {
	w.Helper()
	content, err := json.Marshal(w.crd(plural, versions...).Spec.Versions)
	w.no(err)
	return string(content)
}
