// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package hosting

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionshelpers "k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// finalizer is annex's, on definitions of the main cluster.
const finalizer = "annex.dev/annex-system.annex"

// createHosted creates a CRD that annex hosts, with an object, and returns its name.
func (f *fixture) createHosted(plural, object string) (name string) {
	f.Helper()
	name = plural + "." + f.group
	f.createInMain(hosted(f.newCRD(plural, "v1")))
	f.waitPublished("v1")
	f.waitForSync(name)
	f.createObject(plural, "v1", object)
	f.waitForObject(f.annexObjects, plural, "v1", object)
	f.waitForFinalizer(name)
	return name
}

// waitForFinalizer waits until annex's finalizer is on a CRD of the main cluster.
func (f *fixture) waitForFinalizer(name string) {
	f.Helper()
	expect.Eventually(f, f.mainCRDs, name, "the finalizer is on "+name, func(crd *apiextensionsv1.CustomResourceDefinition) bool {
		return slices.Contains(crd.Finalizers, finalizer)
	})
}

// waitForDeletionInMain waits as kubectl delete crd does.
func (f *fixture) waitForDeletionInMain(name string) {
	f.Helper()
	poll.UntilDone(f, name+" is deleted in the main cluster", func() (bool, string) {
		crd, err := f.mainCRDs.Get(f.Context(), name, metav1.GetOptions{})
		if err != nil {
			return apierrors.IsNotFound(err), err.Error()
		}
		condition := apiextensionshelpers.FindCRDCondition(crd, apiextensionsv1.Terminating)
		if condition != nil && condition.Reason == "InstanceDeletionFailed" {
			// kube-apiserver ends its retries if its informer is late, until the next update or the resync
			// after five minutes (apiextensions-apiserver, pkg/controller/finalizer).
			touched := fmt.Sprintf(`{"metadata":{"annotations":{"example.com/seen":%q}}}`, crd.ResourceVersion)
			_, err = f.mainCRDs.Patch(f.Context(), name, types.MergePatchType, []byte(touched), metav1.PatchOptions{})
		}
		return false, fmt.Sprintf("%+v (%v)", condition, err)
	})
}

// waitForTerminating waits until the condition Terminating of a CRD of the main cluster
// contains words.
func (f *fixture) waitForTerminating(name string, words ...string) {
	f.Helper()
	expect.Eventually(f, f.mainCRDs, name, fmt.Sprintf("%s is terminating with %q", name, words), func(crd *apiextensionsv1.CustomResourceDefinition) bool {
		condition := apiextensionshelpers.FindCRDCondition(crd, apiextensionsv1.Terminating)
		return condition != nil && condition.Status == apiextensionsv1.ConditionTrue && expect.Missing(condition.Message, words...) == ""
	})
}

// waitForDeletion waits until a resource is not discovered, and has no APIService, CRD or
// HostedResource.
func (f *fixture) waitForDeletion(plural string) {
	f.Helper()
	name := plural + "." + f.group
	f.waitForNotFound("annex's CRD", func() error {
		_, err := f.annexCRDs.Get(f.Context(), name, metav1.GetOptions{})
		return err
	})
	f.waitForNotFound("the HostedResource", func() error {
		_, err := f.hostedResources.Get(f.Context(), name, metav1.GetOptions{})
		return err
	})
	f.waitForNotFound("the APIService", func() error {
		_, err := f.apiServices.Get(f.Context(), "v1."+f.group, metav1.GetOptions{})
		return err
	})
	f.waitForUndiscovery(plural)
	f.waitForNotFound("the resource", func() error {
		_, err := f.objects(f.mainObjects, plural, "v1").List(f.Context(), metav1.ListOptions{})
		return err
	})
}

// waitForUndiscovery waits until the main cluster's discovery has no such resource.
func (f *fixture) waitForUndiscovery(plural string) {
	f.Helper()
	poll.UntilDone(f, plural+" is not discovered", func() (bool, string) {
		_, all, err := f.mainDiscovery.ServerGroupsAndResources()
		if err != nil {
			return false, err.Error()
		}
		for _, version := range all {
			if of, _ := schema.ParseGroupVersion(version.GroupVersion); of.Group != f.group {
				continue
			}
			if slices.ContainsFunc(version.APIResources, func(of metav1.APIResource) bool { return of.Name == plural }) {
				return false, fmt.Sprint(version.APIResources)
			}
		}
		return true, ""
	})
}

