// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	apiextensionshelpers "k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/yaml"

	"github.com/annex-dev/annex/pkg/test/crds"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

var lastGroup atomic.Int64

// anySchema accepts anything in spec and status.
const anySchema = `
type: object
properties:
  spec: {type: object, x-kubernetes-preserve-unknown-fields: true}
  status: {type: object, x-kubernetes-preserve-unknown-fields: true}
`

// strictSchema has a required field, and one with a default.
const strictSchema = `
type: object
properties: {spec: {type: object, required: [size], properties: {size: {type: integer}, color: {type: string, default: blue}}}}
`

// newCRD returns a CRD of namespaced Widgets, in a group that no other
// test uses, with one version v1. The schema is YAML.
func newCRD(t *testing.T, schema string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	crd := crds.New(fmt.Sprintf("g%d.example.com", lastGroup.Add(1)), "widgets")
	crd.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{newVersion(t, "v1", schema)}
	return crd
}

// newVersion returns a version that is served; v1 is stored.
func newVersion(t *testing.T, name, schema string) apiextensionsv1.CustomResourceDefinitionVersion {
	t.Helper()
	return crds.NewVersion(name, name == "v1", parseSchema(t, schema))
}

func parseSchema(t *testing.T, schema string) *apiextensionsv1.JSONSchemaProps {
	t.Helper()
	props := &apiextensionsv1.JSONSchemaProps{}
	expect.NoError(t, yaml.UnmarshalStrict([]byte(schema), props), "parse a schema")
	return props
}

// resource is a served CRD of Widgets, with a namespace for its objects.
type resource struct {
	annex     *annex
	name      string
	group     string
	namespace string
}

// installCRD creates a CRD, waits until it is served and creates a namespace for the
// objects of the test.
func (a *annex) installCRD(t *testing.T, crd *apiextensionsv1.CustomResourceDefinition) *resource {
	t.Helper()
	r := &resource{annex: a, name: crd.Name, group: crd.Spec.Group, namespace: a.newNamespace(t)}
	a.createCRD(t, crd)
	return r
}

// createCRD creates a CRD and waits until it is served.
func (a *annex) createCRD(t *testing.T, crd *apiextensionsv1.CustomResourceDefinition) {
	t.Helper()
	expect.Create(t, a.CRDs(), crd)
	expect.Eventually(t, a.CRDs(), crd.Name, "CRD "+crd.Name+" is established", func(created *apiextensionsv1.CustomResourceDefinition) bool {
		return apiextensionshelpers.IsCRDConditionTrue(created, apiextensionsv1.Established)
	})
}

// updateCRD changes the CRD, and retries conflicts.
func (r *resource) updateCRD(t *testing.T, change func(*apiextensionsv1.CustomResourceDefinition)) {
	t.Helper()
	definitions := r.annex.CRDs()
	poll.UntilNoError(t, "update of CRD "+r.name, func() error {
		crd, err := definitions.Get(t.Context(), r.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(crd)
		_, err = definitions.Update(t.Context(), crd, metav1.UpdateOptions{})
		return err
	})
}

func (r *resource) gvr(version string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: r.group, Version: version, Resource: "widgets"}
}

// in returns the client of a version.
func (r *resource) in(version string) dynamic.ResourceInterface {
	return r.annex.Dynamic.Resource(r.gvr(version)).Namespace(r.namespace)
}

// path is the path of a version's collection.
func (r *resource) path(version string) string {
	return fmt.Sprintf("/apis/%s/%s/namespaces/%s/widgets", r.group, version, r.namespace)
}

// key is the key of an object in etcd.
func (r *resource) key(name string) string {
	return "/annex/" + r.group + "/widgets/" + r.namespace + "/" + name
}

// object returns a Widget. The content is YAML.
func (r *resource) object(t *testing.T, version, name, content string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{Object: map[string]any{}}
	asJSON, err := yaml.YAMLToJSON([]byte(content))
	expect.NoError(t, err, "parse an object")
	// Decodes numbers as the API does.
	expect.NoError(t, utiljson.Unmarshal(asJSON, &object.Object), "parse an object")
	object.SetAPIVersion(r.group + "/" + version)
	object.SetKind("Widget")
	object.SetName(name)
	object.SetNamespace(r.namespace)
	return object
}

// create creates a Widget.
func (r *resource) create(t *testing.T, version, name, content string) *unstructured.Unstructured {
	t.Helper()
	created, err := r.in(version).Create(t.Context(), r.object(t, version, name, content), metav1.CreateOptions{})
	expect.NoError(t, err, "create %s through %s", name, version)
	return created
}

// get reads a Widget.
func (r *resource) get(t *testing.T, version, name string) *unstructured.Unstructured {
	t.Helper()
	object, err := r.in(version).Get(t.Context(), name, metav1.GetOptions{})
	expect.NoError(t, err, "read %s through %s", name, version)
	return object
}

