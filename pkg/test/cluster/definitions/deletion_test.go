// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package definitions

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionshelpers "k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/annex-dev/annex/pkg/test/annextest"
)

// finalizer is annex's, on definitions of the main cluster.
const finalizer = "annex.dev/annex-system.annex"

// hostedWith is a definition that annex serves, with an object.
func (w *fixture) hostedWith(plural, object string) (name string) {
	w.Helper()
	name = plural + "." + w.group
	w.define(hosted(w.crd(plural, "v1")))
	w.published("v1")
	w.followed(name)
	w.create(plural, "v1", object)
	w.has(w.annexObjects, plural, "v1", object)
	w.holds(name)
	return name
}

// ofMain is a definition of the main cluster.
func (w *fixture) ofMain(ctx context.Context, name string) (*apiextensionsv1.CustomResourceDefinition, error) {
	return w.mainDefinitions.ApiextensionsV1().CustomResourceDefinitions().Get(ctx, name, metav1.GetOptions{})
}

// holds waits until annex's finalizer is on a definition of the main cluster.
func (w *fixture) holds(name string) {
	w.Helper()
	w.eventually("the finalizer is on "+name, func(ctx context.Context) (bool, string) {
		crd, err := w.ofMain(ctx, name)
		return err == nil && slices.Contains(crd.Finalizers, finalizer), fmt.Sprint(err)
	})
}

// deleteInMain is kubectl delete crd.
func (w *fixture) deleteInMain(name string) {
	w.Helper()
	w.no(w.mainDefinitions.ApiextensionsV1().CustomResourceDefinitions().Delete(w.Context(), name, metav1.DeleteOptions{}))
}

// goneFromMain waits as kubectl delete crd does.
func (w *fixture) goneFromMain(name string) {
	w.Helper()
	w.eventually("the main cluster's definition is gone", func(ctx context.Context) (bool, string) {
		crd, err := w.ofMain(ctx, name)
		if err != nil {
			return apierrors.IsNotFound(err), err.Error()
		}
		return false, fmt.Sprintf("finalizers %v, conditions %+v", crd.Finalizers, crd.Status.Conditions)
	})
}

// isTerminating waits until the condition Terminating of a definition of the main cluster has
// some words.
func (w *fixture) isTerminating(name string, words ...string) {
	w.Helper()
	w.eventually(fmt.Sprintf("%s is terminating with %q", name, words), func(ctx context.Context) (bool, string) {
		crd, err := w.ofMain(ctx, name)
		if err != nil {
			return false, err.Error()
		}
		said := apiextensionshelpers.FindCRDCondition(crd, apiextensionsv1.Terminating)
		if said == nil || said.Status != apiextensionsv1.ConditionTrue {
			return false, fmt.Sprintf("%+v", said)
		}
		return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(said.Message, word) }), said.Message
	})
}

// isGone waits until a resource is in no discovery document, and has no APIService,
// definition or HostedResource.
func (w *fixture) isGone(plural string) {
	w.Helper()
	name := plural + "." + w.group
	w.gone("annex's definition", func(ctx context.Context) error {
		_, err := w.annexDefinitions.ApiextensionsV1().CustomResourceDefinitions().Get(ctx, name, metav1.GetOptions{})
		return err
	})
	w.gone("the hosted resource", func(ctx context.Context) error {
		_, err := w.annexHosting.HostingV1alpha1().HostedResources().Get(ctx, name, metav1.GetOptions{})
		return err
	})
	w.gone("the APIService", func(ctx context.Context) error {
		_, err := w.mainAPIServices.ApiregistrationV1().APIServices().Get(ctx, "v1."+w.group, metav1.GetOptions{})
		return err
	})
	w.undiscovered(plural)
	w.gone("the resource", func(ctx context.Context) error {
		_, err := w.in(w.mainObjects, plural, "v1").List(ctx, metav1.ListOptions{})
		return err
	})
}

