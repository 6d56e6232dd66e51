// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/random"
)

// TestPlannedWrites sends random writes to annex, which plans what it can, and the same ones to an unmodified
// apiextensions-apiserver, and compares the answers. Both have an object each in one etcd.
func TestPlannedWrites(t *testing.T) {
	t.Parallel()
	run := random.Start(t, 3)
	p := newPair(t)
	p.startUpstream(t)
	p.startAnnex(t, "--feature-gates=PlannedWrites=true")
	serveLevers(t, p.annex, p.upstream)
	twins := &twins{pair: p, writer: newWriter(run.Rand(0))}
	for n := 0; run.Next() && !t.Failed(); n++ {
		twins.round(t, fmt.Sprintf("lever-%d", n))
		twins.creations(t, fmt.Sprintf("deleted-%d", n))
		tighten(t, []int{60, 100}[n%2], p.annex, p.upstream)
	}
	t.Logf("%d writes: %s", twins.writes, p.plannedWrites(t))
}

// twins writes to two objects that are equal except for their names and what the server gives them.
type twins struct {
	*pair
	writer
	writes int
}

func (w *twins) round(t *testing.T, name string) {
	t.Helper()
	mine, theirs := name+"-annex", name+"-other"
	for w.compare(t, w.create(t, mine), mine, theirs) != http.StatusCreated {
		// the next one may be valid
	}
	w.compare(t, w.create(t, mine), mine, theirs) // it exists
	for n := range 60 {
		if n == 40 {
			w.annex.deleteLever(t, mine)
			w.upstream.deleteLever(t, theirs)
			w.compare(t, w.create(t, mine), mine, theirs)
		}
		own := w.upstream.getLever(t, mine)
		if own == "" {
			return // a write has removed the last finalizer
		}
		w.compare(t, w.next(t, mine, own), mine, theirs)
	}
}

// creations creates objects with names that are generated, and creates and deletes an object again and again.
func (w *twins) creations(t *testing.T, name string) {
	t.Helper()
	mine, theirs := name+"-annex", name+"-other"
	for range 5 {
		w.compare(t, w.create(t, ""), mine, theirs)
		w.compare(t, w.create(t, mine), mine, theirs)
		for n := range 8 {
			own := w.upstream.getLever(t, mine)
			switch {
			case own == "":
			case n%2 == 0:
				w.compare(t, w.delete(t, mine, own), mine, theirs)
			default:
				w.compare(t, w.next(t, mine, own), mine, theirs)
			}
		}
		for n := 0; ; n++ { // finalizers are removed in two steps
			own := w.upstream.getLever(t, mine)
			if own == "" {
				break
			}
			left := []string{`["example.com/f"]`, "[]"}[min(n, 1)]
			w.compare(t, write{
				method: http.MethodPatch, path: leversPath + "/" + mine, contentType: string(types.MergePatchType), body: `{"metadata":{"finalizers":` + left + `}}`,
			}, mine, theirs)
			w.compare(t, write{method: http.MethodDelete, path: leversPath + "/" + mine, contentType: asJSON}, mine, theirs)
		}
	}
}

// compare sends a write of one object, and the same one of its twin, and returns the code.
func (w *twins) compare(t *testing.T, next write, mine, theirs string) int {
	t.Helper()
	w.writes++
	own, other := w.upstream.getLever(t, mine), w.upstream.getLever(t, theirs)
	same := next
	same.path, same.body = strings.ReplaceAll(next.path, mine, theirs), strings.ReplaceAll(as(next.body, own, other), mine, theirs)
	got, want := w.annex.write(t, next), w.upstream.write(t, same)
	got.body, want.body = anonymous(t, got.body), anonymous(t, want.body)
	if got != want {
		t.Fatalf("%+v\nof       %s\nannex    %+v\nupstream %+v", next, own, got, want)
	}
	return got.code
}

// identities are the values that differ between twins.
var identities = []string{"name", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp"}

// as returns a request for one object as one for another.
func as(body, own, other string) string {
	if own == "" || other == "" {
		return body // they are created
	}
	var of [2]struct{ Metadata map[string]any }
	for i, text := range []string{own, other} {
		if err := json.Unmarshal([]byte(text), &of[i]); err != nil {
			panic(err)
		}
	}
	for _, name := range identities {
		body = strings.ReplaceAll(body, fmt.Sprintf("%q", of[0].Metadata[name]), fmt.Sprintf("%q", of[1].Metadata[name]))
	}
	return body
}

var (
	valuesOfOne = regexp.MustCompile(`"(creationTimestamp|deletionTimestamp|time|resourceVersion)":"[^"]*"`)
	textOfOne   = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}|-(annex|other)\b|` + generatedName)
)

// anonymous returns an answer without what differs between twins. Managed fields are in order of their times, which begin
// another second at other writes. Of errors it returns the reason and the fields: texts have the whole object, and upstream
// lists them in any order.
func anonymous(t *testing.T, body string) string {
	t.Helper()
	body = textOfOne.ReplaceAllString(valuesOfOne.ReplaceAllString(body, `"$1":""`), "")
	var answer struct {
		Reason  metav1.StatusReason
		Message string
		Details struct {
			Causes []struct{ Reason, Field string }
		}
	}
	expect.NoError(t, json.Unmarshal([]byte(body), &answer))
	switch answer.Reason {
	case "":
	case metav1.StatusReasonAlreadyExists:
		return answer.Message
	default:
		causes := answer.Details.Causes
		slices.SortFunc(causes, func(a, b struct{ Reason, Field string }) int {
			return strings.Compare(a.Field+a.Reason, b.Field+b.Reason)
		})
		return fmt.Sprint(answer.Reason, causes)
	}
	parts := strings.FieldsFunc(body, func(c rune) bool { return strings.ContainsRune(`{}[],`, c) })
	slices.Sort(parts)
	return strings.Join(parts, "\n")
}

// plannedWrites returns annex's metric.
func (p *pair) plannedWrites(t *testing.T) string {
	t.Helper()
	_, content, err := p.annex.get(t.Context(), request{path: "/metrics"})
	expect.NoError(t, err)
	found := regexp.MustCompile(`annex_custom_resource_planned_writes_total(\{.*)`).FindAllString(string(content), -1)
	if !strings.Contains(strings.Join(found, "\n"), `reason=""`) {
		t.Error("no write was planned")
	}
	return strings.Join(found, "\n")
}
