// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package reads

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/annex-dev/annex/pkg/test/expect"
)

func TestGzip(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("x", gzipThreshold+1)
	for name, test := range map[string]struct {
		accept   string
		code     int
		writes   []string
		encoding string
	}{
		"large":                  {"gzip", http.StatusOK, []string{large}, "gzip"},
		"large in parts":         {"deflate, gzip", http.StatusOK, []string{"{", large[1:gzipThreshold], "12", "3"}, "gzip"},
		"at the threshold":       {"gzip", http.StatusOK, []string{"{", large[2:]}, ""},
		"small error":            {"gzip", http.StatusNotFound, []string{"not found"}, ""},
		"large error":            {"gzip", http.StatusGone, []string{large}, "gzip"},
		"nothing":                {"gzip", http.StatusOK, nil, ""},
		"large for other client": {"", http.StatusOK, []string{large}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			handler := withGzip(func(w http.ResponseWriter, req *http.Request) {
				if req.Header.Get("Accept-Encoding") != "" {
					t.Error("the handler would compress too")
				}
				w.WriteHeader(test.code)
				for _, part := range test.writes {
					_, err := io.WriteString(w, part)
					expect.NoError(t, err)
				}
			})
			request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
			request.Header.Set("Accept-Encoding", test.accept)
			recorder := httptest.NewRecorder()
			handler(recorder, request)
			if got := recorder.Header().Get("Content-Encoding"); got != test.encoding || recorder.Code != test.code {
				t.Errorf("%d with encoding %q", recorder.Code, got)
			}
			var body io.Reader = recorder.Body
			if test.encoding != "" {
				var err error
				body, err = gzip.NewReader(body)
				expect.NoError(t, err)
			}
			got, err := io.ReadAll(body)
			expect.NoError(t, err)
			if string(got) != strings.Join(test.writes, "") {
				t.Errorf("got %d bytes", len(got))
			}
		})
	}
}
