// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

const strictSchema = `
type: object
properties:
  spec:
    type: object
    required: [size]
    properties:
      size: {type: integer, minimum: 1}
      color: {type: string, default: blue, enum: [blue, red]}
      nested:
        type: object
        default: {}
        properties:
          level: {type: integer, default: 3}
      open:
        type: object
        x-kubernetes-preserve-unknown-fields: true
        properties:
          closed: {type: object, properties: {known: {type: string}}}
`

func TestDefaultingAndPruning(t *testing.T) {
	t.Parallel()
	widgets := sharedAnnex(t).installCRD(t, newCRD(t, strictSchema))
	widgets.create(t, "v1", "a", `
spec:
  size: 1
  unknown: gone
  open:
    free: {any: [1, two]}
    closed: {known: kept, unknown: gone}
extra: gone
`)
	want := map[string]any{
		"size":   int64(1),
		"color":  "blue",
		"nested": map[string]any{"level": int64(3)},
		"open": map[string]any{
			"free":   map[string]any{"any": []any{int64(1), "two"}},
			"closed": map[string]any{"known": "kept"},
		},
	}
	got := widgets.get(t, "v1", "a")
	if diff := cmp.Diff(want, got.Object["spec"]); diff != "" {
		t.Errorf("spec after defaulting and pruning (-want +got):\n%s", diff)
	}
	if _, there := got.Object["extra"]; there {
		t.Error("an unknown field was kept")
	}
	stored := string(etcdValue(t, widgets.annex.etcd(t), widgets.key("a")))
	if strings.Contains(stored, "gone") || !strings.Contains(stored, `"color":"blue"`) {
		t.Errorf("etcd holds %s", stored)
	}
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

func TestSchemaValidation(t *testing.T) {
	t.Parallel()
	widgets := sharedAnnex(t).installCRD(t, newCRD(t, strictSchema))
	tests := map[string]struct{ content, want string }{
		"missing":      {"spec: {}", "spec.size: Required value"},
		"out of range": {"spec: {size: 0}", "spec.size: Invalid value: 0: spec.size in body should be greater than or equal to 1"},
		"type":         {"spec: {size: many}", `spec.size: Invalid value: "string": spec.size in body must be of type integer: "string"`},
		"enumeration":  {"spec: {size: 1, color: green}", `spec.color: Unsupported value: "green": supported values: "blue", "red"`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := widgets.in("v1").Create(t.Context(), widgets.object(t, "v1", "refused", test.content), metav1.CreateOptions{})
			if !apierrors.IsInvalid(err) {
				t.Errorf("got %v, want an Invalid error", err)
			}
			expect.Error(t, err, `Widget.`+widgets.group+` "refused" is invalid`, test.want)
		})
	}
}

func TestCRDValidation(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	tests := map[string]struct {
		schema string
		change func(*apiextensionsv1.CustomResourceDefinition)
		want   string
	}{
		"name":           {anySchema, func(crd *apiextensionsv1.CustomResourceDefinition) { crd.Name = "other" }, `must be spec.names.plural+"."+spec.group`},
		"not structural": {"type: object\nproperties: {spec: {properties: {a: {type: string}}}}", nil, "spec].type: Required value: must not be empty for specified object fields"},
		"rule":           {"type: object\nx-kubernetes-validations: [{rule: 'self.nothing > 1'}]", nil, "undefined field 'nothing'"},
		"default":        {"type: object\nproperties: {spec: {type: object, properties: {a: {type: string, default: 1}}}}", nil, `.default: Invalid value: "integer"`},
		"two storage versions": {anySchema, func(crd *apiextensionsv1.CustomResourceDefinition) {
			crd.Spec.Versions = append(crd.Spec.Versions, crd.Spec.Versions[0])
			crd.Spec.Versions[1].Name = "v2"
		}, "must have exactly one version marked as storage version"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			crd := newCRD(t, test.schema)
			if test.change != nil {
				test.change(crd)
			}
			_, err := a.CRDs().Create(t.Context(), crd, metav1.CreateOptions{})
			expect.Error(t, err, test.want)
		})
	}
}

func TestTransitionRules(t *testing.T) {
	t.Parallel()
	widgets := sharedAnnex(t).installCRD(t, newCRD(t, `
type: object
properties:
  spec:
    type: object
    x-kubernetes-validations:
    - {rule: "self.min <= self.max", messageExpression: "self.min > 9 ? 'a large min exceeds max' : 'a small min exceeds max'", fieldPath: .min, reason: FieldValueForbidden}
    properties:
      min: {type: integer}
      max: {type: integer}
      class:
        type: string
        maxLength: 10
        x-kubernetes-validations: [{rule: "self == oldSelf", message: class is immutable}]
`))
	_, err := widgets.in("v1").Create(t.Context(), widgets.object(t, "v1", "a", "spec: {min: 5, max: 1, class: x}"), metav1.CreateOptions{})
	expect.Error(t, err, "spec.min: Forbidden: a small min exceeds max")

	widgets.create(t, "v1", "a", "spec: {min: 1, max: 5, class: x}")
	_, err = widgets.patch(t, "v1", "a", `{"spec": {"class": "y"}}`)
	expect.Error(t, err, "spec.class: Invalid value", "class is immutable")
	if _, err = widgets.patch(t, "v1", "a", `{"spec": {"max": 9}}`); err != nil {
		t.Errorf("changing a field beside the immutable one: %v", err)
	}
}

