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
func (p *Parts) read(text string, known span, content map[string]any) error {
	r := &reader{text: text}
	left := len(p.parts)
	for more := r.next('{'); more && left > 0; more = r.next(',') {
		name, ok := r.name()
		if !ok {
			return nil // an empty object
		}
		begin := r.at
		below, wanted := p.parts[name]
		if wanted {
			left--
			var err error
			if content[name], err = r.parts(below); err != nil {
				return err
			}
		}
		switch {
		case left == 0:
		case begin == int(known.start):
			r.at = int(known.end)
		case r.at == begin:
			r.skip()
		case below != nil && text[begin] == '{':
			r.at = skipRest(text, r.at)
		}
	}
	return nil
}

// parts decodes some fields of an object, and reads up to the last of them. Of any other value, and without names, it
// decodes all.
func (r *reader) parts(names []string) (any, error) {
	if names == nil || r.text[r.at] != '{' {
		return decodeValue(r.value())
	}
	parts := make(map[string]any, len(names))
	left := len(names)
	for more := r.next('{'); more && left > 0; more = r.next(',') {
		name, ok := r.name()
		if !ok {
			break // an empty object
		}
		value := r.value()
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
