// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincopy

import (
	"errors"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/annex-dev/annex/pkg/aggregated/mainadmission"
	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/crds"
	"github.com/annex-dev/annex/pkg/test/expect"
)

func widget(version string, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/" + version, "kind": "Widget",
		"metadata": map[string]any{"namespace": "default", "name": "a", "uid": "1", "resourceVersion": "7"},
		"spec":     spec, "status": map[string]any{"ready": true},
	}}
}

// newClient has objects of the group.
func newClient(objects ...runtime.Object) *fake.FakeDynamicClient {
	lists := map[schema.GroupVersionResource]string{}
	for _, version := range []string{"v1", hostingv1alpha1.MainCopyVersion} {
		lists[schema.GroupVersionResource{Group: "example.com", Version: version, Resource: "widgets"}] = "WidgetList"
	}
	return fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists, objects...)
}

func TestProbe(t *testing.T) {
	t.Parallel()
	spec := map[string]any{"a": map[string]any{"b": int64(1), "c": int64(2)}}
	refuse := func(*unstructured.Unstructured) error { return errors.New("denied") }
	keep := func(*unstructured.Unstructured) error { return nil }
	set := func(o *unstructured.Unstructured) error {
		return unstructured.SetNestedField(o.Object, "me", "spec", "a", "by")
	}
	remove := func(o *unstructured.Unstructured) error {
		return unstructured.SetNestedMap(o.Object, map[string]any{}, "spec")
	}
	label := func(o *unstructured.Unstructured) error { o.SetLabels(map[string]string{"a": "b"}); return nil }
	inAnnex, inMain := []runtime.Object{widget("v1", spec)}, []runtime.Object{widget(hostingv1alpha1.MainCopyVersion, nil)}
	for name, test := range map[string]struct {
		annex, main []runtime.Object
		verb        string
		// change makes admission's change.
		change func(*unstructured.Unstructured) error
		want   string
	}{
		"no objects":     {nil, nil, "create", refuse, ""},
		"unchanged":      {inAnnex, nil, "create", keep, ""},
		"refused":        {inAnnex, nil, "create", refuse, "create a copy of default/a as a dry run: denied"},
		"changed":        {inAnnex, nil, "create", set, "is stale: spec.a.by"},
		"removed":        {inAnnex, nil, "create", remove, "is stale: spec.a"},
		"labelled":       {inAnnex, nil, "create", label, "is stale: metadata.labels"},
		"update refused": {inAnnex, inMain, "update", refuse, "update default/a as a dry run: denied"},
		"update changed": {inAnnex, inMain, "update", set, "update default/a as a dry run: the main cluster stored"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			main := newClient(test.main...)
			c, of := &Copy{annex: newClient(test.annex...), objects: main}, ResourceOf(crds.New("example.com", "widgets", "v1"))
			main.PrependReactor("*", "widgets", func(action clienttesting.Action) (bool, runtime.Object, error) {
				if action.GetVerb() != "create" && action.GetVerb() != "update" {
					return false, nil, nil
				}
				written := action.(clienttesting.CreateAction).GetObject().(*unstructured.Unstructured).DeepCopy()
				if action.GetVerb() == test.verb {
					return true, written, test.change(written)
				}
				return true, written, nil
			})
			expect.ErrorOrNone(t, c.Probe(t.Context(), of), test.want)
			for _, action := range main.Actions() {
				if create, ok := action.(clienttesting.CreateActionImpl); ok && !slices.Equal(create.CreateOptions.DryRun, []string{"All"}) {
					t.Errorf("it was created: %+v", create)
				}
			}
		})
	}
}

// TestProbeCreation: a version with a subresource ignores the status.
func TestProbeCreation(t *testing.T) {
	t.Parallel()
	object := widget("v1", map[string]any{"a": int64(1)})
	client := newClient()
	client.PrependReactor("create", "widgets", func(action clienttesting.Action) (bool, runtime.Object, error) {
		created := action.(clienttesting.CreateAction).GetObject().(*unstructured.Unstructured).DeepCopy()
		delete(created.Object, "status")
		expect.Equal(t, "annex-probe-1", created.GetName())
		return true, created, nil
	})
	objects := client.Resource(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}).Namespace("default")
	expect.NoError(t, ProbeCreation(t.Context(), objects, object, "v1"))
	err := ProbeCreation(t.Context(), objects, object, hostingv1alpha1.MainCopyVersion)
	expect.Error(t, err, "status")
	if !IsChanged(err) {
		t.Errorf("%v is no change", err)
	}
}

func TestAdmittedResource(t *testing.T) {
	t.Parallel()
	definition := crds.New("example.com", "widgets", "v1")
	definition.Spec.Versions = append(definition.Spec.Versions, *definition.Spec.Versions[0].DeepCopy())
	definition.Spec.Versions[1].Name, definition.Spec.Versions[1].Served, definition.Spec.Versions[1].Storage = "v2", false, false
	expect.Equal(t, mainadmission.Resource{
		GroupResource: schema.GroupResource{Group: "example.com", Resource: "widgets"}, Kind: definition.Spec.Names.Kind, Namespaced: true, Versions: []string{"v1"},
	}, admittedResource(definition))
}
