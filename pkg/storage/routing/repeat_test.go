// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestWithRepeats(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		method string
		marked bool
		code   int
		want   string
	}{
		"a marked write":        {method: http.MethodPost, marked: true, code: http.StatusServiceUnavailable, want: "0"},
		"another write":         {method: http.MethodPost, code: http.StatusServiceUnavailable, want: "1"},
		"a write that was made": {method: http.MethodPut, marked: true, code: http.StatusOK, want: "1"},
		"a read":                {method: http.MethodGet, marked: true, code: http.StatusServiceUnavailable, want: "1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			recorder := httptest.NewRecorder()
			WithRepeats(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				if test.marked {
					repeatNow(req.Context())
				}
				w.Header().Set("Retry-After", "1")
				w.WriteHeader(test.code)
			})).ServeHTTP(recorder, httptest.NewRequest(test.method, "/", http.NoBody))
			if got := recorder.Header().Get("Retry-After"); got != test.want {
				t.Errorf("Retry-After %q, want %q", got, test.want)
			}
		})
	}
}
