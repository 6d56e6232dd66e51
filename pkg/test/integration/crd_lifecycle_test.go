// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"

	apiextensionshelpers "k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/apiserver"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// waitForCRDDeleted waits until the CRD is deleted and its path returns 404.
func (r *resource) waitForCRDDeleted(t *testing.T) {
	t.Helper()
	poll.UntilDone(t, "CRD "+r.name+" is gone", func() (bool, string) {
		crd, err := r.annex.CRDs().Get(t.Context(), r.name, metav1.GetOptions{})
		if err == nil {
			return false, fmt.Sprintf("its conditions are %+v", crd.Status.Conditions)
		}
		if !apierrors.IsNotFound(err) {
			return false, err.Error()
		}
		got := r.annex.get(t, r.path("v1"))
		return got.Code == http.StatusNotFound, "its objects: " + got.String()
	})
}

// A CRD is deleted after its objects, which wait for their finalizers.
func TestCRDDeletionWaitsForFinalizers(t *testing.T) {
	t.Parallel()
	widgets := sharedAnnex(t).installCRD(t, newCRD(t, anySchema))
	widgets.create(t, "v1", "free", "spec: {}")
	held := widgets.create(t, "v1", "held", "metadata: {finalizers: [example.com/hold]}")
	events := widgets.watch(t, "v1", metav1.ListOptions{ResourceVersion: held.GetResourceVersion()})

	widgets.deleteCRD(t)
	expect.Eventually(t, widgets.annex.CRDs(), widgets.name, "the CRD waits", func(crd *apiextensionsv1.CustomResourceDefinition) bool {
		condition := apiextensionshelpers.FindCRDCondition(crd, apiextensionsv1.Terminating)
		names := widgets.names(t, "v1", metav1.ListOptions{})
		return condition != nil && condition.Status == apiextensionsv1.ConditionTrue && cmp.Equal(names, []string{"held"})
	})
	_, err := widgets.in("v1").Create(t.Context(), widgets.object(t, "v1", "late", "spec: {}"), metav1.CreateOptions{})
	expect.Error(t, err, "create not allowed while custom resource definition is terminating")

	widgets.mustPatch(t, "v1", "held", `{"metadata": {"finalizers": null}}`)
	widgets.waitForCRDDeleted(t)
	seen := map[string]bool{}
	for event := range events.ResultChan() {
		seen[describe(event)] = true
	}
	if !seen["DELETED free"] || !seen["DELETED held"] {
		t.Errorf("the watch received %v", seen)
	}
	left, err := widgets.annex.etcd(t).Get(t.Context(), "/annex/"+widgets.group+"/", clientv3.WithPrefix())
	if err != nil || left.Count != 0 {
		t.Errorf("etcd still holds %d objects of it (%v)", left.Count, err)
	}
}

func TestCRDIsRecreated(t *testing.T) {
	t.Parallel()
	crd := newCRD(t, strictSchema)
	widgets := sharedAnnex(t).installCRD(t, crd)
	widgets.create(t, "v1", "a", "spec: {size: 1}")
	widgets.deleteCRD(t)
	widgets.waitForCRDDeleted(t)

	// The same name with another schema.
	again := newCRD(t, `
type: object
properties: {spec: {type: object, properties: {size: {type: string}}}}
`)
	again.Name, again.Spec.Group = crd.Name, crd.Spec.Group
	widgets.annex.createCRD(t, again)
	widgets.wantNames(t, "of the old CRD")
	if got := widgets.create(t, "v1", "a", "spec: {size: large, color: any}"); !cmp.Equal(field(got, "spec"), any(map[string]any{"size": "large"})) {
		t.Errorf("created %v", got)
	}
	_, err := widgets.in("v1").Create(t.Context(), widgets.object(t, "v1", "b", "spec: {size: 1}"), metav1.CreateOptions{})
	expect.Error(t, err, "spec.size in body must be of type string")
}

// A new default of the schema applies to stored objects.
func TestDefaultsOfStoredObjects(t *testing.T) {
	t.Parallel()
	widgets := sharedAnnex(t).installCRD(t, newCRD(t, `
type: object
properties: {spec: {type: object, properties: {size: {type: integer}}}}
`))
	widgets.create(t, "v1", "a", "spec: {size: 1}")
	widgets.updateCRD(t, func(crd *apiextensionsv1.CustomResourceDefinition) {
		crd.Spec.Versions[0].Schema.OpenAPIV3Schema = parseSchema(t, strictSchema)
	})
	poll.UntilDone(t, "the old object has the new default", func() (bool, string) {
		object := widgets.get(t, "v1", "a")
		return field(object, "spec", "color") == "blue", cmp.Diff(nil, object.Object["spec"])
	})
}

