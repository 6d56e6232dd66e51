// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"

	"github.com/annex-dev/annex/pkg/test/expect"
)

// shifted is the revision offset of a restored resource.
const shifted = 1_000_000_000_000

// variant is a way in which annex builds storage.
type variant struct {
	cached bool
	offset int64
	// custom is set for custom resources, whose watch caches have encoded objects.
	custom bool
	// packed is set if the watch cache has packed objects.
	packed bool
}

var variants = []struct {
	name string
	variant
}{
	{"Raw", variant{}},
	{"Cached", variant{cached: true}},
	// Clients must not notice the offset of a restored resource.
	{"ShiftedRaw", variant{offset: shifted}},
	{"ShiftedCached", variant{cached: true, offset: shifted}},
	{"Encoded", variant{cached: true, offset: shifted, custom: true}},
	{"Packed", variant{cached: true, packed: true}},
}

// TestStorage has no subtest per variant, so that functions of all variants run at the same time: they mostly wait.
func TestStorage(t *testing.T) {
	for _, v := range variants {
		for _, name := range slices.Sorted(maps.Keys(suite)) {
			t.Run(v.name+"/"+name, func(t *testing.T) { suite[name].runOn(t, v.variant) })
		}
	}
}

func (e entry) runOn(t *testing.T, v variant) {
	if reason := e.excuse(v); reason != "" {
		t.Skip(reason)
	}
	// Functions that run alone finish before the parallel ones continue.
	if e.gateOff != "" {
		featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, e.gateOff, false)
	} else if !e.alone {
		t.Parallel()
	}
	e.run(t.Context(), t, newSubject(t, v, e.shape))
}

func (e entry) excuse(v variant) string {
	if v.custom && e.notCustom != "" {
		return e.notCustom
	}
	if v.cached {
		return e.notCached
	}
	return e.notRaw
}

// TestSuiteIsComplete fails when upstream has a function that is not in the suite.
func TestSuiteIsComplete(t *testing.T) {
	t.Parallel()
	upstream := upstreamFunctions(t)
	for _, name := range upstream {
		if _, ok := suite[name]; !ok {
			t.Errorf("upstream's %s is neither run nor excused: add it to the suite", name)
		}
	}
	for name := range suite {
		if !slices.Contains(upstream, name) {
			t.Errorf("upstream has no %s any more: remove it from the suite", name)
		}
	}
	if len(upstream) < 54 {
		t.Errorf("found only %d functions upstream: the search is wrong", len(upstream))
	}
}

// upstreamFunctions are the exported functions that run a test.
func upstreamFunctions(t *testing.T) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.Dir}}", "k8s.io/apiserver/pkg/storage/testing").Output()
	expect.NoError(t, err)
	paths, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(out)), "*.go"))
	expect.NoError(t, err)
	var names []string
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		expect.NoError(t, err)
		for _, declaration := range file.Decls {
			if f, ok := declaration.(*ast.FuncDecl); ok && runsTest(f) {
				names = append(names, f.Name.Name)
			}
		}
	}
	return names
}

func runsTest(f *ast.FuncDecl) bool {
	if f.Recv != nil || !strings.HasPrefix(f.Name.Name, "Run") {
		return false
	}
	return slices.ContainsFunc(f.Type.Params.List, func(param *ast.Field) bool {
		kind := param.Type
		if pointer, ok := kind.(*ast.StarExpr); ok {
			kind = pointer.X
		}
		selector, ok := kind.(*ast.SelectorExpr)
		if !ok {
			return false
		}
		pkg, ok := selector.X.(*ast.Ident)
		return ok && pkg.Name == "testing" && (selector.Sel.Name == "T" || selector.Sel.Name == "TB")
	})
}
