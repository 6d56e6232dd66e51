// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package retention

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"
)

// object has the fields of an object that rules read.
type object struct {
	metav1.ObjectMeta
	// fields are the top-level fields that rules read.
	fields map[string]any
}

// page is a page of a list. Fields are decoded only if they are read.
type page struct {
	Metadata metav1.ListMeta              `json:"metadata"`
	Items    []map[string]json.RawMessage `json:"items"`
}

// decodePage decodes a page of a list with the given top-level fields of its objects.
func decodePage(data []byte, roots sets.Set[string]) (objects []*object, next string, err error) {
	var decoded page
	if err := json.Unmarshal(data, &decoded); err != nil {
		return nil, "", fmt.Errorf("decode a list: %w", err)
	}
	for _, item := range decoded.Items {
		o, err := decodeObject(item, roots)
		if err != nil {
			return nil, "", err
		}
		objects = append(objects, o)
	}
	return objects, decoded.Metadata.Continue, nil
}

func decodeObject(item map[string]json.RawMessage, roots sets.Set[string]) (*object, error) {
	o := &object{fields: map[string]any{}}
	if err := json.Unmarshal(item["metadata"], &o.ObjectMeta); err != nil {
		return nil, fmt.Errorf("decode the metadata of an object: %w", err)
	}
	for root := range roots {
		encoded, found := item[root]
		if !found {
			continue
		}
		var value any
		if err := json.Unmarshal(encoded, &value); err != nil {
			return nil, fmt.Errorf("decode %s of %s/%s: %w", root, o.Namespace, o.Name, err)
		}
		o.fields[root] = value
	}
	return o, nil
}

// splitPath returns the fields of a path such as .status.phase.
func splitPath(path string) []string { return strings.Split(strings.TrimPrefix(path, "."), ".") }

// at returns the value of a field, or nil.
func (o *object) at(path []string) any {
	value, _, _ := unstructured.NestedFieldNoCopy(o.fields, path...)
	return value
}

// toTime parses a time in RFC 3339. Fields that were never set have times before 1970.
func toTime(value any) (t time.Time, usable bool) {
	text, ok := value.(string)
	if !ok {
		return time.Time{}, false
	}
	t, err := time.Parse(time.RFC3339, text)
	return t, err == nil && t.Unix() > 0
}

// managedSince returns the last change by a client that manages a field, which is not before the
// change of the field itself. It returns false if no client manages it.
func (o *object) managedSince(path []string) (latest time.Time, known bool) {
	for _, entry := range o.ManagedFields {
		if entry.Time == nil || entry.FieldsV1 == nil || !manages(entry.FieldsV1.GetRawBytes(), path) {
			continue
		}
		if !known || entry.Time.After(latest) {
			latest, known = entry.Time.Time, true
		}
	}
	return latest, known
}

// manages reports whether a set of fields has a field.
func manages(fields []byte, path []string) bool {
	for _, name := range path {
		var set map[string]json.RawMessage
		if json.Unmarshal(fields, &set) != nil {
			return false
		}
		child, found := set["f:"+name]
		if !found {
			return false
		}
		fields = child
	}
	return true
}