func deletedInMain(f *fixture) {
	name := f.createHosted("widgets", "one")
	f.waitForMigration()
	expect.Delete(f, f.mainCRDs, name)
	f.waitForDeletionInMain(name)
	f.waitForDeletion("widgets")
	// A reinstalled chart starts without objects.
	f.createInMain(hosted(f.newCRD("widgets", "v1")))
	f.waitPublished("v1")
	f.waitForSync(name)
	list, err := f.objects(f.mainObjects, "widgets", "v1").List(f.Context(), metav1.ListOptions{})
	expect.NoError(f, err)
	if len(list.Items) > 0 {
		f.Errorf("%d objects of the deleted CRD", len(list.Items))
	}
	f.createObject("widgets", "v1", "two")
	f.expectInMainEtcd(0)
}

func oneOfTwoDeleted(f *fixture) {
	f.createInMain(hosted(f.newCRD("gadgets", "v1")), hosted(f.newCRD("widgets", "v1")))
	f.waitPublished("v1")
	f.createObject("gadgets", "v1", "one")
	f.createObject("widgets", "v1", "one")
	name := "widgets." + f.group
	f.waitForFinalizer(name)
	expect.Delete(f, f.mainCRDs, name)
	f.waitForDeletionInMain(name)
	f.waitForUndiscovery("widgets")
	f.waitForObject(f.mainObjects, "gadgets", "v1", "one")
	f.waitForSync("gadgets." + f.group)
	f.waitPublished("v1")
}

// deletedWithFinalizers: an object with a finalizer blocks the deletion of its CRD.
func deletedWithFinalizers(f *fixture) {
	name := f.createHosted("widgets", "one")
	f.setFinalizers("widgets", "one", "example.com/cleanup")
	f.createObject("widgets", "v1", "two")
	expect.Delete(f, f.mainCRDs, name)
	f.waitForTerminating(name, "1 left", `"default/one"`, "example.com/cleanup")
	f.waitForCondition(name, metav1.ConditionFalse, "Terminating", `"default/one"`)
	f.waitForObject(f.mainObjects, "widgets", "v1", "one")
	_, err := f.objects(f.mainObjects, "widgets", "v1").Create(f.Context(), f.newObject("widgets", "v1", "late"), metav1.CreateOptions{})
	if err == nil {
		f.Error("created an object of a terminating CRD")
	}
	f.expectInMainEtcd(0)

	f.setFinalizers("widgets", "one")
	f.waitForDeletionInMain(name)
	f.waitForDeletion("widgets")
}

func (f *fixture) setFinalizers(plural, name string, finalizers ...string) {
	f.Helper()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"finalizers": finalizers}})
	expect.NoError(f, err)
	expect.Patch(f, f.objects(f.mainObjects, plural, "v1"), name, string(patch))
}

func deletedAndKept(f *fixture) {
	name := f.createHosted("widgets", "one")
	f.patchInMain(name, `{"metadata":{"annotations":{"annex.dev/deletion-policy":"keep"}}}`)
	expect.Delete(f, f.mainCRDs, name)
	f.waitForTerminating(name, `"keep"`, "Delete or Keep")
	f.waitForObject(f.mainObjects, "widgets", "v1", "one")

	f.patchInMain(name, `{"metadata":{"annotations":{"annex.dev/deletion-policy":"Keep"}}}`)
	f.waitForDeletionInMain(name)
	f.waitForCondition(name, metav1.ConditionFalse, "MainDefinitionDeleted", "all objects", "annex's own endpoint")
	f.expectKept(name)
}

// deletedWithoutLabel: annex removes its finalizer from CRDs without the label, before and
// during their deletion.
func deletedWithoutLabel(f *fixture) {
	name := f.createHosted("widgets", "one")
	f.patchInMain(name, `{"metadata":{"labels":{"annex.dev/hosted":null}}}`)
	expect.Eventually(f, f.mainCRDs, name, "the finalizer is removed", func(crd *apiextensionsv1.CustomResourceDefinition) bool {
		return !slices.Contains(crd.Finalizers, finalizer)
	})
	expect.Delete(f, f.mainCRDs, name)
	f.waitForDeletionInMain(name)
	f.expectKept(name)

	f.waitForFinalizer(name)
	f.setFinalizers("widgets", "one", "example.com/cleanup")
	expect.Delete(f, f.mainCRDs, name)
	f.waitForTerminating(name, `"default/one"`)
	f.patchInMain(name, `{"metadata":{"labels":null}}`)
	f.waitForDeletionInMain(name)
	f.waitForObject(f.mainObjects, "widgets", "v1", "one")
	f.setFinalizers("widgets", "one")
	f.waitForDeletion("widgets")
}

