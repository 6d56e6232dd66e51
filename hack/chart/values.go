// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"
)

// valuesMarker precedes the table of values in README.md, which ends the file.
const valuesMarker = "<!-- `make generate` writes what follows from values.yaml. -->\n"

// document writes the table of values to the README.md of a chart.
func document(chart string) error {
	values, err := os.ReadFile(filepath.Join(chart, "values.yaml"))
	if err != nil {
		return fmt.Errorf("read the values: %w", err)
	}
	table, err := tableOf(values)
	if err != nil {
		return fmt.Errorf("read values.yaml: %w", err)
	}
	path := filepath.Join(chart, "README.md")
	readme, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read the chart's README: %w", err)
	}
	text, _, found := strings.Cut(string(readme), valuesMarker)
	if !found {
		return fmt.Errorf("%s has no line %q", path, strings.TrimSpace(valuesMarker))
	}
	if err := os.WriteFile(path, []byte(text+valuesMarker+"\n"+table), 0o644); err != nil {
		return fmt.Errorf("write the chart's README: %w", err)
	}
	return nil
}

// tableOf returns a row for each value that is not a map with values of its own.
func tableOf(values []byte) (string, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(values, &document); err != nil {
		return "", err
	}
	var out strings.Builder
	out.WriteString("| Value | Default | |\n|---|---|---|\n")
	err := writeRows(&out, document.Content[0], "", "")
	return out.String(), err
}

func writeRows(out *strings.Builder, values *yaml.Node, prefix, inherited string) error {
	for i := 0; i < len(values.Content); i += 2 {
		key, value := values.Content[i], values.Content[i+1]
		name, about := prefix+key.Value, strings.TrimSpace(inherited+" "+comment(key))
		if value.Kind == yaml.MappingNode && len(value.Content) > 0 {
			if err := writeRows(out, value, name+".", about); err != nil {
				return err
			}
			continue
		}
		var plain any
		if err := value.Decode(&plain); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		encoded, err := json.Marshal(plain)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		shown := "`" + string(encoded) + "`"
		if value.Kind == yaml.SequenceNode && len(value.Content) > 0 {
			shown = "see values.yaml"
		}
		fmt.Fprintf(out, "| `%s` | %s | %s |\n", name, shown, about)
		inherited = "" // it is said once
	}
	return nil
}

// comment returns the comment above a key, without those of the file's head.
func comment(key *yaml.Node) string {
	paragraphs := strings.Split(key.HeadComment, "\n\n")
	var words []string
	for line := range strings.SplitSeq(paragraphs[len(paragraphs)-1], "\n") {
		words = append(words, strings.TrimSpace(strings.TrimPrefix(line, "#")))
	}
	return strings.Join(words, " ")
}
