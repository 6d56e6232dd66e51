// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package injection

import (
	"encoding/json"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// The schemas of tests.
const (
	anything = `{type: object, x-kubernetes-preserve-unknown-fields: true}`
	anyList  = `{type: array, items: ` + anything + `}`
	// podSchema knows a part of a pod spec.
	podSchema = `{type: object, properties: {containers: {type: array, maxItems: 2, items: {type: object, required: [name],
	  properties: {name: {type: string, maxLength: 10}, image: {type: string}, env: ` + anyList + `, volumeMounts: ` + anyList + `,
	    ports: {type: array, items: {type: object, required: [protocol], properties: {port: {type: integer}, protocol: {type: string, default: TCP}}}}}}},
	  initContainers: ` + anyList + `, volumes: ` + anyList + `}}`
)

// newCRD returns a definition with a schema of the spec for each version.
func newCRD(t *testing.T, specs ...string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "jobs.example.com", UID: "1", Generation: 1}}
	for i, spec := range specs {
		text, err := json.Marshal(from(t, `{type: object, properties: {spec: {type: object, properties: `+spec+`}}}`))
		expect.NoError(t, err)
		schema := &apiextensionsv1.JSONSchemaProps{}
		expect.NoError(t, json.Unmarshal(text, schema))
		crd.Spec.Versions = append(crd.Spec.Versions, apiextensionsv1.CustomResourceDefinitionVersion{
			Name: "v" + string(rune('1'+i)), Served: true, Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: schema},
		})
	}
	return crd
}

func TestFit(t *testing.T) {
	t.Parallel()
	const template = `{template: {type: object, properties: {spec: ` + podSchema + `}}}`
	at := func(path string) v1alpha1.InjectionTemplate {
		return v1alpha1.InjectionTemplate{Path: path, Type: v1alpha1.InjectionPodTemplate}
	}
	for name, test := range map[string]struct {
		specs    []string
		template v1alpha1.InjectionTemplate
		change   func(*v1alpha1.InjectionProfileSpec)
		want     []string
	}{
		"fits":                     {specs: []string{template}, template: podTemplate},
		"open pod spec":            {specs: []string{`{template: {type: object, properties: {spec: ` + anything + `}}}`}, template: podTemplate},
		"open template":            {specs: []string{`{template: ` + anything + `}`}, template: podTemplate},
		"below an open object":     {specs: []string{`{a: ` + anything + `}`}, template: at("spec.a.b[*].template")},
		"items":                    {specs: []string{`{groups: {type: array, items: {type: object, properties: ` + template + `}}}`}, template: at("spec.groups[*].template")},
		"values":                   {specs: []string{`{groups: {type: object, additionalProperties: {type: object, properties: ` + template + `}}}`}, template: at("spec.groups[*].template")},
		"a value":                  {specs: []string{`{groups: {type: object, additionalProperties: {type: object, properties: ` + template + `}}}`}, template: at("spec.groups.a.template")},
		"no such field":            {specs: []string{template}, template: at("spec.templates"), want: []string{"spec.targets[0].templates[0].path", "has no spec.templates"}},
		"a list as an object":      {specs: []string{`{groups: {type: array, items: {type: object, properties: ` + template + `}}}`}, template: at("spec.groups.template"), want: []string{"spec.groups that is an object: it is a list"}},
		"an object as a list":      {specs: []string{template}, template: at("spec.template[*]"), want: []string{"has no spec.template[*]"}},
		"not in every version":     {specs: []string{template, `{}`}, template: podTemplate, want: []string{"jobs.example.com, version v2, has no spec.template"}},
		"a pod spec as a template": {specs: []string{`{template: ` + podSchema + `}`}, template: podTemplate, want: []string{"has no spec.template.spec"}},
		"no volumes": {specs: []string{`{template: {type: object, properties: {spec: {type: object, properties: {containers: ` + anyList + `, initContainers: ` + anyList + `}}}}}`},
			template: podTemplate, want: []string{"has no list volumes there, for spec.volumes"}},
		"a field that would be dropped": {specs: []string{template}, template: podTemplate,
			change: func(spec *v1alpha1.InjectionProfileSpec) {
				spec.Containers = raw(`{"name":"agent","image":"agent:1","stdin":true}`)
			},
			want: []string{"spec.containers[0].stdin: Forbidden", "would drop it"}},
		"a nested field that would be dropped": {specs: []string{template}, template: podTemplate,
			change: func(spec *v1alpha1.InjectionProfileSpec) {
				spec.Containers = raw(`{"name":"agent","image":"agent:1","ports":[{"port":1,"name":"x"}]}`)
			},
			want: []string{"spec.containers[0].ports[0].name: Forbidden"}},
		"a default in place of a required field": {specs: []string{template}, template: podTemplate,
			change: func(spec *v1alpha1.InjectionProfileSpec) {
				spec.Containers = raw(`{"name":"agent","image":"agent:1","ports":[{"port":1}]}`)
			}},
		"a value that the schema refuses": {specs: []string{template}, template: podTemplate,
			change: func(spec *v1alpha1.InjectionProfileSpec) {
				spec.Containers = raw(`{"name":"a-very-long-name","image":"agent:1"}`)
			},
			want: []string{"spec.containers[0].name: Too long", "by the schema of jobs.example.com, version v1 for"}},
		"Argo": {specs: []string{`{templates: {type: array, items: {type: object, properties: {container: ` + anything + `, script: ` + anything + `,
			sidecars: ` + anyList + `, initContainers: ` + anyList + `, volumes: ` + anyList + `}}}}`},
			template: v1alpha1.InjectionTemplate{Path: "spec.templates[*]", Type: v1alpha1.InjectionArgoTemplate}},
		"not Argo": {specs: []string{template},
			template: v1alpha1.InjectionTemplate{Path: "spec.template", Type: v1alpha1.InjectionArgoTemplate},
			want:     []string{"has no list sidecars", "has no script there"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			profile := newProfile(test.template)
			if test.change != nil {
				test.change(&profile.Spec)
			}
			errs := NewSchemas(newCRD(t, test.specs...)).Fit(newTarget(t, profile))
			if len(test.want) == 0 {
				expect.NoError(t, errs.ToAggregate())
				return
			}
			expect.Error(t, errs.ToAggregate(), test.want...)
		})
	}
}

