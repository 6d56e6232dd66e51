// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"encoding/json"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"github.com/annex-dev/annex/pkg/test/expect"
)

// TestDefaults compares objects with upstream's defaults.
func TestDefaults(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		schema string
		values []string
	}{
		"none":       {`{type: object, properties: {a: {type: string}}}`, []string{`{}`, `{"a":"x","b":[1]}`}},
		"scalar":     {`{type: object, properties: {b: {type: integer, default: 3}}}`, []string{`{}`, `{"a":1,"c":2}`, `{"b":4}`}},
		"of objects": {`{type: object, properties: {a: {type: object, default: {}, properties: {b: {type: string, default: "<"}}}}}`, []string{`{}`, `{"a":{}}`, `{"a":{"b":"x"}}`, `{"a":1}`}},
		"of items":   {`{type: object, properties: {a: {type: array, items: {type: object, properties: {b: {type: string, default: x}}}}}}`, []string{`{}`, `{"a":[]}`, `{"a":[{},{"b":"y"},1]}`}},
		"of values":  {`{type: object, additionalProperties: {type: object, properties: {b: {type: array, default: [1], items: {type: integer}}}}}`, []string{`{}`, `{"x":{},"\u003c":{},"y":{"b":[]}}`}},
		"below none": {`{type: object, properties: {a: {type: object, properties: {b: {type: object, properties: {c: {type: string, default: x}}}}}}}`, []string{`{}`, `{"a":{}}`, `{"a":{"b":{}}}`}},
		"escaped":    {`{type: object, properties: {"<": {type: object, properties: {b: {type: string, default: x}}}}}`, []string{`{"\u003c":{}}`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			schema := &apiextensionsv1.JSONSchemaProps{}
			expect.NoError(t, yaml.UnmarshalStrict([]byte(test.schema), schema))
			_, upstream := upstreamSchema(t, schema)
			for _, value := range test.values {
				var decoded any
				expect.NoError(t, utiljson.Unmarshal([]byte(value), &decoded))
				defaulting.Default(decoded, upstream)
				want, err := json.Marshal(decoded)
				expect.NoError(t, err)
				expect.Equal(t, string(want), newRule(schema, false).withDefaults(value), value)
			}
		})
	}
}
