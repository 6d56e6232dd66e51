// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/annex-dev/annex/pkg/test/crds"
)

const (
	group, plural, kind = "bench.example.com", "records", "Record"

	// Objects are spread evenly over namespaces, and over parts: the values of a label, and of a
	// selectable field.
	namespaces, parts = 40, 100

	// serverAdds is the JSON that a server adds to an object: UID, times, managed fields.
	serverAdds = 620
	// ruleFrame is the JSON of an entry of the list in spec without its message.
	ruleFrame = 150
	// revisionDigits is the length of the field that writes change, so that sizes stay the same.
	revisionDigits = 19
)

// words make texts that compress as those of people do.
var words = strings.Fields(`the a of to and in is for on that with as by are at from this be an or
	which must may not only when each other all service request cluster node object policy rule
	value field label version traffic certificate secret storage network default allowed required`)

// collection is the path of all objects.
const collection = "/apis/" + group + "/v1/" + plural

func namespaceOf(i int) string { return fmt.Sprintf("bench-%02d", i%namespaces) }

func nameOf(i int) string { return fmt.Sprintf("record-%07d", i) }

// partOf returns the part that the object i is in. Each part has objects of all namespaces, and one
// of each hundred objects.
func partOf(i, shift int) int { return (i + shift*(i/parts)) % parts }

// parentOf is the path of the collection that the object i is in.
func parentOf(i int) string {
	return "/apis/" + group + "/v1/namespaces/" + namespaceOf(i) + "/" + plural
}

// pathOf is the path of the object i.
func pathOf(i int) string { return parentOf(i) + "/" + nameOf(i) }

// newObject returns the manifest of the object i, whose JSON has about size bytes once a
// server stored it. The same numbers give the same object.
func newObject(i, size int) ([]byte, error) {
	random := rand.New(rand.NewPCG(uint64(i), uint64(size)))
	rules := []map[string]any{}
	object := map[string]any{
		"apiVersion": group + "/v1", "kind": kind,
		"metadata": map[string]any{
			"name": nameOf(i), "namespace": namespaceOf(i),
			"labels": map[string]any{
				"app.kubernetes.io/name": "record", "app.kubernetes.io/managed-by": "bench",
				"part": fmt.Sprint("part-", partOf(i, 1)),
			},
			"annotations": map[string]any{"bench.example.com/checksum": fmt.Sprintf("%016x", random.Uint64())},
		},
		"spec": map[string]any{
			"revision": fmt.Sprintf("%0*d", revisionDigits, 0), "owner": fmt.Sprint("owner-", partOf(i, 3)),
			"replicas": i%9 + 1, "paused": i%2 == 0, "rules": rules,
		},
	}
	for {
		encoded, err := json.Marshal(object)
		if err != nil {
			return nil, fmt.Errorf("encode an object: %w", err)
		}
		if len(encoded)+serverAdds+ruleFrame/2 >= size {
			return encoded, nil
		}
		rule := newRule(random, len(rules), size-serverAdds-len(encoded))
		rules = append(rules, rule)
		object["spec"].(map[string]any)["rules"] = rules
	}
}

// newRule returns an entry of the list in spec of at most about room bytes.
func newRule(random *rand.Rand, n, room int) map[string]any {
	const longest = 350
	var message strings.Builder
	for message.Len() < min(room-ruleFrame, longest) {
		message.WriteString(words[random.IntN(len(words))] + " ")
	}
	return map[string]any{
		"name": fmt.Sprintf("rule-%d-%04x", n, random.IntN(1<<16)), "action": []string{"Allow", "Deny", "Audit"}[random.IntN(3)],
		"priority": random.IntN(1000), "namespaces": []string{namespaceOf(random.IntN(namespaces)), "default"},
		"message": strings.TrimSpace(message.String()),
	}
}

// definition returns the CRD of the objects: a structural schema with what ordinary CRDs have.
func definition() *apiextensionsv1.CustomResourceDefinition {
	text := apiextensionsv1.JSONSchemaProps{Type: "string", MaxLength: ptr.To[int64](1000)}
	number := apiextensionsv1.JSONSchemaProps{Type: "integer", Minimum: ptr.To(0.0), Maximum: ptr.To(10000.0)}
	name := apiextensionsv1.JSONSchemaProps{Type: "string", Pattern: "^[a-z0-9-]+$", MaxLength: ptr.To[int64](63)}
	object := func(properties map[string]apiextensionsv1.JSONSchemaProps) apiextensionsv1.JSONSchemaProps {
		return apiextensionsv1.JSONSchemaProps{Type: "object", Properties: properties}
	}
	listOf := func(item apiextensionsv1.JSONSchemaProps) apiextensionsv1.JSONSchemaProps {
		return apiextensionsv1.JSONSchemaProps{Type: "array", MaxItems: ptr.To[int64](200), Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &item}}
	}
	choice := func(values ...string) apiextensionsv1.JSONSchemaProps {
		schema := apiextensionsv1.JSONSchemaProps{Type: "string"}
		for _, value := range values {
			schema.Enum = append(schema.Enum, apiextensionsv1.JSON{Raw: []byte(`"` + value + `"`)})
		}
		return schema
	}
	spec := object(map[string]apiextensionsv1.JSONSchemaProps{
		"revision": text, "owner": name, "replicas": number, "paused": {Type: "boolean"},
		"rules": listOf(object(map[string]apiextensionsv1.JSONSchemaProps{
			"name": name, "action": choice("Allow", "Deny", "Audit"), "priority": number, "namespaces": listOf(name), "message": text,
		})),
	})
	spec.Required = []string{"owner"}
	spec.XValidations = apiextensionsv1.ValidationRules{{Rule: "self.replicas <= 100", Message: "too many replicas"}}
	status := object(map[string]apiextensionsv1.JSONSchemaProps{
		"observed": text, "phase": choice("Pending", "Ready"),
		"conditions": listOf(object(map[string]apiextensionsv1.JSONSchemaProps{"type": name, "status": text, "reason": text, "message": text})),
	})

	crd := crds.New(group, plural)
	crd.Spec.Names.Kind = kind
	root := object(map[string]apiextensionsv1.JSONSchemaProps{"spec": spec, "status": status})
	version := crds.NewVersion("v1", true, &root)
	version.Subresources = &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}}
	version.SelectableFields = []apiextensionsv1.SelectableField{{JSONPath: ".spec.owner"}}
	version.AdditionalPrinterColumns = []apiextensionsv1.CustomResourceColumnDefinition{
		{Name: "Owner", Type: "string", JSONPath: ".spec.owner"},
		{Name: "Replicas", Type: "integer", JSONPath: ".spec.replicas"},
		{Name: "Phase", Type: "string", JSONPath: ".status.phase"},
		{Name: "Age", Type: "date", JSONPath: ".metadata.creationTimestamp"},
	}
	crd.Spec.Versions = append(crd.Spec.Versions, version)
	return crd
}

// listMeta is what is read of a list: the version that a watch can begin at, and the number
// of objects that a page leaves.
type listMeta struct {
	Metadata metav1.ListMeta `json:"metadata"`
}
