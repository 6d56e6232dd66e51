// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package encoded

import (
	"fmt"
	"regexp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"
)

// Columns has the parts of objects that the columns of a table show.
type Columns struct {
	// parts has the names of the fields, and of fields below. Without names below a field is
	// needed whole.
	parts map[string][]string
	whole bool
}

// simplePath matches the first fields of a JSONPath, which ends or continues below them.
var simplePath = regexp.MustCompile(`^\.([A-Za-z][A-Za-z0-9_-]*)(?:\.([A-Za-z][A-Za-z0-9_-]*))?(?:[.\[]|$)`)

// NewColumns returns the Columns of JSONPaths. Objects are decoded whole for unusual paths.
func NewColumns(paths []string) *Columns {
	c := &Columns{parts: map[string][]string{}}
	for _, path := range paths {
		found := simplePath.FindStringSubmatch(path)
		if found == nil {
			return &Columns{whole: true}
		}
		below, known := c.parts[found[1]]
		switch {
		case found[2] == "" || known && below == nil:
			c.parts[found[1]] = nil
		default:
			c.parts[found[1]] = append(below, found[2])
		}
	}
	return c
}

// Rows is a Projection: only the metadata and the parts for the columns are decoded.
func (c *Columns) Rows(obj runtime.Object) (runtime.Object, error) {
	switch typed := obj.(type) {
	case *Object:
		decoded, err := c.row(typed)
		return &decoded, err
	case *List:
		rows := &rowList{TypeMeta: typed.TypeMeta, ListMeta: typed.ListMeta, Items: make([]row, len(typed.Items))}
		for i := range typed.Items {
			var err error
			if rows.Items[i], err = c.row(&typed.Items[i]); err != nil {
				return nil, err
			}
		}
		return rows, nil
	}
	return obj, nil
}

func (c *Columns) row(object *Object) (row, error) {
	if c.whole || object.record == nil || object.decoded != nil {
		decoded, err := object.Decode()
		if err != nil {
			return row{}, err
		}
		return row{metadata{object}, decoded.UnstructuredContent()}, nil
	}
	text, err := object.json()
	if err != nil {
		return row{}, err
	}
	content := map[string]any{}
	for name, below := range c.parts {
		field, found := member(text, 0, name)
		if !found {
			continue
		}
		value, err := decodeParts(text, field, below)
		if err != nil {
			return row{}, fmt.Errorf("decode %s of %s %s/%s for a table: %w", name, object.resource.Kind.Kind, object.GetNamespace(), object.GetName(), err)
		}
		content[name] = value
	}
	return row{metadata{object}, content}, nil
}

// decodeParts decodes some fields of an object, or any other value.
func decodeParts(text string, field span, names []string) (value any, err error) {
	if names == nil || text[field.start] != '{' {
		return value, json.Unmarshal([]byte(text[field.start:field.end]), &value)
	}
	parts := map[string]any{}
	for _, name := range names {
		part, found := member(text, int(field.start), name)
		if !found {
			continue
		}
		if parts[name], err = decodeParts(text, part, nil); err != nil {
			return nil, err
		}
	}
	return parts, nil
}

// row is an object of which the metadata and some other parts are decoded.
type row struct {
	metadata
	content map[string]any
}

var _ runtime.Unstructured = &row{}

// UnstructuredContent implements runtime.Unstructured.
func (r *row) UnstructuredContent() map[string]any { return r.content }

// SetUnstructuredContent implements runtime.Unstructured.
func (r *row) SetUnstructuredContent(content map[string]any) { r.content = content }

// NewEmptyInstance implements runtime.Unstructured.
func (r *row) NewEmptyInstance() runtime.Unstructured { return &unstructured.Unstructured{} }

// IsList implements runtime.Unstructured.
func (r *row) IsList() bool { return false }

// EachListItem implements runtime.Unstructured.
func (r *row) EachListItem(func(runtime.Object) error) error { return nil }

// EachListItemWithAlloc implements runtime.Unstructured.
func (r *row) EachListItemWithAlloc(func(runtime.Object) error) error { return nil }

// DeepCopyObject implements runtime.Object.
func (r *row) DeepCopyObject() runtime.Object {
	return &row{r.metadata, runtime.DeepCopyJSON(r.content)}
}

type rowList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []row `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (l *rowList) DeepCopyObject() runtime.Object {
	copied := &rowList{TypeMeta: l.TypeMeta, Items: append([]row(nil), l.Items...)}
	l.DeepCopyInto(&copied.ListMeta)
	return copied
}
