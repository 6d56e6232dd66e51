// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/pem"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	restclient "k8s.io/client-go/rest"

	"github.com/annex-dev/annex/pkg/test/crgen"
	"github.com/annex-dev/annex/pkg/test/expect"
)

func TestQuantile(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		values     []float64
		part, want float64
	}{
		"none":               {part: 0.5},
		"one":                {values: []float64{7}, part: 0.99, want: 7},
		"median of odd":      {values: []float64{9, 1, 5}, part: 0.5, want: 5},
		"median of even":     {values: []float64{4, 1, 2, 3}, part: 0.5, want: 2.5},
		"smallest":           {values: []float64{3, 2}, part: 0, want: 2},
		"largest":            {values: []float64{3, 2}, part: 1, want: 3},
		"between neighbours": {values: []float64{0, 10, 20, 30, 40}, part: 0.9, want: 36},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			values := slices.Clone(test.values)
			if got := quantile(values, test.part); math.Abs(got-test.want) > 1e-9 {
				t.Errorf("quantile(%v, %v) = %v, want %v", test.values, test.part, got, test.want)
			}
			if !slices.Equal(values, test.values) {
				t.Errorf("the values were reordered to %v", values)
			}
		})
	}
}

func TestEstimate(t *testing.T) {
	t.Parallel()
	const gib = 1 << 30
	for name, test := range map[string]struct {
		count, size     int
		both, annexOnly bool
	}{
		"10k of 2.5 kB":      {10_000, 2500, true, true},
		"50k of 2.5 kB":      {50_000, 2500, true, true},
		"10k of 14 kB":       {10_000, 14_000, true, true},
		"50k of 14 kB":       {50_000, 14_000, false, true},
		"a million of 14 kB": {1_000_000, 14_000, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			both, annexOnly := estimate(test.count, test.size)
			if (both <= 16*gib) != test.both || (annexOnly <= 16*gib) != test.annexOnly {
				t.Errorf("it needs %.1f GiB, annex alone %.1f GiB", float64(both)/gib, float64(annexOnly)/gib)
			}
		})
	}
}

func TestTable(t *testing.T) {
	t.Parallel()
	both := func(peer, annex float64) map[string]float64 {
		return map[string]float64{peerName: peer, annexName: annex}
	}
	for name, test := range map[string]struct {
		result caseReport
		want   string
	}{
		"two servers": {caseReport{Servers: []string{peerName, annexName}, Objects: 10, Bytes: 2500, JSONBytes: 2510, Figures: []figure{
			{Name: "LIST", Unit: "ms", Per: "request", Measured: both(30, 2), CPU: both(20, 2), Target: 10},
			{Name: "WATCH", Unit: "ms", Per: "delivery", Measured: both(3, 2), CPU: both(1, 4), Target: 3, TargetOnCPU: true},
			{Name: "RSS", Unit: "B", Measured: map[string]float64{annexName: 12.345}, Limit: 20},
			{Name: "GET", Failed: "no response"},
		}}, `
10 objects of 2500 bytes (2510 in a list)
  KUBE-APISERVER   ANNEX  RATIO  CPU: KUBE-APISERVER  ANNEX  RATIO  TARGET  FIGURE
           30 ms    2 ms  15.00                20 ms   2 ms  10.00      10  LIST
            3 ms    2 ms   1.50                 1 ms   4 ms   0.25   3 CPU  WATCH, per delivery
               -  12.3 B      -                    -      -      -    20 B  RSS
               -       -      -                    -      -      -       -  GET: no response
`},
		"one server": {caseReport{Title: "starts", Servers: []string{annexName}, Figures: []figure{
			{Name: "RSS", Unit: "GiB", Measured: map[string]float64{annexName: 3}, Limit: 6},
			{Name: "size", Unit: "MB", Measured: map[string]float64{annexName: 7}},
		}}, `
starts
  ANNEX  LIMIT  ANNEX/LIMIT  FIGURE
  3 GiB  6 GiB         0.50  RSS
   7 MB      -            -  size
`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got bytes.Buffer
			expect.NoError(t, test.result.print(&got))
			if diff := cmp.Diff(test.want, got.String()); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestObjects(t *testing.T) {
	t.Parallel()
	validator, err := crgen.NewValidator(records.definition(), "v1")
	expect.NoError(t, err)
	for _, size := range []int{1000, 2500, 14_000} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			t.Parallel()
			for i := range 50 {
				encoded, err := records.object(i, size)
				expect.NoError(t, err)
				if stored := float64(len(encoded) + serverAdds); stored < float64(size-noteFrame) || stored > float64(size+noteFrame) {
					t.Errorf("object %d would have %.0f bytes, want %d", i, stored, size)
				}
				again, err := records.object(i, size)
				expect.NoError(t, err)
				if !bytes.Equal(encoded, again) {
					t.Errorf("object %d differs the second time", i)
				}
				withStatus := withStatus(encoded)
				expect.NoError(t, stamp(withStatus, "revision", 1234567890123456789))
				expect.NoError(t, stamp(withStatus, "observed", 7))
				var object unstructured.Unstructured
				expect.NoError(t, object.UnmarshalJSON(withStatus))
				expect.NoError(t, validator.Validate(t.Context(), &object))
				revision, _, _ := unstructured.NestedString(object.Object, "spec", "revision")
				observed, _, _ := unstructured.NestedString(object.Object, "status", "observed")
				if revision != "1234567890123456789" || observed != "0000000000000000007" {
					t.Errorf("object %d has revision %q and observed %q", i, revision, observed)
				}
			}
		})
	}
	if err := stamp([]byte(`{"revision":"1"}`), "revision", 1); err == nil {
		t.Error("a field that is too short was stamped")
	}
}

