// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"go.yaml.in/yaml/v3"
)

func TestTableOf(t *testing.T) {
	t.Parallel()
	got, err := tableOf([]byte("# The head.\n\nimage:\n  # The tag.\n  tag: \"\"\n# Of the group.\ngroup:\n  # First.\n  first: 1\n  second: [a]\nlabels: {}\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := "| Value | Default | |\n|---|---|---|\n" +
		"| `image.tag` | `\"\"` | The tag. |\n" +
		"| `group.first` | `1` | Of the group. First. |\n" +
		"| `group.second` | see values.yaml |  |\n" +
		"| `labels` | `{}` |  |\n"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestKubeVersion: the chart and the pages name the same oldest Kubernetes.
func TestKubeVersion(t *testing.T) {
	t.Parallel()
	found := map[string]bool{}
	for file, pattern := range map[string]string{
		"artifacts/chart/Chart.yaml": `(?m)^kubeVersion: ">=([\d.]+)\.0-0"$`,
		"docs/releases.md":           `Kubernetes \[([\d.]+) and newer\]`,
		"docs/install.md":            `Kubernetes ([\d.]+) or newer`,
	} {
		content, err := os.ReadFile(filepath.Join("..", "..", file))
		if err != nil {
			t.Fatal(err)
		}
		match := regexp.MustCompile(pattern).FindSubmatch(content)
		if match == nil {
			t.Fatalf("%s does not match %s", file, pattern)
		}
		found[string(match[1])] = true
	}
	if len(found) != 1 {
		t.Errorf("the oldest versions are %v", found)
	}
}

// TestSchema finds values that only the schema has; helm refuses those that only values.yaml has.
func TestSchema(t *testing.T) {
	t.Parallel()
	chart := filepath.Join("..", "..", "artifacts", "chart")
	content, err := os.ReadFile(filepath.Join(chart, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var values map[string]any
	if err := yaml.Unmarshal(content, &values); err != nil {
		t.Fatal(err)
	}
	if content, err = os.ReadFile(filepath.Join(chart, "values.schema.json")); err != nil {
		t.Fatal(err)
	}
	var schema property
	if err := json.Unmarshal(content, &schema); err != nil {
		t.Fatal(err)
	}
	delete(schema.Properties, "global") // helm adds it
	schema.compare(t, "", values)
}

type property struct {
	Properties map[string]property `json:"properties"`
}

func (p property) compare(t *testing.T, path string, values map[string]any) {
	t.Helper()
	for name, nested := range p.Properties {
		value, found := values[name]
		if !found {
			t.Errorf("values.yaml has no %s%s", path, name)
		}
		if object, ok := value.(map[string]any); ok {
			nested.compare(t, path+name+".", object)
		}
	}
}