// names lists the Widgets by name.
func (r *resource) names(t *testing.T, version string, options metav1.ListOptions) []string {
	t.Helper()
	list, err := r.in(version).List(t.Context(), options)
	expect.NoError(t, err, "list through %s", version)
	names := []string{}
	for _, item := range list.Items {
		names = append(names, item.GetName())
	}
	slices.Sort(names)
	return names
}

// wantNames fails unless exactly these Widgets are listed.
func (r *resource) wantNames(t *testing.T, when string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, r.names(t, "v1", metav1.ListOptions{}), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("objects %s (-want +got):\n%s", when, diff)
	}
}

// field reads a field of an object.
func field(object *unstructured.Unstructured, path ...string) any {
	value, _, err := unstructured.NestedFieldNoCopy(object.Object, path...)
	if err != nil {
		return err
	}
	return value
}

// nextEvent returns the next event of a watch.
func nextEvent(t *testing.T, events watch.Interface) watch.Event {
	t.Helper()
	select {
	case event, open := <-events.ResultChan():
		if !open {
			t.Fatal("the watch ended")
		}
		return event
	case <-time.After(poll.Timeout):
		t.Fatalf("no event within %s", poll.Timeout)
	}
	return watch.Event{}
}

// patch sends a JSON merge patch.
func (r *resource) patch(t *testing.T, version, name, patch string, subresources ...string) (*unstructured.Unstructured, error) {
	t.Helper()
	return r.in(version).Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...)
}

// mustPatch is patch that has to succeed.
func (r *resource) mustPatch(t *testing.T, version, name, patch string, subresources ...string) *unstructured.Unstructured {
	t.Helper()
	patched, err := r.patch(t, version, name, patch, subresources...)
	expect.NoError(t, err, "patch %s through %s", name, version)
	return patched
}

// apply applies an object; the content is YAML.
func (r *resource) apply(t *testing.T, manager, content string, force bool, subresources ...string) (*unstructured.Unstructured, error) {
	t.Helper()
	return r.in("v1").Apply(t.Context(), "a", r.object(t, "v1", "a", content), metav1.ApplyOptions{FieldManager: manager, Force: force}, subresources...)
}

func (r *resource) mustApply(t *testing.T, manager, content string, force bool, subresources ...string) *unstructured.Unstructured {
	t.Helper()
	applied, err := r.apply(t, manager, content, force, subresources...)
	expect.NoError(t, err, "%s applies %s", manager, content)
	return applied
}

// delete deletes a Widget.
func (r *resource) delete(t *testing.T, name string) {
	t.Helper()
	expect.NoError(t, r.in("v1").Delete(t.Context(), name, metav1.DeleteOptions{}), "delete %s", name)
}

// watch watches the Widgets until the test ends.
func (r *resource) watch(t *testing.T, version string, options metav1.ListOptions) watch.Interface {
	t.Helper()
	events, err := r.in(version).Watch(t.Context(), options)
	expect.NoError(t, err, "watch through %s", version)
	return events
}

// on is the resource as another server serves it.
func (r *resource) on(a *annex) *resource {
	other := *r
	other.annex = a
	return &other
}

// countingInformer is an informer of Widgets that counts deletions.
type countingInformer struct {
	cache.SharedIndexInformer
	deleted atomic.Int32
}

// startInformer starts an informer of the Widgets, and waits until it has synced.
func (r *resource) startInformer(t *testing.T) *countingInformer {
	t.Helper()
	informers := dynamicinformer.NewFilteredDynamicSharedInformerFactory(r.annex.Dynamic, 0, r.namespace, nil)
	i := &countingInformer{SharedIndexInformer: informers.ForResource(r.gvr("v1")).Informer()}
	_, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: func(any) { i.deleted.Add(1) }})
	expect.NoError(t, err)
	informers.Start(t.Context().Done())
	t.Cleanup(informers.Shutdown)
	if !cache.WaitForCacheSync(t.Context().Done(), i.HasSynced) {
		t.Fatal("the informer did not sync")
	}
	return i
}

// waitForNames waits until the informer has exactly these Widgets, in order.
func (i *countingInformer) waitForNames(t *testing.T, want ...string) {
	t.Helper()
	poll.Until(t, "the informer", func() string {
		names := []string{}
		for _, key := range i.GetStore().ListKeys() {
			_, name, _ := strings.Cut(key, "/")
			names = append(names, name)
		}
		slices.Sort(names)
		return cmp.Diff(want, names)
	})
}

// deleteCRD deletes the CRD and does not wait.
func (r *resource) deleteCRD(t *testing.T) {
	t.Helper()
	expect.Delete(t, r.annex.CRDs(), r.name)
}