// TestSelectors checks that selectors match 1 % of the objects, in all namespaces.
func TestSelectors(t *testing.T) {
	t.Parallel()
	const count = 10_000
	seen := map[string]int{}
	for i := range count {
		encoded, err := records.object(i, 1)
		expect.NoError(t, err)
		for _, want := range []string{`"part":"part-1"`, `"owner":"owner-1"`} {
			if bytes.Contains(encoded, []byte(want)) {
				seen[want]++
			}
		}
		seen[namespaceOf(i)]++
	}
	if seen[`"part":"part-1"`] != 100 || seen[`"owner":"owner-1"`] != 100 || seen[namespaceOf(0)] != count/namespaces {
		t.Errorf("of %d objects: %v", count, seen)
	}
}

func TestParsing(t *testing.T) {
	t.Parallel()
	if value, err := lineValue("a 1\nab 22\n", "ab "); value != 22 || err != nil {
		t.Errorf("lineValue() = %d, %v", value, err)
	}
	if _, err := lineValue("a 1\n", "b "); err == nil {
		t.Error("a line that does not exist has a value")
	}
	list, err := tailOfList([]byte(`{"items":[{"a":[],"kind":"x"}],"kind":"L","metadata":{"continue":"next"}}`))
	if err != nil || list.Continue != "next" {
		t.Errorf("tailOfList() = %+v, %v", list, err)
	}
	if _, err := tailOfList([]byte(`{}`)); err == nil {
		t.Error("what is no list has a tail")
	}
	thinned := thin(series{Points: [][2]float64{{1, 1}, {2, 9}, {3, 2}, {4, 3}}}, 3)
	if diff := cmp.Diff([][2]float64{{2, 9}, {4, 3}}, thinned.Points); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestFollow(t *testing.T) {
	t.Parallel()
	var seen []string
	a := &audience{progress: make(chan struct{}, 1), failed: make(chan error, 1)}
	watch := &http.Response{Body: io.NopCloser(iotest.OneByteReader(strings.NewReader("one\ntwo\nthree\n")))}
	a.follow(t.Context(), watch, func(event []byte) { seen = append(seen, string(event)) })
	if diff := cmp.Diff([]string{"one", "two", "three"}, seen); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	expect.NoError(t, a.wait(t.Context(), 3))
	if a.bytes.Load() != 14 {
		t.Errorf("%d bytes were counted, want 14", a.bytes.Load())
	}
	expect.Error(t, a.wait(t.Context(), 4), "the watch ended")
}

func TestClient(t *testing.T) {
	t.Parallel()
	remote := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/fails":
			http.Error(w, "too many objects", http.StatusForbidden)
		case "/gzip":
			w.Header().Set("Content-Encoding", "gzip")
		}
		_, _ = io.WriteString(w, "0123456789")
	}))
	remote.EnableHTTP2 = true
	remote.StartTLS()
	t.Cleanup(remote.Close)
	config := &restclient.Config{Host: remote.URL}
	config.CAData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: remote.Certificate().Raw})
	c, err := newClient(config)
	expect.NoError(t, err)
	t.Cleanup(c.close)
	for name, test := range map[string]struct {
		request request
		fails   string
	}{
		"dropped":       {request: request{path: "/"}},
		"kept":          {request: request{path: "/", keep: true}},
		"gzip":          {request: request{path: "/gzip", encoding: "gzip"}},
		"not gzip":      {request: request{path: "/", encoding: "gzip"}, fails: "the encoding is"},
		"error message": {request: request{path: "/fails"}, fails: "too many objects"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := c.send(t.Context(), test.request)
			if test.fails != "" {
				if err == nil || !strings.Contains(err.Error(), test.fails) {
					t.Errorf("send() returned %v, want %q", err, test.fails)
				}
				return
			}
			if err != nil || got.bytes != 10 || (len(got.body) > 0) != test.request.keep {
				t.Errorf("send() = %+v, %v", got, err)
			}
		})
	}
}
