// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// gearSchema has rules of all kinds, which COLOR tightens.
const gearSchema = `
type: object
properties:
  spec:
    type: object
    required: [size]
    x-kubernetes-validations:
    - {rule: "!has(self.min) || self.min <= self.size", messageExpression: "self.size > 50 ? 'above much' : 'above little'", fieldPath: .min, reason: FieldValueForbidden}
    properties:
      size: {type: integer, minimum: 1, maximum: 100}
      min: {type: integer}
      color: {type: string, default: blue, COLOR}
      class: {type: string, maxLength: 10, x-kubernetes-validations: [{rule: "self == oldSelf", message: class is immutable}]}
      nested: {type: object, default: {}, properties: {level: {type: integer, default: 3}}}
      open: {type: object, x-kubernetes-preserve-unknown-fields: true, properties: {closed: {type: object, properties: {known: {type: string}}}}}
      ports:
        type: array
        x-kubernetes-list-type: map
        x-kubernetes-list-map-keys: [name]
        items: {type: object, required: [name], properties: {name: {type: string}, port: {type: integer}}}
  status: {type: object, properties: {size: {type: integer}, selector: {type: string}}}
`

// gears returns the definition of Gears, which have all subresources.
func gears(t *testing.T, color string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	crd := definition("gears", "Gear", apiextensionsv1.NamespaceScoped)
	crd.Spec.Versions = crd.Spec.Versions[:1]
	v1 := &crd.Spec.Versions[0]
	v1.Schema.OpenAPIV3Schema = &apiextensionsv1.JSONSchemaProps{}
	expect.NoError(t, yaml.UnmarshalStrict([]byte(strings.Replace(gearSchema, "COLOR", color, 1)), v1.Schema.OpenAPIV3Schema))
	v1.Subresources.Scale = &apiextensionsv1.CustomResourceSubresourceScale{
		SpecReplicasPath: ".spec.size", StatusReplicasPath: ".status.size", LabelSelectorPath: new(".status.selector"),
	}
	return crd
}

const (
	gearsPath = "/apis/" + group + "/v1/namespaces/default/gears"
	asJSON    = "application/json"
)

// dryRun is a write of which nothing is stored.
type dryRun struct{ method, path, contentType, body string }

// gear is a Gear with a specification.
func gear(name, spec string) string {
	return fmt.Sprintf(`{"apiVersion":"%s/v1","kind":"Gear","metadata":{"name":%q},"spec":%s}`, group, name, spec)
}

// perAnswer matches what differs in each answer.
var perAnswer = regexp.MustCompile(`"(uid|creationTimestamp|deletionTimestamp|time)":"[^"]*"|(gen)-[a-z0-9]{5}`)

func (s *server) dryRun(ctx context.Context, r dryRun) (answer, error) {
	separator := "?"
	if strings.Contains(r.path, "?") {
		separator = "&"
	}
	sent, err := s.tryWrite(ctx, write{method: r.method, path: r.path + separator + "dryRun=All", contentType: r.contentType, body: r.body})
	sent.body = perAnswer.ReplaceAllString(normalized(sent.body), "$1$2")
	return sent, err
}

// compareDryRuns sends writes to both servers that store nothing: valid ones, and those that are refused.
func compareDryRuns(t *testing.T, p *pair) {
	create(t, p.annex, definitionsPath, gears(t, "maxLength: 10"))
	objects := p.annex.dynamic.Resource(schema.GroupVersionResource{Group: group, Version: "v1", Resource: "gears"}).Namespace("default")
	poll.UntilNoError(t, "gears are served", func() error {
		_, err := objects.List(t.Context(), metav1.ListOptions{})
		return err
	})
	// Both objects have a color that will be invalid.
	create(t, p.annex, gearsPath, json.RawMessage(gear("old", `{"size":1,"color":"green","class":"a"}`)))
	for manager, spec := range map[string]string{
		"alice": `{"size":2,"color":"green","class":"a","ports":[{"name":"http","port":80}]}`, "bob": `{"size":2,"ports":[{"name":"https","port":443}]}`,
	} {
		_, err := objects.Patch(t.Context(), "one", types.ApplyPatchType, []byte(gear("one", spec)), metav1.PatchOptions{FieldManager: manager, Force: new(true)})
		expect.NoError(t, err)
	}
	one, err := objects.Patch(t.Context(), "one", types.MergePatchType, []byte(`{"status":{"size":2,"selector":"app=one"}}`), metav1.PatchOptions{}, "status")
	expect.NoError(t, err)
	crds := p.annex.dynamic.Resource(definitions)
	tightened, err := json.Marshal(map[string]any{"spec": gears(t, "enum: [blue, red]").Spec})
	expect.NoError(t, err)
	_, err = crds.Patch(t.Context(), "gears."+group, types.MergePatchType, tightened, metav1.PatchOptions{})
	expect.NoError(t, err)

	for name, r := range dryRuns(t, one.GetResourceVersion()) {
		poll.Until(t, name, func() string {
			want, err := p.upstream.dryRun(t.Context(), r)
			expect.NoError(t, err)
			got, err := p.annex.dryRun(t.Context(), r)
			expect.NoError(t, err)
			if got == want {
				return ""
			}
			return fmt.Sprintf("%s %s %s\nannex:    %s\nupstream: %s", r.method, r.path, r.body, cut(got, want), cut(want, got))
		})
	}
}