// Versions that are not served do not matter, and one without a schema has every path.
func TestFitVersions(t *testing.T) {
	t.Parallel()
	crd := newCRD(t, `{template: `+anything+`}`, `{}`, `{}`)
	crd.Spec.Versions[1].Served = false
	crd.Spec.Versions[2].Schema = nil
	expect.NoError(t, NewSchemas(crd).Fit(newTarget(t, newProfile(podTemplate))).ToAggregate())
	crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Ref = new("#/definitions/job")
	expect.Error(t, NewSchemas(crd).Fit(newTarget(t, newProfile(podTemplate))).ToAggregate(), "spec.targets[0].resource", "version v1 is not structural")
}

func TestInvalidates(t *testing.T) {
	t.Parallel()
	crd := newCRD(t, `{template: {type: object, properties: {spec: `+podSchema+`}}, replicas: {type: integer}}`)
	spec := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	spec.XValidations = apiextensionsv1.ValidationRules{{Rule: "!has(self.template.spec.initContainers) || self.replicas > 1", Message: "init containers need replicas"}}
	crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"] = spec
	schemas, target := NewSchemas(crd), newTarget(t, newProfile(podTemplate))
	for name, test := range map[string]struct {
		object string
		want   []string
	}{
		"valid":           {object: `spec: {replicas: 2, template: {spec: {containers: [{name: main}]}}}`},
		"too many":        {`spec: {replicas: 2, template: {spec: {containers: [{name: main}, {name: b}]}}}`, []string{"spec.template.spec.containers", "must have at most 2 items", `InjectionProfile "agent"`}},
		"a rule":          {`spec: {replicas: 1, template: {spec: {containers: [{name: main}]}}}`, []string{"init containers need replicas", `InjectionProfile "agent"`}},
		"invalid already": {object: `spec: {replicas: a, template: {spec: {containers: [{name: main}, {name: b}]}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			object := from(t, test.object)
			injected, err := Injection{Target: target, schemas: schemas}.Inject(t.Context(), "v1", object, nil)
			if len(test.want) == 0 {
				expect.NoError(t, err)
				expect.Contains(t, images(injected), "agent=agent:1")
				return
			}
			expect.Error(t, err, test.want...)
		})
	}
}