// undiscovered waits until the main cluster's discovery has no such resource.
func (w *fixture) undiscovered(plural string) {
	w.Helper()
	w.eventually(plural+" is not discovered", func(context.Context) (bool, string) {
		_, all, err := w.mainDefinitions.Discovery().ServerGroupsAndResources()
		if err != nil {
			return false, err.Error()
		}
		for _, version := range all {
			if of, _ := schema.ParseGroupVersion(version.GroupVersion); of.Group != w.group {
				continue
			}
			if slices.ContainsFunc(version.APIResources, func(of metav1.APIResource) bool { return of.Name == plural }) {
				return false, fmt.Sprint(version.APIResources)
			}
		}
		return true, ""
	})
}

func deletedInMain(w *fixture) {
	name := w.hostedWith("widgets", "one")
	w.deleteInMain(name)
	w.goneFromMain(name)
	w.isGone("widgets")

	// A chart that is installed again begins without objects.
	w.define(hosted(w.crd("widgets", "v1")))
	w.published("v1")
	w.followed(name)
	list, err := w.in(w.mainObjects, "widgets", "v1").List(w.Context(), metav1.ListOptions{})
	w.no(err)
	if len(list.Items) > 0 {
		w.Errorf("%d objects of the definition before", len(list.Items))
	}
	w.create("widgets", "v1", "two")
	w.stored(0)
}

func oneOfTwoDeleted(w *fixture) {
	w.define(hosted(w.crd("gadgets", "v1")), hosted(w.crd("widgets", "v1")))
	w.published("v1")
	w.create("gadgets", "v1", "one")
	w.create("widgets", "v1", "one")
	name := "widgets." + w.group
	w.holds(name)
	w.deleteInMain(name)
	w.goneFromMain(name)
	w.undiscovered("widgets")
	w.has(w.mainObjects, "gadgets", "v1", "one")
	w.followed("gadgets." + w.group)
	w.published("v1")
}

// deletedWithFinalizers: an object that somebody keeps holds the definition.
func deletedWithFinalizers(w *fixture) {
	name := w.hostedWith("widgets", "one")
	w.setFinalizers("widgets", "one", "example.com/cleanup")
	w.create("widgets", "v1", "two")
	w.deleteInMain(name)
	w.isTerminating(name, "1 left", `"default/one"`, "example.com/cleanup")
	w.says(name, metav1.ConditionFalse, "Terminating", `"default/one"`)
	w.has(w.mainObjects, "widgets", "v1", "one")
	_, err := w.in(w.mainObjects, "widgets", "v1").Create(w.Context(), w.object("widgets", "v1", "late"), metav1.CreateOptions{})
	if err == nil {
		w.Error("an object was made of a definition that is being deleted")
	}
	w.stored(0)

	w.setFinalizers("widgets", "one")
	w.goneFromMain(name)
	w.isGone("widgets")
}

func (w *fixture) setFinalizers(plural, name string, finalizers ...string) {
	w.Helper()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"finalizers": finalizers}})
	w.no(err)
	_, err = w.in(w.mainObjects, plural, "v1").Patch(w.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{})
	w.no(err)
}

func deletedAndKept(w *fixture) {
	name := w.hostedWith("widgets", "one")
	w.patch(name, `{"metadata":{"annotations":{"annex.dev/deletion-policy":"keep"}}}`)
	w.deleteInMain(name)
	w.isTerminating(name, `"keep"`, "Delete or Keep")
	w.has(w.mainObjects, "widgets", "v1", "one")

	w.patch(name, `{"metadata":{"annotations":{"annex.dev/deletion-policy":"Keep"}}}`)
	w.goneFromMain(name)
	w.says(name, metav1.ConditionFalse, "MainDefinitionDeleted", "all objects", "annex's own endpoint")
	w.servedAgain(name)
}

// deletedWithoutLabel: what annex is not asked to follow any more it lets go, before
// and while it is being deleted.
func deletedWithoutLabel(w *fixture) {
	name := w.hostedWith("widgets", "one")
	w.patch(name, `{"metadata":{"labels":{"annex.dev/hosted":null}}}`)
	w.eventually("the finalizer is gone", func(ctx context.Context) (bool, string) {
		crd, err := w.ofMain(ctx, name)
		return err == nil && !slices.Contains(crd.Finalizers, finalizer), fmt.Sprint(err)
	})
	w.deleteInMain(name)
	w.goneFromMain(name)
	w.servedAgain(name)

	w.holds(name)
	w.setFinalizers("widgets", "one", "example.com/cleanup")
	w.deleteInMain(name)
	w.isTerminating(name, `"default/one"`)
	w.patch(name, `{"metadata":{"labels":null}}`)
	w.goneFromMain(name)
	w.has(w.mainObjects, "widgets", "v1", "one")
	w.setFinalizers("widgets", "one")
	w.isGone("widgets")
}

