// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// page is a part of a list.
type page struct {
	Metadata struct {
		Continue           string `json:"continue"`
		RemainingItemCount *int64 `json:"remainingItemCount"`
	} `json:"metadata"`
	Items []json.RawMessage `json:"items"`
}

// comparePages reads lists page after page from both servers, while objects change.
func comparePages(t *testing.T, p *pair) {
	v1 := "/apis/" + group + "/v1"
	added := 100
	for _, path := range []string{v1 + "/widgets", v1 + "/namespaces/other/widgets", v1 + "/planets"} {
		for _, selector := range []string{"", "&labelSelector=tenth%3D3", "&labelSelector=part%3D1", "&fieldSelector=spec.color%3Dgreen", "&labelSelector=tenth%3D3&fieldSelector=spec.color%3Dgreen"} {
			query := "?limit=3" + selector
			_, _ = firstPages(t, p, path+query)
			want, got := firstPages(t, p, path+query)
			for n := 1; ; n++ {
				if diff := cmp.Diff(describe(want), describe(got)); diff != "" {
					t.Fatalf("page %d of %s (-upstream +annex):\n%s", n, path+query, diff)
				}
				if want.Metadata.Continue == "" {
					break
				}
				if n%2 == 1 { // the pages that follow are those from before
					added++
					create(t, p.annex, v1+"/namespaces/other/widgets", newObject("Widget", "other", added))
				}
				want = readPage(t, p.upstream, path+query+"&continue="+url.QueryEscape(want.Metadata.Continue))
				got = readPage(t, p.annex, path+query+"&continue="+url.QueryEscape(got.Metadata.Continue))
			}
		}
	}
}

// firstPages returns the first page of both servers when they have the same objects.
func firstPages(t *testing.T, p *pair, path string) (want, got page) {
	t.Helper()
	poll.UntilNoError(t, "both servers have the same objects", func() error {
		want, got = readPage(t, p.upstream, path), readPage(t, p.annex, path)
		if diff := cmp.Diff(describe(want), describe(got)); diff != "" {
			return fmt.Errorf("%s (-upstream +annex):\n%s", path, diff)
		}
		return nil
	})
	return want, got
}

// describe returns what is the same for both servers: their resource versions may differ.
func describe(p page) string {
	var text strings.Builder
	for _, item := range p.Items {
		fmt.Fprintf(&text, "%s\n", item)
	}
	if p.Metadata.RemainingItemCount != nil {
		fmt.Fprintf(&text, "%d remain\n", *p.Metadata.RemainingItemCount)
	}
	fmt.Fprintf(&text, "more: %v", p.Metadata.Continue != "")
	return text.String()
}

func readPage(t *testing.T, s *server, path string) (p page) {
	t.Helper()
	answer, err := send(t.Context(), s.http, http.MethodGet, s.url+path, "application/json", nil)
	expect.NoError(t, err)
	expect.NoError(t, json.Unmarshal(answer, &p))
	return p
}

// expectIndex checks that annex has answered lists by a label from an index.
func (p *pair) expectIndex(t *testing.T) {
	t.Helper()
	answer, err := p.annex.read(t.Context(), request{path: "/metrics"})
	expect.NoError(t, err)
	if label := `index="l:tenth"`; !strings.Contains(answer.body, label) {
		t.Errorf("there is no metric with %s", label)
	}
}
