// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/annex-dev/annex/pkg/storage/canonicaljson"
)

// metadataField says how a request may have a field of metadata other than the stored object.
type metadataField struct {
	// empty has the values that stand for none.
	empty []string
	// given is set if upstream keeps the stored value when there is none.
	given bool
}

var metadataFields = map[string]metadataField{
	"name":                       {},
	"namespace":                  {empty: []string{`""`}, given: true},
	"generateName":               {empty: []string{`""`}},
	"selfLink":                   {empty: []string{`""`}},
	"uid":                        {empty: []string{`""`}, given: true},
	"resourceVersion":            {},
	"creationTimestamp":          {empty: []string{"null"}, given: true},
	"deletionTimestamp":          {empty: []string{"null"}},
	"deletionGracePeriodSeconds": {empty: []string{"null"}},
	"finalizers":                 {empty: []string{"null", "[]"}},
	"ownerReferences":            {empty: []string{"null", "[]"}},
	"managedFields":              {given: true}, // [] makes upstream forget them
	"generation":                 {given: true},
	"labels":                     {empty: []string{"null", "{}"}},
	"annotations":                {empty: []string{"null", "{}"}},
}

// editable has the rules of the metadata that a write of the whole object may change.
var editable = map[string]*rule{
	"annotations": newRule(mapOf(ofType("string")), false),
	"labels":      newRule(mapOf(ofType("string")), false),
	"finalizers": newRule(&apiextensionsv1.JSONSchemaProps{
		Type: "array", XListType: new("set"), Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &apiextensionsv1.JSONSchemaProps{
			Type: "string", Pattern: "/", // upstream warns of names without a domain
		}},
	}, false),
	"ownerReferences": newRule(&apiextensionsv1.JSONSchemaProps{
		Type: "array", XListType: new("map"), XListMapKeys: []string{"uid"}, Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &apiextensionsv1.JSONSchemaProps{
			Type: "object", XMapType: new("atomic"), Required: []string{"apiVersion", "kind", "name", "uid"},
			Properties: map[string]apiextensionsv1.JSONSchemaProps{
				"apiVersion": *ofType("string"), "kind": *ofType("string"), "name": *ofType("string"), "uid": *ofType("string"),
				"controller": *ofType("boolean"), "blockOwnerDeletion": *ofType("boolean"),
			},
		}},
	}, false),
}

func ofType(name string) *apiextensionsv1.JSONSchemaProps {
	return &apiextensionsv1.JSONSchemaProps{Type: name}
}

func mapOf(values *apiextensionsv1.JSONSchemaProps) *apiextensionsv1.JSONSchemaProps {
	return &apiextensionsv1.JSONSchemaProps{Type: "object", AdditionalProperties: &apiextensionsv1.JSONSchemaPropsOrBool{Schema: values}}
}

// checkMetadata returns an error unless a request has the metadata of the stored object. A write of the whole object may have
// other metadata that is editable.
func checkMetadata(wanted, current members, w Write) error {
	for _, m := range wanted {
		if _, known := metadataFields[m.key]; !known {
			return errMetadata
		}
	}
	switch {
	case wanted.get("resourceVersion") == "":
		return errMetadata
	case wanted.get("resourceVersion") != current.get("resourceVersion"):
		return ErrVersion
	}
	for name, field := range metadataFields {
		stored, sent := current.get(name), wanted.get(name)
		switch {
		case sent == stored || slices.Contains(field.empty, sent) && (field.given || stored == "") || sent == "" && field.given:
		case editable[name] != nil && !w.Status && (field.isEmpty(sent) || editable[name].check([]byte(sent))):
		case name == "generation" && isInteger(sent):
		default:
			return errMetadata
		}
	}
	if current.get("deletionTimestamp") != "" && !mayFinalize(current, wanted, w) {
		return errDeleting
	}
	return nil
}

// isEmpty reports whether a value stands for none.
func (f metadataField) isEmpty(value string) bool {
	return value == "" || slices.Contains(f.empty, value)
}

// mayFinalize reports whether a write of an object that is being deleted adds no finalizers. Without any left, upstream
// deletes the object unless it has a grace period.
func mayFinalize(current, wanted members, w Write) bool {
	left := wanted.get("finalizers")
	if hasNone := metadataFields["finalizers"].isEmpty; hasNone(left) {
		return !w.Status && !hasNone(current.get("finalizers")) && current.get("deletionGracePeriodSeconds") == "0"
	}
	return sets.New(itemsOf(current.get("finalizers"))...).HasAll(itemsOf(left)...)
}

// generationOf returns the generation in metadata, 0 for none.
func generationOf(metadata members) (int64, error) {
	generation, err := strconv.ParseInt(cmp.Or(metadata.get("generation"), "0"), 10, 64)
	if err != nil {
		return 0, errMetadata
	}
	return generation, nil
}

func isInteger(text string) bool {
	_, err := strconv.ParseInt(text, 10, 64)
	return err == nil
}

// validateMetadata validates metadata that is editable.
func validateMetadata(edited members) error {
	var decoded metav1.ObjectMeta
	if json.Unmarshal(edited.encode(), &decoded) != nil {
		return errMetadata
	}
	at := field.NewPath("metadata")
	if len(metav1validation.ValidateLabels(decoded.Labels, at)) > 0 || len(apivalidation.ValidateAnnotations(decoded.Annotations, at)) > 0 ||
		len(apivalidation.ValidateFinalizers(decoded.Finalizers, at)) > 0 || len(apivalidation.ValidateOwnerReferences(decoded.OwnerReferences, at)) > 0 {
		return errMetadata
	}
	return nil
}

// newMetadata returns metadata of the stored object with other values, "" for none. It has no resource version, as objects
// are stored.
func newMetadata(current members, changes map[string]string) string {
	all := slices.DeleteFunc(slices.Clone(current), func(m member) bool {
		_, replaced := changes[m.key]
		return replaced || m.key == "resourceVersion"
	})
	for key, value := range changes {
		if value != "" {
			all = append(all, member{key, value})
		}
	}
	return canonicaljson.StringOf(all.encode())
}

// encode returns the JSON of members in any order.
func (m members) encode() []byte {
	size := len("{}") + len("\n")
	for i := range m {
		size += len(`,"":`) + len(m[i].key) + len(m[i].value)
	}
	slices.SortFunc(m, member.compare)
	text := append(make([]byte, 0, size), '{')
	for i := range m {
		if i > 0 {
			text = append(text, ',')
		}
		text = append(append(append(text, '"'), m[i].key...), `":`...)
		text = append(text, m[i].value...)
	}
	return append(text, '}')
}
