// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"sigs.k8s.io/yaml"

	"github.com/annex-dev/annex/pkg/test/crds"
)

const (
	// Objects are spread evenly over namespaces, and over parts: the values of a label, and of a
	// selectable field.
	namespaces, parts = 40, 100

	// serverAdds is the JSON that a server adds to an object: UID, times, managed fields.
	serverAdds = 620
	// ruleFrame is the JSON of an entry of the list in spec without its message.
	ruleFrame = 150
	// noteFrame is the JSON of the annotation that fills up an object, without its value.
	noteFrame = 28
	// revisionDigits is the length of the field that writes change, so that sizes stay the same.
	revisionDigits = 19
)

// words make texts that compress like English.
var words = strings.Fields(`the a of to and in is for on that with as by are at from this be an or
	which must may not only when each other all service request cluster node object policy rule
	value field label version traffic certificate secret storage network default allowed required`)

// resource is a resource of the benchmarks; all have the same schema.
type resource struct{ group, plural, kind string }

// records has the objects of the comparisons with kube-apiserver.
var records = resource{"bench.example.com", "records", "Record"}

// things returns one of many resources.
func things(i int) resource {
	return resource{fmt.Sprintf("group%d.example.com", i%25), fmt.Sprintf("things%d", i), fmt.Sprintf("Thing%d", i)}
}

func (r resource) name() string { return r.plural + "." + r.group }

// collection is the path of all objects.
func (r resource) collection() string { return "/apis/" + r.group + "/v1/" + r.plural }

// parentOf is the path of the collection that the object i is in.
func (r resource) parentOf(i int) string {
	return "/apis/" + r.group + "/v1/namespaces/" + namespaceOf(i) + "/" + r.plural
}

// pathOf is the path of the object i.
func (r resource) pathOf(i int) string { return r.parentOf(i) + "/" + nameOf(i) }

func namespaceOf(i int) string { return fmt.Sprintf("bench-%02d", i%namespaces) }

func nameOf(i int) string { return fmt.Sprintf("record-%07d", i) }

// partOf returns the part that the object i is in. Each part has objects of all namespaces, and one
// of each hundred objects.
func partOf(i, shift int) int { return (i + shift*(i/parts)) % parts }

// object returns the manifest of the object i, whose JSON has about size bytes once a
// server stored it. The same numbers give the same object.
func (r resource) object(i, size int) ([]byte, error) {
	random := rand.New(rand.NewPCG(uint64(i), uint64(size)))
	rules := []map[string]any{}
	annotations := map[string]any{"bench.example.com/checksum": fmt.Sprintf("%016x", random.Uint64())}
	object := map[string]any{
		"apiVersion": r.group + "/v1", "kind": r.kind,
		"metadata": map[string]any{
			"name": nameOf(i), "namespace": namespaceOf(i),
			"labels": map[string]any{
				"app.kubernetes.io/name": "record", "app.kubernetes.io/managed-by": "bench",
				"part": fmt.Sprint("part-", partOf(i, 1)),
			},
			"annotations": annotations,
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
		room := size - serverAdds - len(encoded)
		switch {
		case room > ruleFrame:
			rules = append(rules, newRule(random, len(rules), room))
			object["spec"].(map[string]any)["rules"] = rules
		case room > noteFrame:
			annotations["bench.example.com/note"] = strings.Repeat("x", room-noteFrame)
		default:
			return encoded, nil
		}
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

// version is the version of all CRDs: a structural schema with what ordinary CRDs have.
const version = `
name: v1
served: true
storage: true
subresources: {status: {}}
selectableFields: [{jsonPath: .spec.owner}]
additionalPrinterColumns:
- {name: Owner, type: string, jsonPath: .spec.owner}
- {name: Replicas, type: integer, jsonPath: .spec.replicas}
- {name: Phase, type: string, jsonPath: .status.phase}
- {name: Age, type: date, jsonPath: .metadata.creationTimestamp}
schema:
  openAPIV3Schema:
    type: object
    properties:
      spec:
        type: object
        required: [owner]
        x-kubernetes-validations: [{rule: self.replicas <= 100, message: too many replicas}]
        properties:
          revision: {type: string, maxLength: 1000}
          owner: {type: string, maxLength: 63, pattern: "^[a-z0-9-]+$"}
          replicas: {type: integer, minimum: 0, maximum: 10000}
          paused: {type: boolean}
          rules:
            type: array
            maxItems: 200
            items:
              type: object
              properties:
                name: {type: string, maxLength: 63, pattern: "^[a-z0-9-]+$"}
                action: {type: string, enum: [Allow, Deny, Audit]}
                priority: {type: integer, minimum: 0, maximum: 10000}
                namespaces: {type: array, maxItems: 200, items: {type: string, maxLength: 63, pattern: "^[a-z0-9-]+$"}}
                message: {type: string, maxLength: 1000}
      status:
        type: object
        properties:
          observed: {type: string, maxLength: 1000}
          phase: {type: string, enum: [Pending, Ready]}
          conditions:
            type: array
            maxItems: 200
            items:
              type: object
              properties:
                type: {type: string, maxLength: 63, pattern: "^[a-z0-9-]+$"}
                status: {type: string, maxLength: 1000}
                reason: {type: string, maxLength: 1000}
                message: {type: string, maxLength: 1000}
`

// definition returns the CRD.
func (r resource) definition() *apiextensionsv1.CustomResourceDefinition {
	crd := crds.New(r.group, r.plural)
	crd.Spec.Names.Kind = r.kind
	crd.Spec.Versions = make([]apiextensionsv1.CustomResourceDefinitionVersion, 1)
	utilruntime.Must(yaml.UnmarshalStrict([]byte(version), &crd.Spec.Versions[0]))
	return crd
}
