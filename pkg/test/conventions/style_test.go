// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package conventions

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/annex-dev/annex/pkg/test/expect"
)

// Limits of files and functions. Split what exceeds them. Test functions are not limited, because
// they contain tables.
const (
	maxFileLines     = 500
	maxTestFileLines = 1000
	maxFunctionLines = 100
)

const header = "// Copyright The annex Authors.\n// SPDX-License-Identifier: Apache-2.0\n\n"

var (
	generated   = regexp.MustCompile(`(?m)^(?://|<!--) Code generated .* DO NOT EDIT\.?(?: -->)?$`)
	constraint  = regexp.MustCompile(`\A(//(go:build| \+build) .*\n)+\n`)
	ownerlessTo = regexp.MustCompile(`//\s*(TODO|FIXME|XXX)($|[^(])`)
)

// sourceFile is one Go file of the module.
type sourceFile struct {
	name      string
	content   []byte
	syntax    *ast.File
	positions *token.FileSet
}

func (f sourceFile) test() bool      { return strings.HasSuffix(f.name, "_test.go") }
func (f sourceFile) generated() bool { return generated.Match(f.content) }

func (f sourceFile) lines(node ast.Node) int {
	return f.positions.Position(node.End()).Line - f.positions.Position(node.Pos()).Line + 1
}

func eachFile(t *testing.T, check func(t *testing.T, file sourceFile)) {
	t.Helper()
	root := moduleRoot(t)
	for _, p := range listPackages(t) {
		for _, name := range p.files() {
			path := filepath.Join(p.Dir, name)
			content, err := os.ReadFile(path)
			expect.NoError(t, err)
			positions := token.NewFileSet()
			syntax, err := parser.ParseFile(positions, path, content, parser.ParseComments)
			expect.NoError(t, err)
			relative, err := filepath.Rel(root, path)
			expect.NoError(t, err)
			check(t, sourceFile{name: relative, content: content, syntax: syntax, positions: positions})
		}
	}
}

func TestHeaders(t *testing.T) {
	t.Parallel()
	eachFile(t, func(t *testing.T, file sourceFile) {
		// Generators put the build constraint first.
		if rest := constraint.ReplaceAll(file.content, nil); !bytes.HasPrefix(rest, []byte(header)) {
			t.Errorf("%s does not start with the header and an empty line:\n%s", file.name, header)
		}
	})
}

func TestPackageComments(t *testing.T) {
	t.Parallel()
	for _, p := range listPackages(t) {
		if p.Doc == "" && len(p.GoFiles) > 0 && !strings.HasPrefix(p.path(), "pkg/generated/") {
			t.Errorf("%s has no package comment", p.path())
		}
	}
}

func TestBudget(t *testing.T) {
	t.Parallel()
	eachFile(t, func(t *testing.T, file sourceFile) {
		if file.generated() {
			return
		}
		limit := maxFileLines
		if file.test() {
			limit = maxTestFileLines
		}
		if lines := bytes.Count(file.content, []byte("\n")); lines > limit {
			t.Errorf("%s has %d lines, the limit is %d", file.name, lines, limit)
		}
		for _, declaration := range file.syntax.Decls {
			function, ok := declaration.(*ast.FuncDecl)
			if ok && !file.test() && file.lines(function) > maxFunctionLines {
				t.Errorf("%s: function %s has %d lines, the limit is %d", file.name, function.Name.Name, file.lines(function), maxFunctionLines)
			}
		}
	})
}

func TestExportedNamesAreDocumented(t *testing.T) {
	t.Parallel()
	eachFile(t, func(t *testing.T, file sourceFile) {
		if file.generated() || file.test() {
			return
		}
		for _, declaration := range file.syntax.Decls {
			for _, name := range undocumented(declaration) {
				t.Errorf("%s: exported %s has no comment", file.name, name)
			}
		}
	})
}

// undocumented returns the exported types, functions and methods of a
// declaration that have no comment; a comment on a group counts for its members.
func undocumented(declaration ast.Decl) []string {
	var names []string
	switch declaration := declaration.(type) {
	case *ast.FuncDecl:
		if declaration.Name.IsExported() && declaration.Doc == nil && receiverIsExported(declaration) {
			names = append(names, declaration.Name.Name)
		}
	case *ast.GenDecl:
		for _, spec := range declaration.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				if spec.Name.IsExported() && spec.Doc == nil && declaration.Doc == nil {
					names = append(names, spec.Name.Name)
				}
			case *ast.ValueSpec:
				for _, name := range spec.Names {
					if name.IsExported() && spec.Doc == nil && spec.Comment == nil && declaration.Doc == nil {
						names = append(names, name.Name)
					}
				}
			}
		}
	}
	return names
}

// receiverIsExported reports whether a function or method is visible to other packages.
func receiverIsExported(function *ast.FuncDecl) bool {
	if function.Recv == nil {
		return true
	}
	receiver := function.Recv.List[0].Type
	for {
		switch inner := receiver.(type) {
		case *ast.StarExpr:
			receiver = inner.X
		case *ast.IndexExpr:
			receiver = inner.X
		case *ast.IndexListExpr:
			receiver = inner.X
		case *ast.Ident:
			return inner.IsExported()
		default:
			return false
		}
	}
}

func TestDebtHasAnOwner(t *testing.T) {
	t.Parallel()
	eachFile(t, func(t *testing.T, file sourceFile) {
		if file.generated() {
			return
		}
		for _, group := range file.syntax.Comments {
			for _, comment := range group.List {
				if ownerlessTo.MatchString(comment.Text) {
					t.Errorf("%s: name an owner and when it can go: %s", file.positions.Position(comment.Pos()), comment.Text)
				}
			}
		}
	})
}