// missingInMain: the main cluster is an older copy of itself, without the definition.
func missingInMain(w *fixture) {
	name := w.hostedWith("widgets", "one")
	w.no(mainCluster.DeleteEtcdKey(w.Context(), "/registry/apiextensions.k8s.io/customresourcedefinitions/"+name))
	w.goneFromMain(name)
	w.says(name, metav1.ConditionFalse, "MainDefinitionDeleted", "all objects")
	w.servedAgain(name)
}

// servedAgain: nothing of a definition that is gone from the main cluster was deleted,
// and all is there for the next.
func (w *fixture) servedAgain(name string) {
	w.Helper()
	w.published("v1")
	w.has(w.mainObjects, "widgets", "v1", "one")
	w.define(hosted(w.crd("widgets", "v1")))
	w.followed(name)
	w.has(w.mainObjects, "widgets", "v1", "one")
	w.stored(0)
}

// olderDeletion: the main cluster is an older copy of itself, in which a definition was
// being deleted that has been made again since.
func olderDeletion(w *fixture) {
	name := w.hostedWith("widgets", "one")
	crd, err := w.ofMain(w.Context(), name)
	w.no(err)
	older := crd.DeepCopy()
	older.UID = "0a1b2c3d-0000-4000-8000-000000000001"
	now := metav1.Now()
	older.DeletionTimestamp = &now
	older.TypeMeta = metav1.TypeMeta{APIVersion: apiextensionsv1.SchemeGroupVersion.String(), Kind: "CustomResourceDefinition"}
	content, err := json.Marshal(older)
	w.no(err)
	w.no(mainCluster.PutEtcdKey(w.Context(), "/registry/apiextensions.k8s.io/customresourcedefinitions/"+name, string(content)))
	w.goneFromMain(name)
	w.servedAgain(name)
}

// TestDeletedWhileAnnexIsDown: the definition waits for annex.
func TestDeletedWhileAnnexIsDown(t *testing.T) {
	first := annextest.Start(t, mainCluster)
	w := newFixture(t, first, "down.example.com")
	name := w.hostedWith("widgets", "one")
	first.Stop(t)
	w.deleteInMain(name)
	w.eventually("the main cluster's own finalizer is gone", func(ctx context.Context) (bool, string) {
		crd, err := w.ofMain(ctx, name)
		return err == nil && slices.Equal(crd.Finalizers, []string{finalizer}), fmt.Sprint(err)
	})
	second := launch(t, first, first.DataDir)
	w = newFixture(t, second, w.group)
	w.goneFromMain(name)
	w.isGone("widgets")
}

// TestNoRightToHold: with the rights of an older annex nothing is taken over, and what
// is missing is said.
func TestNoRightToHold(t *testing.T) {
	first := annextest.Start(t, mainCluster)
	w := newFixture(t, first, "rightless.example.com")
	roles := kubernetes.NewForConfigOrDie(mainCluster.Config).RbacV1().ClusterRoles()
	role, err := roles.Get(w.Context(), "annex", metav1.GetOptions{})
	w.no(err)
	before := role.DeepCopy()
	role.Rules = slices.DeleteFunc(role.Rules, func(rule rbacv1.PolicyRule) bool {
		return slices.Contains(rule.Resources, "customresourcedefinitions/status")
	})
	_, err = roles.Update(w.Context(), role, metav1.UpdateOptions{})
	w.no(err)
	name := "widgets." + w.group
	w.define(hosted(w.crd("widgets", "v1")))
	w.says(name, metav1.ConditionFalse, "Forbidden", "finalizer", "kubectl annex doctor --print-rbac | kubectl apply -f -")
	w.isMains("v1")

	current, err := roles.Get(w.Context(), "annex", metav1.GetOptions{})
	w.no(err)
	current.Rules = before.Rules
	_, err = roles.Update(w.Context(), current, metav1.UpdateOptions{})
	w.no(err)
	w.published("v1")
	w.followed(name)
}
