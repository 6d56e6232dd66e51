// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincopy

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/client-go/rest"

	"github.com/annex-dev/annex/pkg/storage/move"
	"github.com/annex-dev/annex/pkg/test/expect"
)

const (
	served = `{"status":{"float":1.50,"integer":1152921504606846976},"apiVersion":"example.com/v1","kind":"Widget",` +
		`"metadata":{"resourceVersion":"12","name":"a","namespace":"ns","uid":"u"},"spec":{"html":"<","null":null}}`
	stored = `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a","namespace":"ns","uid":"u"},` +
		`"spec":{"html":"\u003c","null":null},"status":{"float":1.5,"integer":1152921504606846976}}` + "\n"
	servedCluster = `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"b","resourceVersion":"13"}}`
	storedCluster = `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"b"}}` + "\n"
	expired       = `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","reason":"Expired","code":410}`
)

// serve returns a Source whose API server answers each request, and expects a query.
func serve(t *testing.T, code int, body string, want map[string]string) *Source {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, value := range want {
			if got := r.URL.Query().Get(name); got != value {
				t.Errorf("parameter %s is %q, want %q", name, got, value)
			}
		}
		if r.URL.Path != "/apis/example.com/v1/widgets" {
			t.Errorf("path %s", r.URL.Path)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		fmt.Fprint(w, body)
	}))
	t.Cleanup(server.Close)
	client, err := newPages(&rest.Config{Host: server.URL}, "the main cluster")
	expect.NoError(t, err)
	return &Source{client: client, resource: widgets.Stored}
}