// missingInMain: the main cluster is restored from a backup that lacks the CRD.
func missingInMain(f *fixture) {
	name := f.createHosted("widgets", "one")
	expect.NoError(f, mainCluster.DeleteEtcdKey(f.Context(), "/registry/apiextensions.k8s.io/customresourcedefinitions/"+name))
	f.waitForDeletionInMain(name)
	f.waitForCondition(name, metav1.ConditionFalse, "MainDefinitionDeleted", "all objects")
	f.expectKept(name)
}

// expectKept fails if objects were deleted with the CRD of the main cluster. A new CRD
// serves them.
func (f *fixture) expectKept(name string) {
	f.Helper()
	f.waitPublished("v1")
	f.waitForObject(f.mainObjects, "widgets", "v1", "one")
	f.createInMain(hosted(f.newCRD("widgets", "v1")))
	f.waitForSync(name)
	f.waitForObject(f.mainObjects, "widgets", "v1", "one")
	f.expectInMainEtcd(0)
}

// olderDeletion: the main cluster is restored from a backup in which an earlier CRD of this
// name was being deleted.
func olderDeletion(f *fixture) {
	name := f.createHosted("widgets", "one")
	older := expect.Get(f, f.mainCRDs, name)
	older.UID = "0a1b2c3d-0000-4000-8000-000000000001"
	now := metav1.Now()
	older.DeletionTimestamp = &now
	older.TypeMeta = metav1.TypeMeta{APIVersion: apiextensionsv1.SchemeGroupVersion.String(), Kind: "CustomResourceDefinition"}
	content, err := json.Marshal(older)
	expect.NoError(f, err)
	expect.NoError(f, mainCluster.PutEtcdKey(f.Context(), "/registry/apiextensions.k8s.io/customresourcedefinitions/"+name, string(content)))
	f.waitForDeletionInMain(name)
	f.expectKept(name)
}

// testDeletedWhileAnnexIsDown: the deletion of the CRD waits for annex.
func testDeletedWhileAnnexIsDown(t *testing.T) {
	first := startAnnex(t)
	f := newFixture(t, first, "down.example.com")
	name := f.createHosted("widgets", "one")
	first.Stop(t)
	expect.Delete(f, f.mainCRDs, name)
	expect.Eventually(f, f.mainCRDs, name, "the main cluster's own finalizer is removed", func(crd *apiextensionsv1.CustomResourceDefinition) bool {
		return slices.Equal(crd.Finalizers, []string{finalizer})
	})
	second := launch(t, first, first.DataDir)
	f = newFixture(t, second, f.group)
	f.waitForDeletionInMain(name)
	f.waitForDeletion("widgets")
}

// testFinalizerNotAllowed: without the permission to set its finalizer, annex takes over
// nothing and reports what is missing.
func testFinalizerNotAllowed(t *testing.T) {
	first := startAnnex(t)
	f := newFixture(t, first, "rightless.example.com")
	roles := kube(f, mainCluster.Config).RbacV1().ClusterRoles()
	role := expect.Get(f, roles, "annex")
	before := role.DeepCopy()
	role.Rules = slices.DeleteFunc(role.Rules, func(rule rbacv1.PolicyRule) bool {
		return slices.Contains(rule.Resources, "customresourcedefinitions/status")
	})
	expect.Update(f, roles, role)
	name := "widgets." + f.group
	f.createInMain(hosted(f.newCRD("widgets", "v1")))
	f.waitForCondition(name, metav1.ConditionFalse, "Forbidden", "finalizer", "kubectl annex doctor --print-rbac | kubectl apply -f -")
	f.expectServedByMain("v1")

	current := expect.Get(f, roles, "annex")
	current.Rules = before.Rules
	expect.Update(f, roles, current)
	f.waitPublished("v1")
	f.waitForSync(name)
}
