// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package crgen

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"
	"unicode/utf8"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// formats has a valid string for each format that apiextensions validates.
var formats = map[string]string{
	"bsonobjectid": "507f1f77bcf86cd799439011",
	"byte":         "YW5uZXg=",
	"cidr":         "192.0.2.0/24",
	"creditcard":   "4012888888881881",
	"date":         "2026-01-02",
	"date-time":    "2026-01-02T03:04:05Z",
	"duration":     "90s",
	"email":        "annex@example.com",
	"hexcolor":     "#00ff00",
	"hostname":     "annex.example.com",
	"ip":           "192.0.2.1",
	"ipv4":         "192.0.2.1",
	"ipv6":         "2001:db8::1",
	"isbn":         "0321751043",
	"isbn10":       "0321751043",
	"isbn13":       "978-0321751041",
	"mac":          "00:00:5e:00:53:01",
	"password":     "secret",
	"rgbcolor":     "rgb(0,255,0)",
	"ssn":          "111-22-3333",
	"uri":          "https://annex.example.com/path",
	"uuid":         "6ba7b810-9dad-41d1-80b4-00c04fd430c8",
	"uuid3":        "6fa459ea-ee8a-3ca4-894e-db77e160355e",
	"uuid4":        "f47ac10b-58cc-4372-a567-0e02b2c3d479",
	"uuid5":        "886313e1-3b8a-5372-9b90-0c9aee199e5d",
}

// words are tried for patterns from which no value can be built.
var words = []string{"sample", "example.com", "sample.example.com", "1", "10m", "90s", "/sample", "1Gi", "https://example.com/", "192.0.2.1", "Sample"}

// text returns a valid string of a schema. n makes the strings of a list differ if possible.
func text(schema *apiextensionsv1.JSONSchemaProps, n int) (string, error) {
	if schema.Pattern == "" {
		if value, ok := formats[schema.Format]; ok {
			return value, nil
		}
		return fit(schema, numbered("sample", n)), nil
	}
	pattern, err := regexp.Compile(schema.Pattern)
	if err != nil {
		return "", fmt.Errorf("pattern %q: %w", schema.Pattern, err)
	}
	candidates := []string{numbered("sample", n)}
	if value, ok := formats[schema.Format]; ok {
		candidates = append([]string{value}, candidates...)
	}
	candidates = append(candidates, words...)
	if built, err := matching(schema.Pattern); err == nil {
		candidates = append(candidates, built, fit(schema, built))
	}
	for _, candidate := range candidates {
		if pattern.MatchString(candidate) && fit(schema, candidate) == candidate {
			return candidate, nil
		}
	}
	return "", fmt.Errorf("no known string matches pattern %q", schema.Pattern)
}

func numbered(word string, n int) string {
	if n == 0 {
		return word
	}
	return fmt.Sprintf("%s-%d", word, n)
}

// fit lengthens or shortens value to the bounds of schema.
func fit(schema *apiextensionsv1.JSONSchemaProps, value string) string {
	length := int64(utf8.RuneCountInString(value))
	if schema.MinLength != nil && length < *schema.MinLength {
		return value + strings.Repeat("a", int(*schema.MinLength-length))
	}
	if schema.MaxLength != nil && length > *schema.MaxLength {
		return string([]rune(value)[:*schema.MaxLength])
	}
	return value
}

// matching returns the shortest match of a regular expression.
func matching(pattern string) (string, error) {
	tree, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return "", err
	}
	var built strings.Builder
	write(&built, tree.Simplify())
	return built.String(), nil
}

func write(built *strings.Builder, node *syntax.Regexp) {
	switch node.Op {
	case syntax.OpLiteral:
		built.WriteString(string(node.Rune))
	case syntax.OpCharClass:
		built.WriteRune(readable(node.Rune))
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		built.WriteByte('a')
	case syntax.OpCapture, syntax.OpPlus:
		write(built, node.Sub[0])
	case syntax.OpConcat:
		for _, part := range node.Sub {
			write(built, part)
		}
	case syntax.OpAlternate:
		write(built, node.Sub[0])
	case syntax.OpRepeat:
		for range node.Min {
			write(built, node.Sub[0])
		}
	}
	// The rest matches the empty string or nothing.
}

// readable returns a letter or a digit of a character class, if it has one.
func readable(ranges []rune) rune {
	for _, want := range "a1A" {
		for i := 0; i+1 < len(ranges); i += 2 {
			if ranges[i] <= want && want <= ranges[i+1] {
				return want
			}
		}
	}
	return ranges[0]
}
