// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/json"

	"github.com/annex-dev/annex/pkg/storage/canonicaljson"
)

// Parts are the parts of objects that some JSONPaths read.
type Parts struct {
	// parts has the names of the fields, and of fields below. Without names below a field is
	// needed whole.
	parts map[string][]string
	whole bool
}

// simplePath matches the first fields of a JSONPath, which ends or continues below them.
var simplePath = regexp.MustCompile(`^\.([A-Za-z][A-Za-z0-9_-]*)(?:\.([A-Za-z][A-Za-z0-9_-]*))?(?:[.\[]|$)`)

// NewParts returns what JSONPaths read. Objects are decoded whole for unusual paths.
func NewParts(paths []string) *Parts {
	p := &Parts{parts: map[string][]string{}}
	for _, path := range paths {
		found := simplePath.FindStringSubmatch(path)
		if found == nil {
			return &Parts{whole: true}
		}
		below, known := p.parts[found[1]]
		switch {
		case found[2] == "" || known && below == nil:
			p.parts[found[1]] = nil
		default:
			if !slices.Contains(below, found[2]) {
				p.parts[found[1]] = append(below, found[2])
			}
		}
	}
	return p
}

// Decode returns the parts of an object.
func (p *Parts) Decode(object *Object) (map[string]any, error) {
	if p.whole || object.record == nil {
		decoded, err := object.Decode()
		if err != nil {
			return nil, err
		}
		return decoded.Object, nil
	}
	text, err := object.json()
	if err != nil {
		return nil, err
	}
	content := make(map[string]any, len(p.parts))
	if err := p.read(text, object.metadata, content); err != nil {
		return nil, fmt.Errorf("decode parts of %s %s/%s: %w", object.resource.Kind.Kind, object.GetNamespace(), object.GetName(), err)
	}
	return content, nil
}

// read decodes the parts of an object, and reads no more of it than it has to. The end of the value known is known.
func (p *Parts) read(text string, known canonicaljson.Span, content map[string]any) error {
	r := &canonicaljson.Reader{Text: text}
	left := len(p.parts)
	for more := r.Next('{'); more && left > 0; more = r.Next(',') {
		name, ok := r.Name()
		if !ok {
			return nil // an empty object
		}
		begin := r.At
		below, wanted := p.parts[name]
		if wanted {
			left--
			var err error
			if content[name], err = decodeParts(r, below); err != nil {
				return err
			}
		}
		switch {
		case left == 0:
		case begin == int(known.Start):
			r.At = int(known.End)
		case r.At == begin:
			r.Skip()
		case below != nil && text[begin] == '{':
			r.At = canonicaljson.SkipRest(text, r.At)
		}
	}
	return nil
}

// decodeParts decodes some fields of an object, and reads up to the last of them. Of any other value, and without names, it
// decodes all.
func decodeParts(r *canonicaljson.Reader, names []string) (any, error) {
	if names == nil || r.Text[r.At] != '{' {
		return decodeValue(r.Value())
	}
	parts := make(map[string]any, len(names))
	left := len(names)
	for more := r.Next('{'); more && left > 0; more = r.Next(',') {
		name, ok := r.Name()
		if !ok {
			break // an empty object
		}
		value := r.Value()
		if !slices.Contains(names, name) {
			continue
		}
		left--
		decoded, err := decodeValue(value)
		if err != nil {
			return nil, err
		}
		parts[name] = decoded
	}
	return parts, nil
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
