// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// leverSchema has most features of schemas. TIGHT is a maximum.
const leverSchema = `
type: object
required: [spec]
properties:
  metadata: {type: object}
  spec:
    type: object
    required: [size]
    x-kubernetes-validations: [{rule: "!has(self.least) || self.least <= self.size"}]
    properties:
      size: {type: integer, minimum: 1, maximum: TIGHT}
      least: {type: integer, format: int32}
      ratio: {type: number, minimum: 0, exclusiveMinimum: true}
      color: {type: string, enum: [blue, red, "<green>"], default: blue}
      name: {type: string, pattern: "^[a-zé]+$", minLength: 2, maxLength: 6}
      when: {type: string, format: date-time}
      class: {type: string, x-kubernetes-validations: [{rule: "self == oldSelf"}]}
      port: {x-kubernetes-int-or-string: true, anyOf: [{type: integer}, {type: string}]}
      limit: {x-kubernetes-int-or-string: true, anyOf: [{type: integer}, {type: string}], pattern: "^[0-9]+m?$"}
      flags: {type: object, additionalProperties: {type: boolean}, maxProperties: 3}
      any: {type: object, additionalProperties: true}
      ports:
        type: array
        x-kubernetes-list-type: map
        x-kubernetes-list-map-keys: [name, protocol]
        items: {type: object, required: [name], properties: {name: {type: string}, protocol: {type: string, default: TCP}, port: {type: integer}}}
      tags: {type: array, x-kubernetes-list-type: set, items: {type: string}}
      args: {type: array, minItems: 1, maxItems: 4, items: {type: string}}
      solid: {type: object, x-kubernetes-map-type: atomic, properties: {a: {type: string}, b: {type: string}}}
      nested: {type: object, default: {}, properties: {level: {type: integer, default: 3}, deep: {type: object, properties: {x: {type: string}}}}}
      open: {type: object, x-kubernetes-preserve-unknown-fields: true, properties: {known: {type: string}}}
      raw: {x-kubernetes-preserve-unknown-fields: true}
      not: {type: object, properties: {a: {type: string}, b: {type: string}}, not: {required: [a, b]}, anyOf: [{required: [a]}, {required: [b]}]}
      some: {type: object, properties: {a: {type: string}}, anyOf: [{properties: {a: {enum: [x]}}}, {properties: {a: {enum: ["y"]}}}]}
      one: {type: object, properties: {a: {type: string}, b: {type: string}}, oneOf: [{required: [a]}, {required: [b]}]}
      pod: {type: object, x-kubernetes-embedded-resource: true, x-kubernetes-preserve-unknown-fields: true}
      maybe: {type: string, nullable: true}
  other: {type: object, properties: {x: {type: string}}}
  status:
    type: object
    properties:
      count: {type: integer}
      phase: {type: string, enum: [Ready, Pending]}
      conditions:
        type: array
        x-kubernetes-list-type: map
        x-kubernetes-list-map-keys: [type]
        items:
          type: object
          required: [type, status]
          properties: {type: {type: string}, status: {type: string}, message: {type: string}, lastTransitionTime: {type: string, format: date-time}}
`

const leversPath = "/apis/" + group + "/v1/namespaces/default/levers"

// levers returns the definition of Levers with a maximum.
func levers(t testing.TB, maximum int) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	crd := definition("levers", "Lever", apiextensionsv1.NamespaceScoped)
	crd.Spec.Versions = crd.Spec.Versions[:1]
	v1 := &crd.Spec.Versions[0]
	v1.Schema.OpenAPIV3Schema = &apiextensionsv1.JSONSchemaProps{}
	expect.NoError(t, yaml.UnmarshalStrict([]byte(strings.Replace(leverSchema, "TIGHT", strconv.Itoa(maximum), 1)), v1.Schema.OpenAPIV3Schema))
	v1.Subresources = &apiextensionsv1.CustomResourceSubresources{
		Status: &apiextensionsv1.CustomResourceSubresourceStatus{},
		Scale:  &apiextensionsv1.CustomResourceSubresourceScale{SpecReplicasPath: ".spec.least", StatusReplicasPath: ".status.count"},
	}
	return crd
}