// Values that a tightened schema forbids are accepted while they do not change.
func TestRatcheting(t *testing.T) {
	t.Parallel()
	widgets := sharedAnnex(t).installCRD(t, newCRD(t, `
type: object
properties: {spec: {type: object, properties: {color: {type: string}, shape: {type: string}, size: {type: integer}}}}
`))
	widgets.create(t, "v1", "a", "spec: {color: green, shape: round, size: 1}")
	widgets.updateCRD(t, func(crd *apiextensionsv1.CustomResourceDefinition) {
		crd.Spec.Versions[0].Schema.OpenAPIV3Schema = parseSchema(t, `
type: object
properties:
  spec:
    type: object
    properties:
      color: {type: string, enum: [blue]}
      shape: {type: string, x-kubernetes-validations: [{rule: "self == 'square'", message: squares only}]}
      size: {type: integer}
`)
	})
	poll.UntilDone(t, "the tightened schema is enforced", func() (bool, string) {
		_, err := widgets.in("v1").Create(t.Context(), widgets.object(t, "v1", "probe", "spec: {color: green}"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return apierrors.IsInvalid(err), "a new object that breaks it is accepted"
	})
	if _, err := widgets.patch(t, "v1", "a", `{"spec": {"size": 2}}`); err != nil {
		t.Errorf("changing a field beside the invalid ones: %v", err)
	}
	_, err := widgets.patch(t, "v1", "a", `{"spec": {"color": "yellow"}}`)
	expect.Error(t, err, `spec.color: Unsupported value: "yellow"`)
	_, err = widgets.patch(t, "v1", "a", `{"spec": {"shape": "oval"}}`)
	expect.Error(t, err, "squares only")
}

func TestFieldValidation(t *testing.T) {
	t.Parallel()
	widgets := sharedAnnex(t).installCRD(t, newCRD(t, strictSchema))
	there := widgets.create(t, "v1", "there", "spec: {size: 1}")
	content := func(name, resourceVersion string) string {
		return fmt.Sprintf(`{"apiVersion": "%s/v1", "kind": "Widget", "metadata": {"name": %q, "resourceVersion": %q},
			"spec": {"size": 1, "size": 2, "sise": 3}}`, widgets.group, name, resourceVersion)
	}
	const (
		unknown   = `unknown field \"spec.sise\"`
		duplicate = `duplicate field \"spec.size\"`
	)
	requests := map[string]struct {
		method, path, body string
		warnings           []string
	}{
		"create": {http.MethodPost, "", content("created", ""), []string{duplicate, unknown}},
		"update": {http.MethodPut, "/there", content("there", there.GetResourceVersion()), []string{duplicate, unknown}},
		"patch":  {http.MethodPatch, "/there", `{"spec": {"size": 1, "size": 2, "sise": 3}}`, []string{duplicate, unknown}},
	}
	modes := map[string]struct {
		query string
		check func(t *testing.T, got response, warnings string, want []string)
	}{
		"Strict":  {"&fieldValidation=Strict", wantRefusal},
		"Warn":    {"&fieldValidation=Warn", wantWarnings},
		"default": {"", wantWarnings},
		"Ignore": {"&fieldValidation=Ignore", func(t *testing.T, got response, warnings string, _ []string) {
			if got.Code/100 != 2 || warnings != "" {
				t.Errorf("got %s with warnings %q", got, warnings)
			}
		}},
		"unknown mode": {"&fieldValidation=Perhaps", func(t *testing.T, got response, _ string, _ []string) {
			if got.Code != http.StatusUnprocessableEntity || !strings.Contains(string(got.Body), `fieldValidation: Unsupported value: \"Perhaps\"`) {
				t.Errorf("got %s", got)
			}
		}},
	}
	for name, request := range requests {
		for mode, expect := range modes {
			t.Run(name+" "+mode, func(t *testing.T) {
				t.Parallel()
				path := widgets.path("v1") + request.path + "?dryRun=All" + expect.query
				headers := []string{"Content-Type", "application/json"}
				if request.method == http.MethodPatch {
					headers[1] = string(types.MergePatchType)
				}
				got := widgets.annex.request(t, request.method, path, request.body, headers...)
				expect.check(t, got, strings.Join(got.Header.Values("Warning"), "\n"), request.warnings)
			})
		}
	}
}

func wantRefusal(t *testing.T, got response, _ string, want []string) {
	t.Helper()
	if got.Code != http.StatusBadRequest && got.Code != http.StatusUnprocessableEntity {
		t.Errorf("got %s, want a refusal", got)
	}
	expect.Contains(t, string(got.Body), want...)
}

func wantWarnings(t *testing.T, got response, warnings string, want []string) {
	t.Helper()
	if got.Code/100 != 2 {
		t.Errorf("got %s", got)
	}
	expect.Contains(t, warnings, want...)
}