// dryRuns returns the writes, of which some are of the object at a resource version.
func dryRuns(t *testing.T, version string) map[string]dryRun {
	t.Helper()
	const one = gearsPath + "/one"
	merge, apply, asPatch := string(types.MergePatchType), string(types.ApplyPatchType), string(types.JSONPatchType)
	all := map[string]dryRun{
		"stale update":            {http.MethodPut, one, asJSON, strings.Replace(gear("one", `{"size":3}`), `"name"`, `"resourceVersion":"1","name"`, 1)},
		"update":                  {http.MethodPut, one, asJSON, strings.Replace(gear("one", `{"size":3,"color":"red"}`), `"name"`, `"resourceVersion":"`+version+`","name"`, 1)},
		"stale status":            {http.MethodPut, one + "/status", asJSON, strings.Replace(gear("one", `{"size":3}`), `"name"`, `"resourceVersion":"1","name"`, 1)},
		"immutable field":         {http.MethodPatch, one, merge, `{"spec":{"class":"b"}}`},
		"beside what is invalid":  {http.MethodPatch, gearsPath + "/old", merge, `{"spec":{"size":5}}`},
		"another invalid value":   {http.MethodPatch, gearsPath + "/old", merge, `{"spec":{"color":"yellow"}}`},
		"status with a spec":      {http.MethodPatch, one + "/status", merge, `{"spec":{"size":9},"status":{"size":9}}`},
		"spec with a status":      {http.MethodPatch, one, merge, `{"spec":{"size":9},"status":{"size":9}}`},
		"JSON patch":              {http.MethodPatch, one, asPatch, `[{"op":"test","path":"/spec/size","value":2},{"op":"replace","path":"/spec/size","value":7}]`},
		"JSON patch that fails":   {http.MethodPatch, one, asPatch, `[{"op":"test","path":"/spec/size","value":8}]`},
		"patch of nothing":        {http.MethodPatch, gearsPath + "/none", merge, `{}`},
		"apply conflict":          {http.MethodPatch, one + "?fieldManager=bob", apply, gear("one", `{"size":2,"color":"red"}`)},
		"forced apply":            {http.MethodPatch, one + "?fieldManager=bob&force=true", apply, gear("one", `{"size":2,"color":"red"}`)},
		"apply less":              {http.MethodPatch, one + "?fieldManager=alice", apply, gear("one", `{"size":2,"ports":[{"name":"http","port":8080}]}`)},
		"apply an unknown field":  {http.MethodPatch, one + "?fieldManager=alice", apply, gear("one", `{"size":2,"sise":1}`)},
		"apply managedFields":     {http.MethodPatch, one + "?fieldManager=alice", apply, strings.Replace(gear("one", `{"size":2}`), `"name"`, `"managedFields":[{"manager":"x"}],"name"`, 1)},
		"apply a new object":      {http.MethodPatch, gearsPath + "/new?fieldManager=alice", apply, gear("new", `{"size":2}`)},
		"scale":                   {http.MethodPatch, one + "/scale", merge, `{"spec":{"replicas":7}}`},
		"scale beyond the schema": {http.MethodPatch, one + "/scale", merge, `{"spec":{"replicas":101}}`},
		"scale of nothing":        {http.MethodGet, gearsPath + "/none/scale", asJSON, ""},
		"read the scale":          {http.MethodGet, one + "/scale", asJSON, ""},
		"another UID":             {http.MethodDelete, one, asJSON, `{"preconditions":{"uid":"other"}}`},
		"delete":                  {http.MethodDelete, one, asJSON, ""},
		"delete by field":         {http.MethodDelete, gearsPath + "?fieldSelector=spec.color%3Dgreen", asJSON, ""},
	}
	for name, body := range map[string]string{
		"valid": gear("new", `{"size":1}`), "missing": gear("new", `{}`), "out of range": gear("new", `{"size":0}`), "type": gear("new", `{"size":"many"}`),
		"enumeration": gear("new", `{"size":1,"color":"green"}`), "rule": gear("new", `{"size":1,"min":2}`), "several": gear("new", `{"size":0,"color":"green"}`),
		"pruned": gear("new", `{"size":1,"unknown":1,"open":{"free":{"any":[1]},"closed":{"known":"a","unknown":"b"}}}`), "taken": gear("one", `{"size":1}`),
		"name": gear("Not Valid", `{"size":1}`), "no name": `{"apiVersion":"` + group + `/v1","kind":"Gear","spec":{"size":1}}`, "not JSON": "{",
		"kind":   `{"apiVersion":"` + group + `/v1","kind":"Widget","metadata":{"name":"new"}}`,
		"status": `{"apiVersion":"` + group + `/v1","kind":"Gear","metadata":{"generateName":"gen-"},"spec":{"size":1},"status":{"size":9}}`,
	} {
		all["create: "+name] = dryRun{http.MethodPost, gearsPath, asJSON, body}
	}
	for name, r := range map[string]dryRun{
		"YAML": {http.MethodPost, gearsPath, "application/yaml", "a: b: c"}, "media type": {http.MethodPost, gearsPath, "text/plain", "x"},
		"a list": {http.MethodPost, gearsPath, asJSON, "[]"}, "no body": {http.MethodPost, gearsPath, asJSON, ""}, "method": {http.MethodPost, one + "/scale", asJSON, "{}"},
		"namespace": {http.MethodPost, strings.Replace(gearsPath, "default", "other", 1), asJSON, gear("new", `{"size":1}`)},
		"resource":  {http.MethodPost, strings.Replace(gearsPath, "gears", "nones", 1), asJSON, "{}"}, "strategic patch": {http.MethodPatch, one, string(types.StrategicMergePatchType), "{}"},
	} {
		all["odd "+name] = r
	}
	const odd = `{"size": 1, "size": 2, "sise": 3}`
	for _, mode := range []string{"", "Strict", "Warn", "Ignore", "Perhaps"} {
		query := "?fieldValidation=" + mode
		all["create with odd fields, "+mode] = dryRun{http.MethodPost, gearsPath + query, asJSON, gear("new", odd)}
		all["update with odd fields, "+mode] = dryRun{http.MethodPut, one + query, asJSON, gear("one", odd)}
		all["patch with odd fields, "+mode] = dryRun{http.MethodPatch, one + query, merge, `{"spec":` + odd + `}`}
	}
	for name, change := range map[string]func(*apiextensionsv1.CustomResourceDefinition){
		"name": func(crd *apiextensionsv1.CustomResourceDefinition) { crd.Name = "other" },
		"not structural": func(crd *apiextensionsv1.CustomResourceDefinition) {
			crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Type = ""
		},
		"rule": func(crd *apiextensionsv1.CustomResourceDefinition) {
			crd.Spec.Versions[0].Schema.OpenAPIV3Schema.XValidations = apiextensionsv1.ValidationRules{{Rule: "self.nothing > 1"}}
		},
		"default": func(crd *apiextensionsv1.CustomResourceDefinition) {
			size := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["status"].Properties
			size["size"] = apiextensionsv1.JSONSchemaProps{Type: "integer", Default: &apiextensionsv1.JSON{Raw: []byte(`"text"`)}}
		},
		"two storage versions": func(crd *apiextensionsv1.CustomResourceDefinition) {
			crd.Spec.Versions = append(crd.Spec.Versions, crd.Spec.Versions[0])
			crd.Spec.Versions[1].Name = "v2"
		},
	} {
		crd := gears(t, "maxLength: 10")
		crd.Name, crd.Spec.Names = "wheels."+group, apiextensionsv1.CustomResourceDefinitionNames{Plural: "wheels", Kind: "Wheel"}
		change(crd)
		body, err := json.Marshal(crd)
		expect.NoError(t, err)
		all["definition: "+name] = dryRun{http.MethodPost, definitionsPath, asJSON, string(body)}
	}
	return all
}
