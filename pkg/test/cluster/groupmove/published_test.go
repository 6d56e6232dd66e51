// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package groupmove

import (
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/annex-dev/annex/pkg/test/crds"
	"github.com/annex-dev/annex/pkg/test/crgen"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// TestPublishedGroups moves groups of other projects, with an object of each kind and version, into annex
// and back. Every object stays as it was, its resource version aside.
func TestPublishedGroups(t *testing.T) {
	t.Parallel()
	for group, source := range map[string]string{"cert-manager.io": "cert-manager", "wgpolicyk8s.io": "kyverno", "openreports.io": "openreports"} {
		t.Run(group, func(t *testing.T) {
			t.Parallel()
			manifests, err := crds.LoadNamed(t.Context(), source)
			expect.NoError(t, err)
			newUndefinedFixture(t, sharedAnnex, group).movePublished(manifests)
		})
	}
}

func (f *fixture) movePublished(manifests []crds.Manifest) {
	f.Helper()
	var objects []dynamic.ResourceInterface
	var before []*unstructured.Unstructured
	for _, manifest := range manifests {
		if manifest.CRD.Spec.Group != f.group {
			continue
		}
		expect.Create(f, f.main.CRDs(), manifest.CRD)
		for _, version := range manifest.CRD.Spec.Versions {
			if version.Served {
				in, created := f.createSample(manifest.CRD, version.Name)
				objects, before = append(objects, in), append(before, created)
			}
		}
	}
	if len(before) == 0 {
		f.Fatalf("no objects of %s", f.group)
	}
	f.run("move", "annex serves "+f.group)
	f.wantSame(objects, before)
	f.run("rollback", "The main cluster serves "+f.group)
	f.wantSame(objects, before)
}

// createSample creates an object with all fields.
func (f *fixture) createSample(crd *apiextensionsv1.CustomResourceDefinition, version string) (dynamic.ResourceInterface, *unstructured.Unstructured) {
	f.Helper()
	pair, err := crgen.New(f.Context(), crd, version, metav1.NamespaceDefault, "sample-"+version)
	expect.NoError(f, err)
	resource := schema.GroupVersionResource{Group: crd.Spec.Group, Version: version, Resource: crd.Spec.Names.Plural}
	objects := dynamic.ResourceInterface(f.main.Dynamic.Resource(resource))
	if crd.Spec.Scope == apiextensionsv1.NamespaceScoped {
		objects = f.main.Dynamic.Resource(resource).Namespace(metav1.NamespaceDefault)
	}
	var created *unstructured.Unstructured
	poll.UntilNoError(f, "create "+pair.Full.GetKind()+" "+version, func() (err error) {
		created, err = objects.Create(f.Context(), pair.Full, metav1.CreateOptions{})
		return err
	})
	if status, found := pair.Full.Object["status"]; found {
		created.Object["status"] = status
		created, err = objects.UpdateStatus(f.Context(), created, metav1.UpdateOptions{})
		if !apierrors.IsNotFound(err) { // it may have no such subresource
			expect.NoError(f, err)
		}
	}
	return objects, created
}

// wantSame fails unless objects are as they were, their resource versions aside.
func (f *fixture) wantSame(objects []dynamic.ResourceInterface, before []*unstructured.Unstructured) {
	f.Helper()
	for i, want := range before {
		got, err := objects[i].Get(f.Context(), want.GetName(), metav1.GetOptions{})
		expect.NoError(f, err)
		want = want.DeepCopy()
		forComparison(want)
		forComparison(got)
		expect.Equal(f, want.Object, got.Object, want.GetKind()+" "+want.GetName())
	}
}