// serveLevers creates the definition of Levers through the first server, and waits until all serve them.
func serveLevers(t testing.TB, servers ...*server) {
	t.Helper()
	create(t, servers[0], definitionsPath, levers(t, 100))
	for _, s := range servers {
		poll.UntilNoError(t, "levers are served", func() error {
			_, err := send(t.Context(), s.http, http.MethodGet, s.url+leversPath, asJSON, nil)
			return err
		})
	}
}

// getLever returns the JSON of a Lever, or "" if there is none.
func (s *server) getLever(t testing.TB, name string) string {
	t.Helper()
	response, content, err := s.get(t.Context(), request{path: leversPath + "/" + name})
	expect.NoError(t, err)
	switch response.StatusCode {
	case http.StatusOK:
		return string(content)
	case http.StatusNotFound:
		return ""
	}
	t.Fatalf("get %s: %s", name, content)
	return ""
}

// deleteLever deletes a Lever, which stays as long as it has the finalizers that it gets.
func (s *server) deleteLever(t testing.TB, name string) {
	t.Helper()
	path := s.url + leversPath + "/" + name
	_, err := send(t.Context(), s.http, http.MethodPatch, path, string(types.MergePatchType), json.RawMessage(`{"metadata":{"finalizers":["example.com/f","example.com/g"]}}`))
	expect.NoError(t, err)
	_, err = send(t.Context(), s.http, http.MethodDelete, path, asJSON, nil)
	expect.NoError(t, err)
}

// lever returns a Lever as a client creates it.
func lever(name string) map[string]any {
	return map[string]any{
		"apiVersion": group + "/v1", "kind": "Lever", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"size": 5, "class": "a", "flags": map[string]any{"x": true}, "tags": []any{"one"}},
	}
}

// create returns a creation of a Lever. Without a name it gets one that is generated.
func (r writer) create(t testing.TB, name string) write {
	t.Helper()
	w := write{method: http.MethodPost, contentType: asJSON, manager: r.manager()}
	w.path = leversPath + "?fieldManager=" + url.QueryEscape(w.manager)
	var object map[string]any
	text, err := json.Marshal(lever(name))
	expect.NoError(t, err)
	expect.NoError(t, json.Unmarshal(text, &object))
	for range r.IntN(4) {
		r.edit(t, object, r.IntN(4) == 0, false)
	}
	metadata := object["metadata"].(map[string]any)
	metadata["name"] = name
	if name == "" {
		delete(metadata, "name")
		metadata["generateName"] = []string{"made-", "made.", "made-" + strings.Repeat("x", 70), "Made-", "made_"}[r.IntN(12)/2%5]
	}
	w.body = r.render(object)
	return w
}

// delete returns a deletion of a Lever, of which current is the JSON. No garbage collector has to finalize it.
func (r writer) delete(t testing.TB, name, current string) write {
	t.Helper()
	var object struct{ Metadata map[string]any }
	expect.NoError(t, json.Unmarshal([]byte(current), &object))
	w := write{method: http.MethodDelete, path: leversPath + "/" + name, contentType: asJSON}
	switch n := r.IntN(8); n {
	case 0, 1:
	case 2:
		w.path += []string{"?gracePeriodSeconds=0", "?propagationPolicy=Background", "?dryRun=All", "?propagationPolicy=Nobody"}[r.IntN(4)]
	case 3, 4:
		w.body = fmt.Sprintf(`{"preconditions":{%q:%q}}`, []string{"uid", "resourceVersion"}[n-3], object.Metadata[[]string{"uid", "resourceVersion"}[r.IntN(2)]])
	default:
		w.body = []string{
			`{"kind":"DeleteOptions","apiVersion":"v1","propagationPolicy":"Background"}`, `{"gracePeriodSeconds":30}`, `{"orphanDependents":false}`,
			`{"propagationPolicy":"Foreground","dryRun":["All"]}`, `{"orphanDependents":true,"dryRun":["All"]}`, `{"dryRun":["All"]}`, `{"propagationPolicy":1}`, `{"kind":"Other"}`, `{`,
		}[r.IntN(9)]
	}
	return w
}

func (r writer) manager() string { return []string{"alice", "bob", `carol<"`}[r.IntN(20)/9] }

// removed stands for a field that is removed.
const removed = "REMOVED"

