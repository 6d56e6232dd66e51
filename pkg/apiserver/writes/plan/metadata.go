// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"encoding/json"
	"slices"
	"strconv"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
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

// checkMetadata returns an error unless a request has the metadata of the stored object. A write of the whole object may have
// other labels and annotations.
func checkMetadata(wanted, current members, w Write) error {
	for _, m := range wanted {
		if _, known := metadataFields[m.key]; !known {
			return errMetadata
		}
	}
	switch {
	case current.get("deletionTimestamp") != "":
		return errDeleting
	case wanted.get("resourceVersion") == "":
		return errMetadata
	case wanted.get("resourceVersion") != current.get("resourceVersion"):
		return ErrVersion
	}
	for name, field := range metadataFields {
		stored, sent := current.get(name), wanted.get(name)
		switch {
		case sent == stored || slices.Contains(field.empty, sent) && (field.given || stored == "") || sent == "" && field.given:
		case (name == "labels" || name == "annotations") && !w.Status && (sent == "" || slices.Contains(field.empty, sent) || stringMap.check([]byte(sent))):
		case name == "generation" && isInteger(sent):
		default:
			return errMetadata
		}
	}
	return nil
}

func isInteger(text string) bool {
	_, err := strconv.ParseInt(text, 10, 64)
	return err == nil
}

// checkLabels validates labels and annotations that were changed, "" for none.
func checkLabels(labels, annotations string) error {
	decodedLabels, err := stringMapOf(labels)
	if err != nil {
		return err
	}
	decodedAnnotations, err := stringMapOf(annotations)
	if err != nil {
		return err
	}
	at := field.NewPath("metadata")
	if len(metav1validation.ValidateLabels(decodedLabels, at)) > 0 || len(apivalidation.ValidateAnnotations(decodedAnnotations, at)) > 0 {
		return errMetadata
	}
	return nil
}

func stringMapOf(text string) (decoded map[string]string, err error) {
	if text != "" && json.Unmarshal([]byte(text), &decoded) != nil {
		return nil, errMetadata
	}
	return decoded, nil
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
	slices.SortFunc(m, func(a, b member) int { return canonicaljson.CompareKeys([]byte(a.key), []byte(b.key)) })
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
