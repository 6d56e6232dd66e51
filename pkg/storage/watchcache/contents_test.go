// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/storage"

	"github.com/annex-dev/annex/pkg/test/expect"
)

// countedLabels and countedFields count the requirements that each call goes through.
type countedLabels struct {
	labels.Selector
	terms int
	steps *int
}

func (s countedLabels) Requirements() (labels.Requirements, bool) {
	*s.steps += s.terms
	return s.Selector.Requirements()
}

func (s countedLabels) RequiresExactMatch(label string) (string, bool) {
	*s.steps += s.terms
	return s.Selector.RequiresExactMatch(label)
}

type countedFields struct {
	fields.Selector
	terms int
	steps *int
}

func (s countedFields) RequiresExactMatch(field string) (string, bool) {
	*s.steps += s.terms
	return s.Selector.RequiresExactMatch(field)
}

func newFilled(fields []string, objects int) *contents {
	c := newContents(fields, func(int) {})
	read := c.restart()
	for i := range objects {
		c.put(&record{key: fmt.Sprintf("/widgets/%04d", i), labels: labels.Set{"a": "b"}}, read)
	}
	c.filled(read, 1)
	return c
}

// TestSelectorWork checks that a selector twice as long takes at most twice the steps.
func TestSelectorWork(t *testing.T) {
	t.Parallel()
	for _, operator := range []string{"label%d=a", "label%d==a", "label%d!=a", "label%d", "!label%d", "label%d in (a)", "label%d in (a,b)", "label%d notin (a)", "label%d>1"} {
		steps := func(terms int) (steps int) {
			var all []string
			for i := range terms {
				all = append(all, fmt.Sprintf(operator, i))
			}
			label, err := labels.Parse(strings.Join(all, ","))
			expect.NoError(t, err)
			predicate := storage.SelectionPredicate{
				Label: countedLabels{label, terms, &steps},
				Field: countedFields{fields.SelectorFromSet(fields.Set{"spec.a": "1"}), terms, &steps},
			}
			c := newFilled([]string{"spec.a", "spec.b"}, 100)
			found, known := c.selectAt(0, &predicate, "/widgets/")
			if !known {
				t.Fatal("the contents are not known")
			}
			_, err = found.page(t.Context(), &predicate, "/widgets/", "/widgets/", 0)
			expect.NoError(t, err)
			c.scanned(&predicate, 100, 0)
			if len(c.unindexed) > maxLabels {
				t.Errorf("%s: a list asks for the indexes of %d labels, want at most %d", operator, len(c.unindexed), maxLabels)
			}
			return steps
		}
		if once, twice := steps(500), steps(1000); twice > 2*once {
			t.Errorf("%s: 500 requirements take %d steps, 1000 take %d", operator, once, twice)
		}
	}
}

// TestListEndsWithRequest checks that a list of many objects ends with its context.
func TestListEndsWithRequest(t *testing.T) {
	t.Parallel()
	c := newFilled(nil, 10*checkedObjects)
	predicate := storage.SelectionPredicate{Label: labels.Everything(), Field: fields.ParseSelectorOrDie("metadata.name=none")}
	found, _ := c.selectAt(0, &predicate, "/widgets/")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := found.page(ctx, &predicate, "/widgets/", "/widgets/", 0); !errors.Is(err, context.Canceled) {
		t.Errorf("a list whose request has ended returned %v", err)
	}
}
