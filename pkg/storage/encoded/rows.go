// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package encoded

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

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
			if !slices.Contains(below, found[2]) {
				c.parts[found[1]] = append(below, found[2])
			}
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
		return row{metadata: metadata{object}, content: decoded.UnstructuredContent()}, nil
	}
	text, err := object.json()
	if err != nil {
		return row{}, err
	}
	content := make(map[string]any, len(c.parts))
	if err := c.read(text, object.metadata, content); err != nil {
		return row{}, fmt.Errorf("decode %s %s/%s for a table: %w", object.resource.Kind.Kind, object.GetNamespace(), object.GetName(), err)
	}
	return row{metadata: metadata{object}, content: content}, nil
}

// read decodes the parts of an object, and reads no more of it than it has to. known is a value of
// which the end is known.
func (c *Columns) read(text string, known span, content map[string]any) error {
	at := 1
	for left := len(c.parts); left > 0 && text[at] == '"'; {
		value := skipString(text, at) + 1
		name := text[at+1 : value-2]
		below, wanted := c.parts[name]
		at = value
		if wanted {
			left--
			read, end, err := readParts(text, value, below)
			if err != nil {
				return err
			}
			content[name], at = read, end
		}
		switch {
		case left == 0:
		case value == int(known.start):
			at = int(known.end)
		case at == value:
			at = skipValue(text, at)
		case below != nil && text[value] == '{':
			at = skipRest(text, at)
		}
		if text[at] == ',' {
			at++
		}
	}
	return nil
}

// readParts decodes some fields of an object, or any other value. It returns the offset up to
// which it has read, in the object or after the other value.
func readParts(text string, at int, names []string) (any, int, error) {
	if names == nil || text[at] != '{' {
		end := skipValue(text, at)
		value, err := decodeValue(text[at:end])
		return value, end, err
	}
	parts := make(map[string]any, len(names))
	at++
	for left := len(names); left > 0 && text[at] == '"'; {
		value := skipString(text, at) + 1
		name := text[at+1 : value-2]
		at = skipValue(text, value)
		if slices.Contains(names, name) {
			left--
			decoded, err := decodeValue(text[value:at])
			if err != nil {
				return nil, at, err
			}
			parts[name] = decoded
		}
		if text[at] == ',' {
			at++
		}
	}
	return parts, at, nil
}

// decodeValue decodes a value. Usual scalars need no decoder.
func decodeValue(text string) (value any, err error) {
	switch {
	case text[0] == '"' && strings.IndexByte(text, '\\') < 0:
		return text[1 : len(text)-1], nil
	case text == "true" || text == "false":
		return text == "true", nil
	case text[0] >= '1' && text[0] <= '9':
		if number, err := strconv.ParseInt(text, 10, 64); err == nil {
			return number, nil
		}
	}
	return value, json.Unmarshal([]byte(text), &value)
}

// row is an object of which the metadata and some other parts are decoded.
type row struct {
	metadata
	content map[string]any
	// meta is the decoded metadata, for which upstream asks several times.
	meta metav1.Object
}

var _ runtime.Unstructured = &row{}

// GetObjectMeta implements metav1.ObjectMetaAccessor.
func (r *row) GetObjectMeta() metav1.Object {
	if r.meta == nil {
		r.meta = r.object.objectMeta()
	}
	return r.meta
}

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
	return &row{metadata: r.metadata, content: runtime.DeepCopyJSON(r.content)}
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