func TestPage(t *testing.T) {
	t.Parallel()
	next, err := storage.EncodeContinue("/ns/0\x00", "/", 20)
	expect.NoError(t, err)
	nextAtPresent, err := storage.EncodeContinue("/ns/0\x00", "/", -1)
	expect.NoError(t, err)
	for name, tc := range map[string]struct {
		after, body string
		present     bool
		query       map[string]string
		want        []move.Object
		more        bool
	}{
		"first": {
			body:  `{"kind":"WidgetList","metadata":{"resourceVersion":"20","continue":"x"},"items":[` + servedCluster + `,` + served + `]}`,
			query: map[string]string{"resourceVersion": "20", "resourceVersionMatch": "Exact", "limit": "7", "continue": ""},
			want:  []move.Object{{Key: "b", Value: []byte(storedCluster), Revision: 13}, {Key: "ns/a", Value: []byte(stored), Revision: 12}}, more: true,
		},
		"after a key": {
			after: "ns/0", body: `{"items":[` + served + `],"metadata":{"resourceVersion":"20"}}`,
			query: map[string]string{"resourceVersion": "", "resourceVersionMatch": "", "limit": "7", "continue": next},
			want:  []move.Object{{Key: "ns/a", Value: []byte(stored), Revision: 12}},
		},
		"first at the present": {
			present: true, body: `{"items":[` + served + `],"metadata":{"resourceVersion":"20"}}`,
			query: map[string]string{"resourceVersion": "", "resourceVersionMatch": "", "continue": ""},
			want:  []move.Object{{Key: "ns/a", Value: []byte(stored), Revision: 12}},
		},
		"after a key at the present": {
			after: "ns/0", present: true, body: `{"items":[],"metadata":{"resourceVersion":"20"}}`, query: map[string]string{"continue": nextAtPresent},
		},
		"empty": {body: `{"metadata":{"resourceVersion":"20"},"items":[]}`},
		"null":  {body: `{"metadata":{"resourceVersion":"20"},"items":null}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, http.StatusOK, tc.body, tc.query)
			revision := int64(20)
			if tc.present {
				revision = 0
			}
			got, more, err := s.Page(t.Context(), tc.after, 7, revision)
			expect.NoError(t, err)
			if diff := cmp.Diff(tc.want, got, cmpopts.IgnoreUnexported(move.Object{})); diff != "" || more != tc.more {
				t.Errorf("more: %v, objects (-want +got):\n%s", more, diff)
			}
		})
	}
}

func TestDecodeCopy(t *testing.T) {
	t.Parallel()
	got, err := decodeObject([]byte(strings.Replace(served, "example.com/v1", "example.com/other", 1)), "v1")
	expect.NoError(t, err)
	expect.Equal(t, stored, string(got.Value), "object in the stored version")
}

func TestRevisionAndCount(t *testing.T) {
	t.Parallel()
	s := serve(t, http.StatusOK, `{"metadata":{"resourceVersion":"20","remainingItemCount":41},"items":[`+served+`]}`,
		map[string]string{"limit": "1", "resourceVersion": ""})
	revision, err := s.Revision(t.Context())
	expect.NoError(t, err)
	count, err := s.Count(t.Context())
	expect.NoError(t, err)
	if revision != 20 || count != 42 {
		t.Errorf("revision %d, %d objects", revision, count)
	}
}

func TestWatch(t *testing.T) {
	t.Parallel()
	bookmark := `{"type":"BOOKMARK","object":{"kind":"Widget","metadata":{"resourceVersion":"30","creationTimestamp":null}}}`
	event := func(kind, object string) string { return fmt.Sprintf(`{"type":%q,"object":%s}`, kind, object) }
	s := serve(t, http.StatusOK,
		strings.Join([]string{event("ADDED", served), event("DELETED", servedCluster), bookmark, event("ERROR", expired)}, "\n"),
		map[string]string{"watch": "true", "allowWatchBookmarks": "true", "resourceVersion": "11"})
	w, err := s.Watch(t.Context(), 11)
	expect.NoError(t, err)
	want := []move.Events{
		{Complete: 12, Current: 12, Changes: []move.Change{{Object: move.Object{Key: "ns/a", Value: []byte(stored), Revision: 12}, Created: true}}},
		{Complete: 13, Current: 13, Changes: []move.Change{{Object: move.Object{Key: "b", Value: []byte(storedCluster), Revision: 13}, Deleted: true}}},
		{Complete: 30, Current: 30},
		{Err: move.ErrCompacted},
	}
	var got []move.Events
	for events := range w.Events() {
		got = append(got, events)
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(move.Object{}), cmpopts.EquateErrors()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// TestPageOrder refuses a page that cannot be compared with another side's.
func TestPageOrder(t *testing.T) {
	t.Parallel()
	s := serve(t, http.StatusOK, `{"metadata":{"resourceVersion":"20"},"items":[`+served+`,`+servedCluster+`]}`, nil)
	_, _, err := s.Page(t.Context(), "", 7, 20)
	expect.Error(t, err, "order of their keys")
}

func TestExpired(t *testing.T) {
	t.Parallel()
	s := serve(t, http.StatusGone, expired, nil)
	if _, _, err := s.Page(t.Context(), "", 1, 20); !errors.Is(err, move.ErrCompacted) {
		t.Errorf("a page: %v", err)
	}
	if _, err := s.Watch(t.Context(), 20); !errors.Is(err, move.ErrCompacted) {
		t.Errorf("a watch: %v", err)
	}
}

// TestResult applies the results of probes at the right time.
func TestResult(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		found     result
		delivered []int64
		want      int64
	}{
		"no change":               {result{last: 10, complete: 50}, nil, 50},
		"a change to come":        {result{last: 20, complete: 50}, []int64{15}, 15},
		"the last change":         {result{last: 20, complete: 50}, []int64{15, 20}, 50},
		"changes after the probe": {result{last: 20, complete: 50}, []int64{15, 20, 60}, 60},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := &watcher{delivered: 10, pending: tc.found}
			got := w.resolve()
			for _, revision := range tc.delivered {
				got = w.advance(move.Events{Complete: revision, Changes: []move.Change{{}}})
			}
			if got != tc.want {
				t.Errorf("it is complete up to %d, want %d", got, tc.want)
			}
		})
	}
}

// TestForbidden has the message of the server: it names the right that annex lacks.
func TestForbidden(t *testing.T) {
	t.Parallel()
	source := serve(t, http.StatusForbidden,
		`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","reason":"Forbidden","message":"annex cannot list widgets","code":403}`, nil)
	_, _, page := source.Page(t.Context(), "", 7, 20)
	_, count := source.Count(t.Context())
	for _, err := range []error{page, count} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("%v is not Forbidden", err)
		}
		expect.Error(t, err, "annex cannot list widgets")
	}
}
