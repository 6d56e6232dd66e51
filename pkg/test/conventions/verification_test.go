// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package conventions

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/annex-dev/annex/pkg/test/expect"
)

// switchedOff matches disabled verification of certificates in manifests, scripts and pages.
var switchedOff = regexp.MustCompile(`(?i)insecure-?skip-?(tls-?)?verify["']?\s*[:=]\s*["']?true|--insecure-skip-tls-verify(\s|$)|\bcurl\s([^|\n]*\s)?(-k|--insecure)\b`)

// verificationFields are the fields of Go types that disable verification. Tests may set the
// fields with the value true: annex corrects such APIServices.
var verificationFields = map[string]bool{"InsecureSkipVerify": false, "Insecure": false, "InsecureSkipTLSVerify": true}

// TestVerificationIsNeverSwitchedOff checks every file of the repository, other modules included.
func TestVerificationIsNeverSwitchedOff(t *testing.T) {
	t.Parallel()
	root := moduleRoot(t)
	checked := 0
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() {
			if path != root && (name == "bin" || name == "vendor" || strings.HasPrefix(name, ".") && name != ".ci") {
				return filepath.SkipDir
			}
			return nil
		}
		if !entry.Type().IsRegular() {
			return nil
		}
		relative, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		checked++
		if filepath.Ext(name) == ".go" {
			for _, found := range switchedOffInGo(t, relative, content) {
				t.Error(found)
			}
			return nil
		}
		if found := switchedOff.Find(content); found != nil {
			t.Errorf("%s switches verification off: %s", relative, found)
		}
		return nil
	})
	expect.NoError(t, err)
	if checked < 100 {
		t.Errorf("only %d files were checked", checked)
	}
}

// switchedOffInGo finds fields that are set to true.
func switchedOffInGo(t *testing.T, name string, content []byte) []string {
	t.Helper()
	positions := token.NewFileSet()
	syntax, err := parser.ParseFile(positions, name, content, parser.SkipObjectResolution)
	expect.NoError(t, err)
	var found []string
	check := func(field, value ast.Expr) {
		if selector, ok := field.(*ast.SelectorExpr); ok {
			field = selector.Sel
		}
		ident, ok := field.(*ast.Ident)
		if !ok {
			return
		}
		allowedInTests, known := verificationFields[ident.Name]
		if !known || allowedInTests && strings.HasSuffix(name, "_test.go") {
			return
		}
		if constant, ok := value.(*ast.Ident); ok && constant.Name == "true" {
			found = append(found, positions.Position(field.Pos()).String()+" switches verification off: "+ident.Name)
		}
	}
	ast.Inspect(syntax, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.KeyValueExpr:
			check(node.Key, node.Value)
		case *ast.AssignStmt:
			if len(node.Lhs) == len(node.Rhs) {
				for i := range node.Lhs {
					check(node.Lhs[i], node.Rhs[i])
				}
			}
		}
		return true
	})
	return found
}

func TestSwitchedOffIsFound(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"insecureSkipTLSVerify: true":                        true,
		`"insecureSkipTLSVerify":true`:                       true,
		"kubectl --insecure-skip-tls-verify get pods":        true,
		"kubectl --insecure-skip-tls-verify=true get pods":   true,
		"curl -k https://annex":                              true,
		"curl -s --insecure https://annex":                   true,
		"insecureSkipTLSVerify: false":                       false,
		"annex never sets insecureSkipTLSVerify":             false,
		"curl --cacert ca.crt --key admin.key https://annex": false,
	} {
		if got := switchedOff.MatchString(text); got != want {
			t.Errorf("%q: found %t, want %t", text, got, want)
		}
	}
	const source = `package p
var a = tls.Config{InsecureSkipVerify: true}
var b = rest.TLSClientConfig{Insecure: true, CAData: nil}
func f() { c.TLSClientConfig.InsecureSkipVerify = true; s.CABundle, s.InsecureSkipTLSVerify = nil, true; s.InsecureSkipTLSVerify = false }
`
	if found := switchedOffInGo(t, "p.go", []byte(source)); len(found) != 4 {
		t.Errorf("found %q, want 4", found)
	}
	if found := switchedOffInGo(t, "p_test.go", []byte(source)); len(found) != 3 {
		t.Errorf("found %q in a test, want 3", found)
	}
}
