// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/apiserver"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

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
