// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package configfile

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// document is the content of a file with its lines. If it cannot be parsed, it has no nodes
// and no lines.
type document struct {
	root *yaml.Node
}

func parse(data []byte) document {
	var root yaml.Node
	if err := yaml.Unmarshal(data, &root); err != nil || len(root.Content) == 0 {
		return document{}
	}
	return document{root: root.Content[0]}
}

// step is one element of a field's path: `.name`, `[0]` or `[key]`.
var step = regexp.MustCompile(`[^.\[\]]+|\[[^\]]*\]`)

// line returns the line of a field, or of its nearest existing parent, or 0.
func (d document) line(path string) int {
	if d.root == nil {
		return 0
	}
	line, node := d.root.Line, d.root
	for _, name := range step.FindAllString(path, -1) {
		key, value := child(node, strings.Trim(name, "[]"))
		if value == nil {
			return line
		}
		line, node = key.Line, value
	}
	return line
}

// value returns the text of a field at the top of the document.
func (d document) value(name string) string {
	if _, value := child(d.root, name); value != nil {
		return value.Value
	}
	return ""
}

// child returns the child of a node with a name or index, and its first line.
// It ignores case: upstream's validation uses the names of internal types, which are not
// always spelled as in the file.
func child(node *yaml.Node, name string) (key, value *yaml.Node) {
	node = resolve(node)
	if node == nil {
		return nil, nil
	}
	if node.Kind == yaml.SequenceNode {
		if index, err := strconv.Atoi(name); err == nil && index >= 0 && index < len(node.Content) {
			return node.Content[index], node.Content[index]
		}
		return nil, nil
	}
	if node.Kind != yaml.MappingNode {
		return nil, nil
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		switch {
		case node.Content[i].Value == name:
			return node.Content[i], node.Content[i+1]
		case value == nil && strings.EqualFold(node.Content[i].Value, name):
			key, value = node.Content[i], node.Content[i+1]
		}
	}
	return key, value
}

// resolve follows an alias.
func resolve(node *yaml.Node) *yaml.Node {
	if node != nil && node.Kind == yaml.AliasNode {
		return node.Alias
	}
	return node
}

// holding returns the field with a value, if only one has it.
func (d document) holding(value string) (path string, line int) {
	count := 0
	walk(d.root, "", func(at string, node *yaml.Node) {
		if node.Kind == yaml.ScalarNode && node.Value == value {
			path, line, count = at, node.Line, count+1
		}
	})
	if count != 1 {
		return "", 0
	}
	return path, line
}

var indices = regexp.MustCompile(`\[\d+\]`)

// mistyped returns the first field whose value has a JSON type, at a path without indices,
// which JSON's decoder leaves out.
func (d document) mistyped(path, jsonType string) (found string, line int) {
	walk(d.root, "", func(at string, node *yaml.Node) {
		if line == 0 && strings.EqualFold(indices.ReplaceAllString(at, ""), path) && typeOf(node) == jsonType {
			found, line = at, node.Line
		}
	})
	if line == 0 {
		return path, d.line(path)
	}
	return found, line
}

// typeOf returns the name of a node's type in errors of JSON's decoder.
func typeOf(node *yaml.Node) string {
	switch node.Kind {
	case yaml.SequenceNode:
		return "array"
	case yaml.MappingNode:
		return "object"
	}
	switch node.ShortTag() {
	case "!!int", "!!float":
		return "number"
	case "!!bool":
		return "bool"
	default:
		return "string"
	}
}

// walk visits every value with its path.
func walk(node *yaml.Node, path string, visit func(path string, node *yaml.Node)) {
	if node == nil {
		return
	}
	if path != "" {
		visit(path, node)
	}
	switch node.Kind {
	case yaml.SequenceNode:
		for i, item := range node.Content {
			walk(item, fmt.Sprintf("%s[%d]", path, i), visit)
		}
	case yaml.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			walk(node.Content[i+1], strings.TrimPrefix(path+"."+node.Content[i].Value, "."), visit)
		}
	}
}
