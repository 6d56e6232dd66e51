// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package configfile

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Error is one thing that is wrong with a configuration file.
type Error struct {
	// File is the path of the file.
	File string
	// Line is counted from 1; it is 0 if the error has no line.
	Line int
	// Field is the path of the field, or empty.
	Field string
	// What is the description.
	What string
}

// Error returns `FILE:LINE: FIELD: what`, without unknown parts.
func (e *Error) Error() string {
	text := e.File
	if e.Line > 0 {
		text += ":" + strconv.Itoa(e.Line)
	}
	if e.Field != "" {
		text += ": " + e.Field
	}
	return text + ": " + strings.Join(lines.Split(strings.TrimSpace(e.What), -1), " ")
}

// lines are joined: compilers of expressions draw their errors on several.
var lines = regexp.MustCompile(`\s*\n[\s|.]*`)

// list is all errors in one line, as annex prints the reason why it does not start.
type list []error

// Error joins all.
func (l list) Error() string {
	texts := make([]string, 0, len(l))
	for _, err := range l {
		texts = append(texts, err.Error())
	}
	return strings.Join(texts, "; ")
}

// Unwrap returns each by itself.
func (l list) Unwrap() []error { return l }

// Explain converts an error of decoding or validating the file at path to errors that name
// file, line and field. data is the file's content, YAML or JSON, which may have secrets:
// errors contain only values that upstream's validation quotes.
func Explain(path string, data []byte, err error) error {
	if err == nil {
		return nil
	}
	e := &explainer{document: parse(data), data: data}
	found, known := e.explain(err)
	if !known {
		found = []*Error{{What: err.Error()}}
	}
	explained := make(list, 0, len(found))
	for _, one := range found {
		one.File = path
		explained = append(explained, one)
	}
	return explained
}

type explainer struct {
	document document
	data     []byte
}

// explain unwraps err until it finds an error with a location. Outer errors only describe
// the operation.
func (e *explainer) explain(err error) (found []*Error, known bool) {
	if invalid, ok := err.(*field.Error); ok { //nolint:errorlint // errors.As would find only one of several
		return []*Error{e.at(invalid.Field, invalid.ErrorBody())}, true
	}
	if strict, ok := runtime.AsStrictDecodingError(err); ok {
		return e.explainAll(strict.Errors())
	}
	switch wrapper := err.(type) { //nolint:errorlint // this unwraps
	case interface{ Errors() []error }:
		return e.explainAll(wrapper.Errors())
	case interface{ Unwrap() []error }:
		return e.explainAll(wrapper.Unwrap())
	case interface{ Unwrap() error }:
		if inner := wrapper.Unwrap(); inner != nil {
			if found, known := e.explain(inner); known {
				return found, true
			}
		}
	}
	return e.explainText(err.Error())
}

// explainAll explains a list. known is true if any error has a location.
func (e *explainer) explainAll(errs []error) (found []*Error, known bool) {
	for _, err := range errs {
		some, ok := e.explain(err)
		if !ok {
			some = []*Error{{What: err.Error()}}
		}
		found, known = append(found, some...), known || ok
	}
	return found, known
}

// at returns the error of a field, with its line.
func (e *explainer) at(path, what string) *Error {
	return &Error{Line: e.document.line(path), Field: path, What: what}
}

// Errors of decoders, which have no types.
var (
	yamlFirst       = regexp.MustCompile(`yaml: (.*)`) // it names no line if that is the first
	yamlLine        = regexp.MustCompile(`(?:yaml: |\n\s*)line (\d+): (.*)`)
	strictField     = regexp.MustCompile(`(?:unknown|duplicate) field "([^"]+)"`)
	wrongType       = regexp.MustCompile(`cannot unmarshal (\w+)[^\n]* into Go struct field \w+\.(\S+) of type (\S+)`)
	noMapping       = regexp.MustCompile(`cannot unmarshal \w+ into Go value of type struct \{ APIVersion`)
	unknownKind     = regexp.MustCompile(`no kind "([^"]*)" is registered for (?:the internal )?version "?([^" ]*)"?`)
	missingTypeMeta = regexp.MustCompile(`Object '(Kind|apiVersion)' is missing in`)
	wrongVersion    = regexp.MustCompile(`unexpected GroupVersion string: (\S*)`)
	quotedValue     = regexp.MustCompile(`"([^"]+)"`)
)

