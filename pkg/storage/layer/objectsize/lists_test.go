// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package objectsize

import (
	"encoding/json"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/annex-dev/annex/pkg/test/expect"
)

// definitionOf has a version without a schema and one with properties.
func definitionOf(t *testing.T, properties string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	schema := &apiextensionsv1.JSONSchemaProps{}
	expect.NoError(t, json.Unmarshal([]byte(`{"properties":`+properties+`}`), schema))
	return &apiextensionsv1.CustomResourceDefinition{Spec: apiextensionsv1.CustomResourceDefinitionSpec{Versions: []apiextensionsv1.CustomResourceDefinitionVersion{
		{Name: "v1"}, {Name: "v2", Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: schema}},
	}}}
}

func TestAssociativeLists(t *testing.T) {
	t.Parallel()
	const set = `{"type":"array","x-kubernetes-list-type":"set","items":{"type":"string"}}`
	definition := definitionOf(t, `{
		"set": `+set+`,
		"list": {"type":"array","items":{"type":"string"}},
		"atomic": {"type":"array","x-kubernetes-list-type":"atomic","items":{"type":"string"}},
		"map": {"type":"array","x-kubernetes-list-type":"map","items":{"properties":{"inner":{"type":"array"}}}},
		"byName": {"additionalProperties":`+set+`},
		"rows": {"type":"array","items":`+set+`}
	}`)
	items := func(count int) string { return "[" + strings.Repeat("1,", count-1) + "1]" }
	long, most := items(MaxItems+1), items(MaxItems)
	for name, test := range map[string]struct {
		text    string
		refused bool
	}{
		"as many as allowed":     {text: `{"spec":{"set":` + most + `}}`},
		"set":                    {text: `{"spec":{"set":` + long + `}}`, refused: true},
		"map":                    {text: `{"map":` + long + `}`, refused: true},
		"list":                   {text: `{"list":` + long + `}`},
		"atomic list":            {text: `{"atomic":` + long + `}`},
		"sets by name":           {text: `{"byName":{"list":` + long + `}}`, refused: true},
		"sets in a list":         {text: `{"rows":[` + long + `]}`, refused: true},
		"all sets of a list":     {text: `{"rows":[` + items(15_000) + "," + items(15_000) + `]}`, refused: true},
		"list in a map":          {text: `{"map":[{"inner":` + long + `}]}`, refused: true},
		"finalizers":             {text: `{"metadata":{"finalizers":` + long + `}}`, refused: true},
		"what cannot be decoded": {text: `{"set":` + long},
	} {
		if got := NewAssociativeLists(definition).Refusal([]byte(test.text)); test.refused != strings.Contains(got, "too many items") {
			t.Errorf("%s: got %q, refused: %t", name, got, test.refused)
		}
	}
	if NewAssociativeLists(nil).Refusal([]byte(`{"list":`+long+`}`)) == "" {
		t.Error("a long list of an object without a definition is not refused")
	}
}
