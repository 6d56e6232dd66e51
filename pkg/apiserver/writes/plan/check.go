// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"bytes"
	"math"
	"strconv"
	"unicode/utf8"

	"k8s.io/kube-openapi/pkg/validation/strfmt"

	"github.com/annex-dev/annex/pkg/storage/canonicaljson"
)

// checker reads canonical JSON beside a rule. It reports false unless upstream accepts it and leaves it as it is.
type checker struct{ canonicaljson.Scanner }

// check checks a value.
func (r *rule) check(text []byte) bool {
	c := &checker{canonicaljson.Scanner{Text: text}}
	return c.value(r) && c.At == len(c.Text)
}

func (c *checker) value(r *rule) bool {
	if c.At >= len(c.Text) {
		return false
	}
	begin := c.At
	var ok bool
	switch c.Text[c.At] {
	case 'n':
		return r.free && c.Literal("null")
	case '{':
		ok = r.kinds&objects != 0 && c.object(r)
	case '[':
		ok = r.kinds&arrays != 0 && c.array(r)
	case '"':
		ok = r.kinds&texts != 0 && c.text(r)
	case 't', 'f':
		ok = r.kinds&booleans != 0 && (c.Literal("true") || c.Literal("false"))
	default:
		ok = c.number(r)
	}
	return ok && (r.enum == nil || r.enum[string(c.Text[begin:c.At])])
}

func (c *checker) object(r *rule) bool {
	fields, required, defaulted := 0, 0, 0
	var names []string
	return c.Object(func(key []byte) bool {
		fields++
		if r.presence != nil {
			names = append(names, string(canonicaljson.Unescape(nil, key)))
		}
		if r.free {
			return c.value(anything)
		}
		p, known := r.properties[string(key)]
		if bytes.IndexByte(key, '\\') >= 0 {
			p, known = r.properties[string(canonicaljson.Unescape(nil, key))]
		}
		if !known {
			return r.additional != nil && c.value(r.additional)
		}
		required += count(p.required)
		defaulted += count(p.defaulted)
		return c.value(p.rule)
	}) && required == r.required && defaulted == len(r.defaults) && fields >= r.minProperties && (r.free || fields <= r.maxProperties) &&
		(r.presence == nil || r.presence.holds(names))
}

func (c *checker) array(r *rule) bool {
	if r.free {
		return c.Array(func() bool { return c.value(anything) })
	}
	items := 0
	var seen map[string]bool
	return c.Array(func() bool {
		items++
		begin := c.At
		if !c.value(r.items) {
			return false
		}
		if r.list == atomicList {
			return true
		}
		identity, ok := r.identity(string(c.Text[begin:c.At]))
		if !ok || seen[identity] {
			return false
		}
		if seen == nil {
			seen = map[string]bool{}
		}
		seen[identity] = true
		return true
	}) && items >= r.minItems && items <= r.maxItems
}

func (c *checker) text(r *rule) bool {
	text, ok := c.String()
	if !ok || r.free {
		return ok
	}
	if r.minLength == 0 && r.maxLength == math.MaxInt && r.pattern == nil && r.format == "" {
		return true
	}
	decoded := string(canonicaljson.Unescape(nil, text))
	length := utf8.RuneCountInString(decoded)
	return length >= r.minLength && length <= r.maxLength &&
		(r.pattern == nil || r.pattern.MatchString(decoded)) && (r.format == "" || strfmt.Default.Validates(r.format, decoded))
}

// maxExact bounds the integers that are compared with limits: a float64 has larger ones only approximately.
const maxExact = 1 << 53

func (c *checker) number(r *rule) bool {
	begin := c.At
	_, isInteger := c.Integer()
	if isInteger && c.At < len(c.Text) && (c.Text[c.At] == '.' || c.Text[c.At] == 'e') {
		isInteger = false
	}
	c.At = begin
	if !c.Number() {
		return false
	}
	wanted := numbers
	if isInteger {
		wanted = integers
	}
	switch {
	case r.free:
		return true
	case r.kinds&wanted == 0:
		return false
	case r.minimum == nil && r.maximum == nil && !r.int32:
		return true
	}
	value, err := strconv.ParseFloat(string(c.Text[begin:c.At]), 64)
	return err == nil && math.Abs(value) < maxExact && r.inRange(value)
}

func (r *rule) inRange(value float64) bool {
	switch {
	case r.int32 && (value < math.MinInt32 || value > math.MaxInt32):
	case r.minimum != nil && (value < *r.minimum || r.exclusiveMinimum && value == *r.minimum):
	case r.maximum != nil && (value > *r.maximum || r.exclusiveMaximum && value == *r.maximum):
	default:
		return true
	}
	return false
}
