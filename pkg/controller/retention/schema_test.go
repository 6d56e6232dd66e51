// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package retention

import (
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/crds"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// widgetSchema has a field of each kind.
const widgetSchema = `
type: object
properties:
  status:
    type: object
    properties:
      phase: {type: string, enum: [Running, Done]}
      state: {type: string}
      replicas: {type: integer}
      finishedAt: {type: string, format: date-time}
      day: {type: string, format: date}
      free: {type: object, x-kubernetes-preserve-unknown-fields: true}
      byName: {type: object, additionalProperties: {type: object, properties: {phase: {type: string}}}}
      conditions:
        type: array
        items: {type: object, properties: {type: {type: string}, status: {type: string}, lastTransitionTime: {type: string, format: date-time}}}
  bad:
    type: object
    properties:
      conditions: {type: array, items: {type: object, properties: {type: {type: string}, status: {type: string}}}}
`

func parseSchema(t *testing.T, text string) *schemaProps {
	t.Helper()
	props := &schemaProps{}
	expect.NoError(t, yaml.UnmarshalStrict([]byte(text), props))
	return props
}

func TestCheckFields(t *testing.T) {
	t.Parallel()
	phase := func(path string, values ...string) hostingv1alpha1.RetentionRule {
		return hostingv1alpha1.RetentionRule{Phase: &hostingv1alpha1.RetentionPhase{Path: path, Values: values}}
	}
	timestamp := func(path string) hostingv1alpha1.RetentionRule {
		return hostingv1alpha1.RetentionRule{Timestamp: &hostingv1alpha1.RetentionTimestamp{Path: path}}
	}
	condition := hostingv1alpha1.RetentionRule{Condition: &hostingv1alpha1.RetentionCondition{Type: "Any"}}
	const free = "{type: object, x-kubernetes-preserve-unknown-fields: true}"
	tests := map[string]struct {
		schema string
		rule   hostingv1alpha1.RetentionRule
		want   string
	}{
		"creation":                    {"type: object", hostingv1alpha1.RetentionRule{AfterSeconds: 1}, ""},
		"phase":                       {widgetSchema, phase(".status.phase", "Done"), ""},
		"phase without an enum":       {widgetSchema, phase(".status.state", "Any"), ""},
		"value that is not allowed":   {widgetSchema, phase(".status.phase", "Done", "Dnoe"), `phase.path: the schema does not allow the value "Dnoe" in .status.phase, only Done, Running`},
		"unknown field":               {widgetSchema, phase(".status.phse", "Done"), "phase.path: the schema has no field .status.phse; .status has byName, conditions, day, finishedAt, free, phase, replicas, state"},
		"unknown first field":         {widgetSchema, phase(".stats.phase", "Done"), "the schema has no field .stats; it has bad, status"},
		"field of a string":           {widgetSchema, phase(".status.phase.name", "Done"), "the schema has no field .status.phase.name; .status.phase has no fields"},
		"number":                      {widgetSchema, phase(".status.replicas", "1"), ".status.replicas has the type integer in the schema, not string"},
		"field in a map":              {widgetSchema, phase(".status.byName.first.phase", "Done"), ""},
		"unknown field in a map":      {widgetSchema, phase(".status.byName.first.phse", "Done"), "no field .status.byName.first.phse"},
		"field among unknown ones":    {widgetSchema, phase(".status.free.phase.name", "Done"), ""},
		"schema that accepts all":     {free, phase(".status.phase", "Done"), ""},
		"timestamp":                   {widgetSchema, timestamp(".status.finishedAt"), ""},
		"timestamp without a format":  {widgetSchema, timestamp(".status.state"), ""},
		"day":                         {widgetSchema, timestamp(".status.day"), ".status.day has the format date in the schema, not date-time"},
		"unknown timestamp":           {widgetSchema, timestamp(".status.at"), "timestamp.path: the schema has no field .status.at"},
		"time that is a number":       {widgetSchema, timestamp(".status.replicas"), "has the type integer"},
		"condition":                   {widgetSchema, condition, ""},
		"no conditions":               {"type: object", condition, "condition: the schema has no field .status; it has no fields"},
		"conditions in an open field": {free, condition, ""},
		"conditions without a time": {
			"{type: object, properties: {status: {type: object, properties: {conditions: {type: array, items: {type: object, properties: {type: {type: string}, status: {type: string}}}}}}}}",
			condition, "an item of .status.conditions: the schema has no field .lastTransitionTime",
		},
		"conditions in a map": {
			"{type: object, properties: {status: {type: object, properties: {conditions: {type: object}}}}}",
			condition, ".status.conditions has the type object in the schema, not array",
		},
		"phase with a bad time": {widgetSchema, hostingv1alpha1.RetentionRule{Phase: &hostingv1alpha1.RetentionPhase{
			Path: ".status.phase", Values: []string{"Done"}, TimestampPath: ".status.endedAt",
		}}, "phase.timestampPath: the schema has no field .status.endedAt"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			crd := crds.New("example.com", "widgets", "v1")
			crd.Spec.Versions[0].Schema.OpenAPIV3Schema = parseSchema(t, test.schema)
			test.rule.Name = "r"
			problems := checkFields(&hostingv1alpha1.Retention{Rules: []hostingv1alpha1.RetentionRule{test.rule}}, crd, versionOf(crd))
			if got := strings.Join(problems, "\n"); got == "" && test.want != "" || !strings.Contains(got, test.want) || test.want == "" && got != "" {
				t.Errorf("problems:\n%s\nwant %q", got, test.want)
			}
		})
	}
}

func TestVersionOf(t *testing.T) {
	t.Parallel()
	version := func(name string, served, storage bool) apiextensionsv1.CustomResourceDefinitionVersion {
		return apiextensionsv1.CustomResourceDefinitionVersion{Name: name, Served: served, Storage: storage}
	}
	for want, versions := range map[string][]apiextensionsv1.CustomResourceDefinitionVersion{
		"v2": {version("v1", true, false), version("v2", true, true), version("v3", true, false)},
		"v1": {version("v0", false, true), version("v1", true, false), version("v2", true, false)},
		"":   {version("v1", false, true)},
	} {
		got := ""
		if found := versionOf(&definition{Spec: apiextensionsv1.CustomResourceDefinitionSpec{Versions: versions}}); found != nil {
			got = found.Name
		}
		if got != want {
			t.Errorf("objects are read in version %q, want %q", got, want)
		}
	}
}