// edits has values for fields, as JSON. Many are refused, pruned or defaulted.
var edits = map[string][]string{
	"spec.size":                  {"1", "7", "50", "90", "0", "1000", `"x"`, "2.0", "2.5", "null", "1e1"},
	"spec.least":                 {"1", "6", "-1", "3000000000", removed},
	"spec.ratio":                 {"1", "0.5", "1e-7", "0", removed},
	"spec.color":                 {`"red"`, `"blue"`, `"<green>"`, `"\u003cgreen\u003e"`, `"pink"`, removed, "null"},
	"spec.name":                  {`"abc"`, `"é\u00e9"`, `"A"`, `"toolong"`, removed},
	"spec.when":                  {`"2026-01-02T03:04:05Z"`, `"yesterday"`, removed},
	"spec.class":                 {`"a"`, `"b"`},
	"spec.port":                  {"80", `"http"`, "1.5", removed},
	"spec.flags":                 {`{"x":true}`, `{"x":false,"y":true}`, "{}", `{"a":true,"b":true,"c":true,"d":true}`, removed, "null"},
	"spec.flags.z":               {"true", "false", removed},
	"spec.any":                   {`{"a":1,"b":{"c":[1]}}`, removed},
	"spec.ports":                 {`[{"name":"a","protocol":"TCP","port":1}]`, `[{"name":"a","protocol":"TCP","port":2},{"name":"b","protocol":"UDP"}]`, `[{"name":"b","protocol":"UDP"},{"name":"a","protocol":"TCP","port":2}]`, `[{"name":"a"}]`, `[{"name":"a","protocol":"TCP"},{"name":"a","protocol":"TCP"}]`, `[{"name":"q\"<","protocol":"TCP"}]`, "[]", removed},
	"spec.tags":                  {`["one"]`, `["one","two"]`, `["two"]`, `["one","one"]`, `["a\"b"]`, "[]", removed},
	"spec.args":                  {`["a"]`, `["a","b"]`, `["b","a"]`, "[]", `["a",null]`, removed},
	"spec.solid":                 {`{"a":"1"}`, `{"a":"1","b":"2"}`, "{}", removed},
	"spec.nested":                {`{"level":3}`, `{"level":4,"deep":{"x":"y"}}`, "{}", removed},
	"spec.nested.deep":           {"{}", `{"x":"z"}`, removed},
	"spec.open":                  {`{"known":"a","new":[1,{"b":null}]}`, `{"other":{"x":{}}}`, "{}", removed},
	"spec.open.deep.a":           {"1", `"1"`, "{}", "[]", "null", `{"a.b/c":1}`, removed},
	"spec.raw":                   {"1", `"text"`, `{"a":1}`, "[1,2]", "null", "true", removed},
	"spec.one":                   {`{"a":"1"}`, `{"a":"1","b":"2"}`, removed},
	"spec.not":                   {`{"a":"1"}`, `{"b":"2"}`, `{"a":"1","b":"2"}`, "{}", removed},
	"spec.some":                  {`{"a":"x"}`, `{"a":"z"}`, removed, removed, removed},
	"spec.limit":                 {`"100m"`, "2", `"much"`, removed},
	"spec.pod":                   {`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"x"}}`, removed, removed, removed},
	"spec.maybe":                 {`"x"`, "null", removed},
	"spec.unknown":               {"1"},
	"other.x":                    {`"1"`, `"2"`, removed},
	"status.count":               {"1", "2", "-1", "3000000000", `"x"`, removed},
	"status.phase":               {`"Ready"`, `"Pending"`, `"Lost"`},
	"status.unknown":             {"1"},
	"status.conditions":          {`[{"type":"Ready","status":"True","lastTransitionTime":"2026-01-02T03:04:05Z"}]`, `[{"type":"Ready","status":"False","message":"<no>"},{"type":"Synced","status":"True"}]`, `[{"type":"Synced","status":"True"},{"type":"Ready","status":"False"}]`, "[]", removed},
	"metadata.labels.a":          {`"b"`, `"c"`, `"not valid!"`, removed, "null"},
	"metadata.labels":            {"{}", removed, `{"u":"not valid!"}`, `{"a":"b","x/y":"z"}`},
	"metadata.annotations.u":     {`"1"`, `"<2>"`, removed, "null", "1"},
	"metadata.annotations.x/y":   {`"1"`, removed},
	"metadata.annotations":       {"{}", `{"u":"not valid!"}`, removed},
	"metadata.finalizers":        {`["example.com/f"]`, `["example.com/f","example.com/g"]`, `["example.com/g","example.com/f"]`, `["example.com/f","example.com/f"]`, `["f"]`, `["not valid!/f"]`, "[]", removed},
	"metadata.ownerReferences":   {"[]", `[{"apiVersion":"unknown.example.com/v1","kind":"Owner","name":"a","uid":"1"}]`, `[{"apiVersion":"v1","kind":"Owner","name":"b","uid":"2","controller":true},{"apiVersion":"unknown.example.com/v1","kind":"Owner","name":"a","uid":"1","blockOwnerDeletion":false}]`, `[{"apiVersion":"v1","kind":"Event","name":"b","uid":"2"}]`, `[{"kind":"Owner","name":"b","uid":"2"}]`, removed},
	"metadata.generation":        {"77", removed},
	"metadata.uid":               {removed, `"other"`, `""`},
	"metadata.unknown":           {`""`, "1"},
	"metadata.generateName":      {`"g"`, `""`, removed},
	"metadata.selfLink":          {`""`, `"x"`},
	"metadata.resourceVersion":   {removed, `"1"`, `""`},
	"metadata.managedFields":     {removed, removed, removed, "[]", "[{}]"},
	"metadata.creationTimestamp": {"null", removed},
	"metadata.name":              {`"other"`, removed},
	"metadata.namespace":         {`"other"`, removed},
	"kind":                       {`"Other"`},
}