func TestStorageVersionChanges(t *testing.T) {
	t.Parallel()
	crd := newCRD(t, anySchema)
	crd.Spec.Versions = append(crd.Spec.Versions, newVersion(t, "v2", anySchema))
	widgets := sharedAnnex(t).installCRD(t, crd)
	old := widgets.create(t, "v1", "old", "spec: {color: blue}")
	widgets.updateCRD(t, func(crd *apiextensionsv1.CustomResourceDefinition) {
		crd.Spec.Versions[0].Storage, crd.Spec.Versions[1].Storage = false, true
	})
	definitions := widgets.annex.CRDs()
	annexEtcd := widgets.annex.etcd(t)
	storedAs := func(name string) string {
		return strings.TrimPrefix(string(etcdValue(t, annexEtcd, widgets.key(name)))[:len(`{"apiVersion":"`+widgets.group+`/v1`)], `{"apiVersion":"`+widgets.group+"/")
	}
	poll.UntilDone(t, "new objects are stored as v2", func() (bool, string) {
		name := fmt.Sprintf("new-%d", lastNamespace.Add(1))
		widgets.create(t, "v1", name, "spec: {}")
		version := storedAs(name)
		return version == "v2", "stored as " + version
	})
	if version := storedAs("old"); version != "v1" {
		t.Errorf("the old object is stored as %s without an update", version)
	}
	for _, version := range []string{"v1", "v2"} {
		got := widgets.get(t, version, "old")
		if got.GetUID() != old.GetUID() || field(got, "spec", "color") != "blue" || got.GetAPIVersion() != widgets.group+"/"+version {
			t.Errorf("through %s the old object is %v", version, got)
		}
	}

	// An update without changes stores the object in the new version.
	current := widgets.get(t, "v2", "old")
	if _, err := widgets.in("v2").Update(t.Context(), current, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if version := storedAs("old"); version != "v2" {
		t.Errorf("after an update the old object is stored as %s", version)
	}
	stored := expect.Get(t, definitions, widgets.name)
	if !cmp.Equal(stored.Status.StoredVersions, []string{"v1", "v2"}) {
		t.Errorf("status.storedVersions is %v", stored.Status.StoredVersions)
	}
	dropFirst := func(crd *apiextensionsv1.CustomResourceDefinition) { crd.Spec.Versions = crd.Spec.Versions[1:] }
	dropFirst(stored)
	_, err := definitions.Update(t.Context(), stored, metav1.UpdateOptions{})
	expect.Error(t, err, `status.storedVersions[0]: Invalid value: "v1": missing from spec.versions`)

	// The old version can be removed once the status does not list it.
	poll.UntilNoError(t, "v1 is dropped from the stored versions", func() error {
		crd, err := definitions.Get(t.Context(), widgets.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		crd.Status.StoredVersions = []string{"v2"}
		_, err = definitions.UpdateStatus(t.Context(), crd, metav1.UpdateOptions{})
		return err
	})
	widgets.updateCRD(t, dropFirst)
	poll.UntilDone(t, "v1 is not served", func() (bool, string) {
		got := widgets.annex.get(t, widgets.path("v1"))
		return got.Code == http.StatusNotFound, got.String()
	})
	if got := field(widgets.get(t, "v2", "old"), "spec", "color"); got != "blue" {
		t.Errorf("without v1 the old object has the color %v", got)
	}
}

// Names of another CRD are not accepted until they are free.
func TestCRDNameConflict(t *testing.T) {
	t.Parallel()
	first := newCRD(t, anySchema)
	first.Spec.Names.ShortNames = []string{"wd"}
	first.Spec.Names.Categories = []string{"all"}
	widgets := sharedAnnex(t).installCRD(t, first)
	second := newCRD(t, anySchema)
	second.Spec.Group = first.Spec.Group
	second.Spec.Names = apiextensionsv1.CustomResourceDefinitionNames{Plural: "gadgets", Kind: "Gadget", ShortNames: []string{"wd"}}
	second.Name = "gadgets." + first.Spec.Group
	definitions := widgets.annex.CRDs()
	expect.Create(t, definitions, second)
	condition := func() *apiextensionsv1.CustomResourceDefinitionCondition {
		crd := expect.Get(t, definitions, second.Name)
		return apiextensionshelpers.FindCRDCondition(crd, apiextensionsv1.NamesAccepted)
	}
	poll.UntilDone(t, "the second CRD's names are refused", func() (bool, string) {
		got := condition()
		return got != nil && got.Reason == "ShortNamesConflict" && strings.Contains(got.Message, `"wd" is already in use`), fmt.Sprintf("condition %+v", got)
	})
	widgets.deleteCRD(t)
	poll.UntilDone(t, "the second CRD's names are accepted", func() (bool, string) {
		got := condition()
		return got != nil && got.Status == apiextensionsv1.ConditionTrue, fmt.Sprintf("condition %+v", got)
	})
}

// newCRDIn returns a CRD in a group that may be compiled in.
func newCRDIn(t *testing.T, plural, group, version string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	crd := newCRD(t, anySchema)
	crd.Name, crd.Spec.Group = plural+"."+group, group
	crd.Annotations = map[string]string{apiextensionsv1.KubeAPIApprovedAnnotation: "unapproved, for a test"}
	crd.Spec.Scope = apiextensionsv1.ClusterScoped
	crd.Spec.Names = apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Kind: "Impostor" + plural}
	crd.Spec.Versions[0].Name = version
	return crd
}

func TestCRDsInCompiledInGroupsAreRefused(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	groups := apiserver.CompiledInGroups()
	for group := range groups {
		_, err := a.CRDs().Create(t.Context(), newCRDIn(t, "things", group, "v9"), metav1.CreateOptions{})
		if !apierrors.IsInvalid(err) {
			t.Errorf("a CRD in the group %q: %v, want invalid", group, err)
		}
	}
}

// The etcd may have CRDs that an older version accepted.
func TestExistingCRDsInCompiledInGroups(t *testing.T) {
	t.Parallel()
	a := startAnnex(t, "--disable-admission-plugins=CompiledInGroups")
	before := a.groupNames(t)
	if unknown := before.Difference(apiserver.CompiledInGroups()); unknown.Len() > 0 {
		t.Errorf("%v are served without a CRD, and CRDs in them are not refused", sets.List(unknown))
	}
	widgets := a.installOn(t, "default")
	widgets.create(t, "v1", "kept", "spec: {}")
	impostors := []*apiextensionsv1.CustomResourceDefinition{
		newCRDIn(t, "hostedresources", "hosting.annex.dev", "v1alpha1"),
		newCRDIn(t, "stores", "hosting.annex.dev", "v1"),
		newCRDIn(t, "customresourcedefinitions", "apiextensions.k8s.io", "v1"),
		newCRDIn(t, "apiservices", "apiregistration.k8s.io", "v1"),
		newCRDIn(t, "things", "rbac.authorization.k8s.io", "v1"),
	}
	for _, crd := range impostors {
		a.createCRD(t, crd)
	}
	if got := a.get(t, "/apis/hosting.annex.dev/v1/stores"); got.Code == 200 {
		t.Errorf("Stores are served as if they were custom resources: %s", got)
	}
	for _, crd := range impostors {
		expect.Delete(t, a.CRDs(), crd.Name)
	}
	for _, crd := range impostors {
		expect.Gone(t, a.CRDs(), crd.Name)
	}
	if got := widgets.hosted(t).Status.DefinitionUID; got == "" {
		t.Error("the HostedResource of another CRD was replaced")
	}
	if _, err := a.Stores().Get(t.Context(), hostingv1alpha1.DefaultStoreName, metav1.GetOptions{}); err != nil {
		t.Errorf("the Store default: %v", err)
	}
	if _, err := widgets.in("v1").Get(t.Context(), "kept", metav1.GetOptions{}); err != nil {
		t.Errorf("an object of another CRD: %v", err)
	}
	// When the last CRD is in discovery, earlier changes are too.
	last := a.installOn(t, "default")
	poll.Until(t, "the groups are as before", func() string {
		return cmp.Diff(before.Union(sets.New(widgets.group, last.group)), a.groupNames(t))
	})
}

// groupNames returns the groups of discovery.
func (a *annex) groupNames(t *testing.T) sets.Set[string] {
	t.Helper()
	served, err := a.Kube.Discovery().ServerGroups()
	expect.NoError(t, err)
	names := sets.New[string]()
	for _, group := range served.Groups {
		names.Insert(group.Name)
	}
	return names
}
