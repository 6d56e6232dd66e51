// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package conventions

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/annex-dev/annex"

// goPackage is the output of `go list` for a package.
type goPackage struct {
	ImportPath, Dir, Doc, Name                   string
	GoFiles, TestGoFiles, XTestGoFiles, CgoFiles []string
	Imports, TestImports, XTestImports           []string
}

// path is the package's path below the module's root.
func (p goPackage) path() string {
	if p.ImportPath == module {
		return "."
	}
	return strings.TrimPrefix(p.ImportPath, module+"/")
}

func (p goPackage) files() []string {
	return slices.Concat(p.GoFiles, p.TestGoFiles, p.XTestGoFiles, p.CgoFiles)
}

// packages lists the packages of the module, including those with build tags.
var packages = sync.OnceValues(func() ([]goPackage, error) {
	output, err := exec.Command("go", "list", "-e", "-tags=e2e,cluster", "-json=ImportPath,Dir,Doc,Name,GoFiles,TestGoFiles,XTestGoFiles,CgoFiles,Imports,TestImports,XTestImports", module+"/...").Output()
	if err != nil {
		return nil, err
	}
	var found []goPackage
	for decoder := json.NewDecoder(bytes.NewReader(output)); ; {
		var p goPackage
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return found, nil
		} else if err != nil {
			return nil, err
		}
		found = append(found, p)
	}
})

func listPackages(t *testing.T) []goPackage {
	t.Helper()
	found, err := packages()
	if err != nil {
		t.Fatalf("list the packages of the module: %v", err)
	}
	if len(found) == 0 {
		t.Fatal("the module has no packages")
	}
	return found
}

func TestLayers(t *testing.T) {
	t.Parallel()
	for _, p := range listPackages(t) {
		rule, group, ok := ruleFor(p.path())
		if !ok {
			t.Errorf("%s has no rule: add one with its purpose and imports to rules_test.go", p.path())
			continue
		}
		for _, imported := range p.Imports {
			if !standard(imported) && !rule.allows(imported, group) {
				t.Errorf("%s may not import %s\n\tits duty: %s\n\tit may import %s", p.path(), imported, rule.duty, strings.Join(slices.Concat(rule.ours, rule.others), ", "))
			}
		}
	}
}

func TestEveryRuleIsUsed(t *testing.T) {
	t.Parallel()
	used := map[string]bool{}
	for _, p := range listPackages(t) {
		if rule, _, ok := ruleFor(p.path()); ok {
			used[rule.packages] = true
		}
	}
	for _, rule := range rules {
		if !used[rule.packages] {
			t.Errorf("no package matches the rule for %s: remove it", rule.packages)
		}
	}
}

func TestNeverImported(t *testing.T) {
	t.Parallel()
	for _, p := range listPackages(t) {
		for _, imported := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
			for pattern, why := range neverImported {
				if _, ok := match(pattern, imported); ok {
					t.Errorf("%s may not import %s: %s", p.path(), imported, why)
				}
			}
		}
	}
}

func TestOnlyTestsImportTestPackages(t *testing.T) {
	t.Parallel()
	for _, p := range listPackages(t) {
		if strings.HasPrefix(p.path(), "pkg/test/") || strings.HasPrefix(p.path(), "hack/") {
			continue
		}
		for _, imported := range p.Imports {
			if strings.HasPrefix(imported, module+"/pkg/test/") || imported == "testing" && !strings.HasSuffix(p.path(), "test") {
				t.Errorf("%s may not import %s outside its tests: it would become part of annex", p.path(), imported)
			}
		}
	}
}

func TestGoMod(t *testing.T) {
	t.Parallel()
	root := moduleRoot(t)
	for _, dir := range []string{".", "hack/tools/etcd", "hack/tools/kubectl", "hack/tools/lint", "hack/tools/protoc", "hack/tools/operator", "hack/crds"} {
		command := exec.Command("go", "mod", "edit", "-json")
		command.Dir = filepath.Join(root, dir)
		output, err := command.Output()
		if err != nil {
			t.Fatalf("read %s/go.mod: %v", dir, err)
		}
		var mod struct {
			Replace []struct{ Old struct{ Path string } }
			Require []struct{ Path, Version string }
		}
		if err := json.Unmarshal(output, &mod); err != nil {
			t.Fatalf("read %s/go.mod: %v", dir, err)
		}
		for _, replaced := range mod.Replace {
			t.Errorf("%s/go.mod replaces %s: modules that import this one ignore that", dir, replaced.Old.Path)
		}
		for _, required := range mod.Require {
			if required.Path == "k8s.io/kubernetes" {
				t.Errorf("%s/go.mod requires k8s.io/kubernetes: annex is built from the staging modules only", dir)
			}
		}
	}
}

// ruleFor returns the rule of a package, and the values of its pattern's braces.
func ruleFor(path string) (rule, map[string]string, bool) {
	for _, rule := range rules {
		if bindings, ok := match(rule.packages, path); ok {
			return rule, bindings, true
		}
	}
	return rule{}, nil, false
}

// allows reports whether the rule allows an import.
func (r rule) allows(imported string, bindings map[string]string) bool {
	patterns := r.others
	if imported == module || strings.HasPrefix(imported, module+"/") {
		patterns, imported = r.ours, strings.TrimPrefix(imported, module+"/")
	}
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		for name, value := range bindings {
			pattern = strings.ReplaceAll(pattern, name, value)
		}
		_, ok := match(pattern, imported)
		return ok
	})
}

var braces = regexp.MustCompile(`\{[a-z]+\}`)

// match matches a path with a pattern, and returns the values of its braces.
func match(pattern, path string) (map[string]string, bool) {
	pattern, below := strings.CutSuffix(pattern, "/...")
	names := braces.FindAllString(pattern, -1)
	literals := braces.Split(pattern, -1)
	for i := range literals {
		literals[i] = regexp.QuoteMeta(literals[i])
	}
	expression := "^" + strings.Join(literals, "([^/]+)")
	if below {
		expression += "(?:/.*)?"
	}
	found := regexp.MustCompile(expression + "$").FindStringSubmatch(path)
	if found == nil {
		return nil, false
	}
	bindings := map[string]string{}
	for i, name := range names {
		bindings[name] = found[i+1]
	}
	return bindings, true
}

// standard reports whether a package is in the standard library: only those paths have no dot
// in their first element.
func standard(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !strings.Contains(first, ".")
}

func moduleRoot(t *testing.T) string {
	t.Helper()
	output, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		t.Fatalf("find the module's root: %v", err)
	}
	return filepath.Dir(strings.TrimSpace(string(output)))
}