// explainText finds the location in the text of an error.
func (e *explainer) explainText(text string) (found []*Error, known bool) {
	one := func(line int, path, what string) ([]*Error, bool) {
		return []*Error{{Line: line, Field: path, What: what}}, true
	}
	if missing := missingTypeMeta.FindStringSubmatch(text); missing != nil {
		return one(1, strings.ToLower(missing[1][:1])+missing[1][1:], "is missing")
	}
	if noMapping.MatchString(text) {
		return one(1, "", "must be a mapping with apiVersion and kind")
	}
	if version := wrongVersion.FindStringSubmatch(text); version != nil {
		return one(e.document.line("apiVersion"), "apiVersion", fmt.Sprintf("%q is not a version of an API group", version[1]))
	}
	if kind := unknownKind.FindStringSubmatch(text); kind != nil {
		return one(e.document.line("kind"), "kind", fmt.Sprintf("there is no kind %q of apiVersion %q that could be used here", kind[1], e.document.value("apiVersion")))
	}
	if mistyped := wrongType.FindStringSubmatch(text); mistyped != nil {
		path, line := e.document.mistyped(mistyped[2], mistyped[1])
		return one(line, path, fmt.Sprintf("must be %s, not %s", describeType(mistyped[3]), withArticle(mistyped[1])))
	}
	if lines := yamlLine.FindAllStringSubmatch(text, -1); lines != nil {
		for _, line := range lines {
			number, _ := strconv.Atoi(line[1]) // the expression matches digits only
			found = append(found, &Error{Line: number, What: line[2]})
		}
		return found, true
	}
	if first := yamlFirst.FindStringSubmatch(text); first != nil {
		return one(1, "", first[1])
	}
	if strict := strictField.FindStringSubmatch(text); strict != nil {
		what, _, _ := strings.Cut(strict[0], " ")
		return one(e.document.line(strict[1]), strict[1], what+" field")
	}
	if line, what := jsonSyntax(e.data); line > 0 {
		return one(line, "", what)
	}
	for _, quoted := range quotedValue.FindAllStringSubmatch(text, -1) {
		if path, line := e.document.holding(quoted[1]); line > 0 {
			return one(line, path, text)
		}
	}
	return nil, false
}

// jsonSyntax finds the line of a syntax error in JSON, which upstream's decoders lose.
func jsonSyntax(data []byte) (line int, what string) {
	if !strings.HasPrefix(strings.TrimSpace(string(data)), "{") {
		return 0, ""
	}
	var anything any
	var syntax *json.SyntaxError
	if err := json.Unmarshal(data, &anything); !errors.As(err, &syntax) {
		return 0, ""
	}
	return 1 + strings.Count(string(data[:syntax.Offset]), "\n"), syntax.Error()
}

// describeType describes the values of a Go type in a file.
func describeType(goType string) string {
	switch kind := strings.TrimLeft(goType, "*"); {
	case strings.HasPrefix(kind, "[]"):
		return "a list"
	case strings.HasPrefix(kind, "map["):
		return "a mapping"
	case kind == "bool":
		return "true or false"
	case strings.HasPrefix(kind, "int"), strings.HasPrefix(kind, "uint"), strings.HasPrefix(kind, "float"):
		return "a number"
	case kind == "string":
		return "a string"
	case strings.HasSuffix(kind, "Level"), strings.HasSuffix(kind, "Type"), strings.HasSuffix(kind, "Duration"):
		return "a string"
	default:
		return "a mapping"
	}
}

// withArticle describes a JSON type in the words of describeType.
func withArticle(jsonType string) string {
	switch jsonType {
	case "array":
		return "a list"
	case "object":
		return "a mapping"
	case "bool":
		return "true or false"
	default:
		return "a " + jsonType
	}
}
