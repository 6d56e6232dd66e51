// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/annex-dev/annex/pkg/test/expect"
)

const portsSchema = `
type: object
properties:
  spec:
    type: object
    properties:
      color: {type: string}
      size: {type: integer}
      ports:
        type: array
        x-kubernetes-list-type: map
        x-kubernetes-list-map-keys: [name]
        items:
          type: object
          required: [name]
          properties: {name: {type: string}, port: {type: integer}}
  status:
    type: object
    properties: {phase: {type: string}}
`

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

// owners returns the fields of each manager.
func owners(object *unstructured.Unstructured) map[string]string {
	found := map[string]string{}
	for _, entry := range object.GetManagedFields() {
		found[entry.Manager] += strings.NewReplacer(`\"`, "", `"`, "", "{}", "").Replace(string(entry.FieldsV1.Raw))
	}
	return found
}

func TestApply(t *testing.T) {
	t.Parallel()
	crd := newCRD(t, portsSchema)
	crd.Spec.Versions[0].Subresources = &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}}
	widgets := sharedAnnex(t).installCRD(t, crd)

	widgets.mustApply(t, "alice", "spec: {color: blue, size: 1, ports: [{name: http, port: 80}]}", false)
	second := widgets.mustApply(t, "bob", "spec: {ports: [{name: https, port: 443}]}", false)
	wantPorts := []any{map[string]any{"name": "http", "port": int64(80)}, map[string]any{"name": "https", "port": int64(443)}}
	if diff := cmp.Diff(wantPorts, field(second, "spec", "ports")); diff != "" {
		t.Errorf("ports of two managers (-want +got):\n%s", diff)
	}

	_, err := widgets.apply(t, "bob", "spec: {color: red, ports: [{name: https, port: 443}]}", false)
	if !apierrors.IsConflict(err) {
		t.Errorf("got %v, want a conflict", err)
	}
	expect.Error(t, err, `conflict with "alice"`, ".spec.color")
	if got := field(widgets.get(t, "v1", "a"), "spec", "color"); got != "blue" {
		t.Errorf("a refused apply changed the color to %v", got)
	}

	forced := widgets.mustApply(t, "bob", "spec: {color: red, ports: [{name: https, port: 443}]}", true)
	want := map[string]string{
		"alice": "{f:spec:{f:ports:{k:{name:http}:{.:,f:name:,f:port:}},f:size:}}",
		"bob":   "{f:spec:{f:color:,f:ports:{k:{name:https}:{.:,f:name:,f:port:}}}}",
	}
	if diff := cmp.Diff(want, owners(forced)); diff != "" {
		t.Errorf("managed fields after the forced apply (-want +got):\n%s", diff)
	}

	// A field that its only manager no longer applies is removed.
	last := widgets.mustApply(t, "alice", "spec: {ports: [{name: http, port: 8080}]}", false)
	wantSpec := map[string]any{"color": "red", "ports": []any{map[string]any{"name": "http", "port": int64(8080)}, map[string]any{"name": "https", "port": int64(443)}}}
	if diff := cmp.Diff(wantSpec, field(last, "spec")); diff != "" {
		t.Errorf("spec after alice left out the size (-want +got):\n%s", diff)
	}
	if again := widgets.mustApply(t, "alice", "spec: {ports: [{name: http, port: 8080}]}", false); again.GetResourceVersion() != last.GetResourceVersion() {
		t.Error("applying the same again wrote")
	}

	// An update takes over what it changes.
	last.Object["spec"].(map[string]any)["color"] = "green"
	updated, err := widgets.in("v1").Update(t.Context(), last, metav1.UpdateOptions{FieldManager: "carol"})
	expect.NoError(t, err)
	if got := owners(updated)["carol"]; got != "{f:spec:{f:color:}}" {
		t.Errorf("carol's update owns %q", got)
	}

	status := widgets.mustApply(t, "controller", "status: {phase: Fine}", false, "status")
	if field(status, "status", "phase") != "Fine" {
		t.Errorf("applied status: %v", status)
	}
	if got := slices.Sorted(maps.Keys(owners(status))); !cmp.Equal(got, []string{"alice", "bob", "carol", "controller"}) {
		t.Errorf("managers are %v", got)
	}

	_, err = widgets.apply(t, "alice", "spec: {sise: 1}", false)
	expect.Error(t, err, ".spec.sise: field not declared in schema")
	_, err = widgets.apply(t, "alice", "{metadata: {managedFields: [{manager: x}]}, spec: {size: 1}}", false)
	if err == nil {
		t.Error("an apply with managedFields was accepted")
	}
}