// write is a random request that creates, updates or deletes a Lever.
type write struct {
	method, path, contentType, manager, body string
	status, force                            bool
}

// writer makes random writes.
type writer struct {
	*rand.Rand
	// applied has the last configurations that managers have applied: most apply the same fields again.
	applied map[string]int
}

func newWriter(r *rand.Rand) writer { return writer{r, map[string]int{}} }

// next returns a write of an object, of which current is the JSON.
func (r writer) next(t testing.TB, name, current string) write {
	t.Helper()
	w := write{method: http.MethodPut, path: leversPath + "/" + name, contentType: asJSON, manager: r.manager()}
	var object map[string]any
	expect.NoError(t, json.Unmarshal([]byte(current), &object))
	if w.status = r.IntN(3) == 0; w.status {
		w.path += "/status"
	}
	switch r.IntN(10) {
	case 0, 9:
		w.method, w.contentType = http.MethodPatch, string(types.ApplyPatchType)
		w.body = r.apply(name, w)
	case 1, 2, 3, 4:
		w.method, w.contentType, object = http.MethodPatch, string(types.MergePatchType), map[string]any{}
		fallthrough
	default:
		for range 1 + r.IntN(3) {
			r.edit(t, object, w.status, w.method == http.MethodPatch)
		}
		w.body = r.render(object)
	}
	w.path += "?fieldManager=" + url.QueryEscape(w.manager)
	if w.isApply() {
		w.force = r.IntN(3) > 0
		w.path += fmt.Sprintf("&force=%t", w.force)
	}
	return w
}

func (w write) isApply() bool { return w.contentType == string(types.ApplyPatchType) }

