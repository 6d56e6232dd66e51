// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/annex-dev/annex/pkg/test/expect"
)

const examplesDir = "../../../artifacts/examples"

// widgetCRD is the example CRD, which other tests use too.
const widgetCRD = examplesDir + "/30-customresourcedefinition.yaml"

// TestExamples applies the examples in the order of their numbers, twice, and fails if a
// compiled-in kind has none.
func TestExamples(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	files, err := filepath.Glob(examplesDir + "/*.yaml")
	expect.NoError(t, err)
	kinds, all := map[string]bool{}, []string{"apply"}
	for _, file := range files {
		content, err := os.ReadFile(file)
		expect.NoError(t, err)
		var object struct{ Kind string }
		expect.NoError(t, yaml.Unmarshal(content, &object), "%s", file)
		kind := strings.ToLower(object.Kind)
		if !strings.HasSuffix(file, "-"+kind+".yaml") {
			t.Errorf("%s holds a %s, which its name must contain", file, object.Kind)
		}
		kinds[kind] = true
		all = append(all, "-f", file)
	}
	defined := slices.Index(all, widgetCRD) + 1
	for _, args := range [][]string{all[:defined], append([]string{"apply"}, all[defined:]...)} {
		created := s.kubectl.run(t, args...)
		expect.Equal(t, len(args)/2, strings.Count(created, " created\n"), "%s", created)
		s.kubectl.run(t, "wait", "--for=condition=Established", "-f", widgetCRD)
	}
	unchanged := s.kubectl.run(t, all...)
	expect.Equal(t, len(files), strings.Count(unchanged, " unchanged\n"), "%s", unchanged)
	// Reviews are not stored, so they cannot be applied.
	for _, row := range strings.Fields(s.kubectl.run(t, "api-resources", "--verbs=get", "--no-headers", "-o", "name")) {
		plural, group, _ := strings.Cut(row, ".")
		kind := strings.TrimSuffix(plural, "s")
		if stem, ok := strings.CutSuffix(plural, "ies"); ok {
			kind = stem + "y"
		}
		if group == "apiregistration.k8s.io" {
			continue // created by annex only
		}
		if !kinds[kind] {
			t.Errorf("there is no example of %s", row)
		}
	}
	expect.Contains(t, s.kubectl.run(t, "get", "widgets", "-n", "annex-examples"), "first", "green")
	expect.Contains(t, s.kubectl.run(t, "get", "hostedresource", "widgets.example.com", "-o", "jsonpath={.spec.priority} {.spec.storeName}"), "10 default")
	s.kubectl.run(t, "delete", "namespace", "annex-examples")
}
