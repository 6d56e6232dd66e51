// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package reads

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource/tableconvertor"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/client-go/util/jsonpath"

	"github.com/annex-dev/annex/pkg/storage/watchcache"
)

// columnsOf returns the columns of a version. Without any the age is shown, as upstream does
// (k8s.io/apiextensions-apiserver/pkg/apiserver/helpers.go).
func columnsOf(definition *apiextensionsv1.CustomResourceDefinition, version string) []apiextensionsv1.CustomResourceColumnDefinition {
	for i := range definition.Spec.Versions {
		if v := &definition.Spec.Versions[i]; v.Name == version && len(v.AdditionalPrinterColumns) > 0 {
			return v.AdditionalPrinterColumns
		}
	}
	return []apiextensionsv1.CustomResourceColumnDefinition{{
		Name: "Age", Type: "date", Description: metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"], JSONPath: ".metadata.creationTimestamp",
	}}
}

// shown returns the parts of objects that columns show.
func shown(columns []apiextensionsv1.CustomResourceColumnDefinition) *watchcache.Parts {
	paths := make([]string, len(columns))
	for i := range columns {
		paths[i] = columns[i].JSONPath
	}
	return watchcache.NewParts(paths)
}

// tables are upstream's tables, with other cells where upstream's are wrong: for dates in the future, numbers that
// are no int64, and paths through maps, for which upstream shows a random entry.
type tables struct {
	rest.TableConvertor
	columns []column
}

// newTables returns the tables of columns. If one cannot be parsed, they show the name only, as
// upstream does.
func newTables(columns []apiextensionsv1.CustomResourceColumnDefinition) rest.TableConvertor {
	upstream, err := tableconvertor.New(columns)
	if err != nil {
		return upstream
	}
	t := tables{TableConvertor: upstream}
	for i := range columns {
		one := column{kind: columns[i].Type}
		if one.path, err = newPath(columns[i].JSONPath); err != nil {
			return upstream // not parsed
		}
		if one.path.rest != nil {
			alone := apiextensionsv1.CustomResourceColumnDefinition{Name: columns[i].Name, Type: columns[i].Type, JSONPath: "." + aloneField}
			if one.alone, err = tableconvertor.New([]apiextensionsv1.CustomResourceColumnDefinition{alone}); err != nil {
				return upstream
			}
		}
		t.columns = append(t.columns, one)
	}
	return t
}

// ConvertToTable implements rest.TableConvertor.
func (t tables) ConvertToTable(ctx context.Context, object, options runtime.Object) (*metav1.Table, error) {
	table, err := t.TableConvertor.ConvertToTable(ctx, object, options)
	if err != nil {
		return nil, err
	}
	for i := range table.Rows {
		row, ok := table.Rows[i].Object.Object.(runtime.Unstructured)
		if !ok {
			continue
		}
		cells := table.Rows[i].Cells[1:]
		for j := range t.columns {
			if cells[j], err = t.columns[j].cell(ctx, row.UnstructuredContent(), cells[j]); err != nil {
				return nil, err
			}
		}
	}
	return table, nil
}

// column is an additional column.
type column struct {
	kind string
	path *path
	// alone is upstream's table of a field that has the value, of columns with wildcards.
	alone rest.TableConvertor
}

const aloneField = "value"

// cell returns the cell in place of upstream's.
func (c *column) cell(ctx context.Context, content map[string]any, upstream any) (any, error) {
	if c.alone != nil {
		value, found := c.path.find(content)
		if !found {
			return nil, nil
		}
		table, err := c.alone.ConvertToTable(ctx, &unstructured.Unstructured{Object: map[string]any{aloneField: value}}, nil)
		if err != nil {
			return nil, fmt.Errorf("convert a cell: %w", err)
		}
		upstream = table.Rows[0].Cells[1]
	}
	switch {
	case c.kind == "date" && upstream == "<invalid>":
		value, _ := c.path.find(content)
		text, _ := value.(string)
		var date metav1.Time
		if err := date.UnmarshalQueryParameter(text); err == nil && !date.IsZero() {
			return "in " + duration.HumanDuration(time.Until(date.Time)), nil
		}
	case c.kind == "integer" && (upstream == int64(math.MinInt64) || upstream == int64(math.MaxInt64)):
		if value, _ := c.path.find(content); value != nil {
			return value, nil
		}
	}
	return upstream, nil
}

// path is a JSONPath up to a wildcard, and what follows in each entry; rest is nil without a wildcard.
type path struct {
	before *jsonpath.JSONPath
	rest   *path
}

// newPath parses a JSONPath. What has filters, quotes or recursion is left to upstream.
func newPath(text string) (*path, error) {
	p := &path{}
	if !strings.ContainsAny(text, `?'"`) && !strings.Contains(text, "..") {
		text = strings.ReplaceAll(text, "[*]", ".*")
		if before, rest, found := strings.Cut(text, ".*"); found {
			var err error
			if p.rest, err = newPath(rest); err != nil {
				return nil, err
			}
			text = before
		}
	}
	if text == "" {
		return p, nil
	}
	p.before = jsonpath.New("column").AllowMissingKeys(true)
	return p, p.before.Parse("{" + text + "}")
}

// find returns the first value in the order of lists, and of the keys of maps.
func (p *path) find(value any) (any, bool) {
	if p.before != nil {
		found, err := p.before.FindResults(value)
		if err != nil || len(found) == 0 || len(found[0]) == 0 {
			return nil, false
		}
		value = found[0][0].Interface()
	}
	if p.rest == nil {
		return value, true
	}
	switch entries := value.(type) {
	case []any:
		for i := range entries {
			if found, ok := p.rest.find(entries[i]); ok {
				return found, true
			}
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(entries)) {
			if found, ok := p.rest.find(entries[key]); ok {
				return found, true
			}
		}
	}
	return nil, false
}