// apply returns an apply configuration of one of few sets of fields.
func (r writer) apply(name string, w write) string {
	begin := fmt.Sprintf(`{"apiVersion":%q,"kind":"Lever","metadata":{"name":%q`, group+"/v1", name)
	by := fmt.Sprint(w.manager, w.status)
	if _, again := r.applied[by]; !again || r.IntN(4) == 0 {
		r.applied[by] = r.IntN(28)
	}
	if w.status {
		return begin + []string{
			fmt.Sprintf(`},"status":{"count":%d}}`, r.IntN(3)),
			fmt.Sprintf(`},"status":{"conditions":[{"type":"Ready","status":"True","message":"%d"}],"phase":"Ready"}}`, r.IntN(2)),
			fmt.Sprintf(`},"status":{"count":%d},"spec":{"size":3}}`, r.IntN(3)),
		}[r.applied[by]%8/3]
	}
	return begin + []string{
		fmt.Sprintf(`,"labels":{"a":"b"}},"spec":{"size":%d,"tags":["one"],"ports":[{"name":"a","port":%d}]}}`, 5+r.IntN(3), r.IntN(2)),
		fmt.Sprintf(`,"labels":{"a":"b%d","x/y":"z"},"finalizers":["example.com/f"]},"spec":{"size":%d,"tags":["two","one"]}}`, r.IntN(2), 5+r.IntN(3)),
		fmt.Sprintf(`},"spec":{"flags":{"x":%t},"solid":{"a":"%d"},"args":["a"],"any":{"b":{"c":[%d]}},"nested":{"deep":{}}}}`, r.IntN(2) == 0, r.IntN(2), r.IntN(2)),
		fmt.Sprintf(`},"spec":{"open":{"known":"%d","new":{"deep":[{"a":1}]}},"raw":{"a":%d},"size":%d}}`, r.IntN(2), r.IntN(2), r.IntN(4)),
		fmt.Sprintf(`},"spec":{"ports":[{"name":"b","protocol":"UDP"},{"name":"a","protocol":"TCP","port":%d}],"flags":{}}}`, r.IntN(3)),
		`,"annotations":{}},"spec":{"name":"abc"}}`,
		`,"ownerReferences":[{"apiVersion":"unknown.example.com/v1","kind":"Owner","name":"a","uid":"1"}]},"status":{"count":1}}`,
	}[r.applied[by]/4]
}

// edit sets or removes a field. In a patch null removes it.
func (r writer) edit(t testing.TB, object map[string]any, status, patch bool) {
	t.Helper()
	fields := slices.Sorted(maps.Keys(edits))
	field := fields[r.IntN(len(fields))]
	for r.IntN(8) > 0 && (strings.HasPrefix(field, "status.") != status || r.IntN(3) > 0 && strings.HasPrefix(field, "metadata.")) {
		field = fields[r.IntN(len(fields))]
	}
	values := edits[field]
	text := values[r.IntN(len(values))]
	at, names := object, strings.Split(field, ".")
	if strings.HasPrefix(field, "metadata.annotations.x") {
		names = []string{"metadata", "annotations", "x/y"}
	}
	for _, name := range names[:len(names)-1] {
		below, is := at[name].(map[string]any)
		if !is {
			below = map[string]any{}
			at[name] = below
		}
		at = below
	}
	last := names[len(names)-1]
	switch {
	case text == removed && patch:
		at[last] = nil
	case text == removed:
		delete(at, last)
	default:
		at[last] = json.RawMessage(text)
	}
}

// render returns the JSON of a value, with keys in any order, and white space.
func (r writer) render(value any) string {
	object, is := value.(map[string]any)
	if !is || r.IntN(4) == 0 {
		var text bytes.Buffer
		encoder := json.NewEncoder(&text)
		encoder.SetEscapeHTML(r.IntN(2) == 0)
		_ = encoder.Encode(value)
		return strings.TrimSuffix(text.String(), "\n")
	}
	keys := slices.Sorted(maps.Keys(object))
	r.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	for i, key := range keys {
		keys[i] = strconv.Quote(key) + []string{":", ": ", " :\n"}[r.IntN(3)] + r.render(object[key])
	}
	return "{" + strings.Join(keys, []string{",", ",\n  "}[r.IntN(2)]) + "}"
}

// tighten changes the maximum of the size, through the first server, and waits until all know it.
func tighten(t testing.TB, maximum int, servers ...*server) {
	t.Helper()
	s := servers[0]
	spec, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&levers(t, maximum).Spec)
	expect.NoError(t, err)
	patch, err := json.Marshal(map[string]any{"spec": spec})
	expect.NoError(t, err)
	_, err = send(t.Context(), s.http, http.MethodPatch, s.url+definitionsPath+"/levers."+group, string(types.MergePatchType), json.RawMessage(patch))
	expect.NoError(t, err)
	probe := lever("probe")
	probe["spec"] = map[string]any{"size": 90}
	for _, s := range servers {
		poll.Until(t, fmt.Sprintf("the maximum is %d", maximum), func() string {
			_, err := send(t.Context(), s.http, http.MethodPost, s.url+leversPath+"?dryRun=All", asJSON, probe)
			if maximum >= 90 && err == nil || err != nil && strings.Contains(err.Error(), fmt.Sprint("less than or equal to ", maximum)) {
				return ""
			}
			return fmt.Sprint(err)
		})
	}
}
