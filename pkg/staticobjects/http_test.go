// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package staticobjects

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/annex-dev/annex/pkg/test/expect"
)

// site is a server whose answer a test changes.
type site struct {
	*httptest.Server
	answer   http.HandlerFunc
	requests []*http.Request
}

func newSite(t *testing.T, start func(http.Handler) *httptest.Server) *site {
	t.Helper()
	s := &site{}
	s.Server = start(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		s.requests = append(s.requests, req)
		s.answer(w, req)
	}))
	t.Cleanup(s.Close)
	return s
}

func body(status int, content string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = w.Write([]byte(content))
	}
}

func newHTTP(t *testing.T, config HTTPConfig) *HTTP {
	t.Helper()
	h, err := NewHTTP(config)
	expect.NoError(t, err)
	return h
}

const httpA = "Widget.example.com default/a #1"

func TestHTTP(t *testing.T) {
	t.Parallel()
	s := newSite(t, httptest.NewServer)
	h := newHTTP(t, HTTPConfig{URL: s.URL + "/all.yaml?token=secret"})
	expect.Equal(t, s.URL+"/all.yaml", h.Location(), "location")
	steps := []struct {
		what     string
		answer   http.HandlerFunc
		objects  string
		problems []string
	}{
		{"error at first", body(500, widgetA), "", []string{": the server responds 500"}},
		{"objects", body(200, widgetA), httpA, nil},
		{"error", body(500, ""), httpA, []string{": the server responds 500"}},
		{"not found", body(404, ""), httpA, []string{": the server responds 404"}},
		{"unexpected 304", body(304, ""), httpA, []string{": the server responds 304"}},
		{"nothing", body(200, ""), httpA, []string{": decode the response: is empty"}},
		{"a page", body(200, "<html>Sign in</html>"), httpA, []string{": decode the response: document 1"}},
		{"half", body(200, widgetA+"---\nkind"), httpA, []string{": decode the response: document 2"}},
		{"interrupted", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			_, _ = w.Write([]byte(widgetA))
		}, httpA, []string{": read the response: unexpected EOF"}},
		{"too large", func(w http.ResponseWriter, _ *http.Request) {
			for range maxBytes>>20 + 1 {
				_, _ = w.Write(make([]byte, 1<<20))
			}
		}, httpA, []string{": the response has more than"}},
		{"no objects any more", body(200, "# none"), "", nil},
	}
	for _, step := range steps {
		s.answer = step.answer
		expectSnapshot(t, step.what, h.read(t.Context()), step.objects, step.problems...)
	}
	s.Close()
	snapshot := h.read(t.Context())
	expectSnapshot(t, "no server", snapshot, "", ": send the request: ")
	if strings.Contains(snapshot.Problems[0].Message, "secret") {
		t.Errorf("the query is in the message %q", snapshot.Problems[0].Message)
	}
}

func TestHTTPConditional(t *testing.T) {
	t.Parallel()
	s := newSite(t, httptest.NewServer)
	s.answer = func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("ETag", `"1"`)
		http.ServeContent(w, req, "all.yaml", time.Unix(1000, 0), strings.NewReader(widgetA))
	}
	h := newHTTP(t, HTTPConfig{URL: s.URL})
	for range 2 {
		expectSnapshot(t, "read", h.read(t.Context()), httpA)
	}
	first, second := s.requests[0].Header, s.requests[1].Header
	expect.Equal(t, "", first.Get("If-None-Match")+first.Get("If-Modified-Since"), "first request")
	expect.Equal(t, `"1" Thu, 01 Jan 1970 00:16:40 GMT`, second.Get("If-None-Match")+" "+second.Get("If-Modified-Since"), "second request")

	// A response that cannot be used is not remembered.
	s.answer = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("ETag", `"2"`)
		_, _ = w.Write([]byte("}"))
	}
	expectSnapshot(t, "bad", h.read(t.Context()), httpA, ": decode the response")
	h.read(t.Context())
	expect.Equal(t, `"1"`, s.requests[3].Header.Get("If-None-Match"), "request after a bad response")
}

// The headers are read for each request, and sent to one host only.
func TestHTTPHeader(t *testing.T) {
	t.Parallel()
	s, other := newSite(t, httptest.NewServer), newSite(t, httptest.NewServer)
	file := filepath.Join(t.TempDir(), "header")
	expect.NoError(t, os.WriteFile(file, []byte("Authorization: Bearer one\nX-Key: 1\n"), 0o600))
	h := newHTTP(t, HTTPConfig{URL: s.URL, HeaderFile: file})
	s.answer, other.answer = body(200, widgetA), body(200, widgetA)
	expectSnapshot(t, "read", h.read(t.Context()), httpA)
	expect.NoError(t, os.WriteFile(file, []byte("Authorization: Bearer two\n"), 0o600))
	s.answer = func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/" {
			http.Redirect(w, req, "/there", http.StatusFound)
			return
		}
		http.Redirect(w, req, other.URL, http.StatusFound)
	}
	expectSnapshot(t, "redirected", h.read(t.Context()), httpA)
	var got []string
	for _, req := range append(s.requests, other.requests...) {
		got = append(got, req.URL.Path+" "+req.Header.Get("Authorization")+" "+req.Header.Get("X-Key"))
	}
	expect.Equal(t, []string{"/ Bearer one 1", "/ Bearer two ", "/there Bearer two ", "/  "}, got, "requests")

	expect.NoError(t, os.WriteFile(file, []byte("secret"), 0o600))
	snapshot := h.read(t.Context())
	expectSnapshot(t, "bad file", snapshot, httpA, ": read the headers: ")
	if strings.Contains(snapshot.Problems[0].Message, "secret\"") {
		t.Errorf("the message has the secret: %s", snapshot.Problems[0].Message)
	}
	expect.NoError(t, os.Remove(file))
	expectSnapshot(t, "no file", h.read(t.Context()), httpA, ": read the headers: open")
}

func TestHTTPVerifies(t *testing.T) {
	t.Parallel()
	s, plain := newSite(t, httptest.NewTLSServer), newSite(t, httptest.NewServer)
	s.answer, plain.answer = body(200, widgetA), body(200, widgetA)
	expectSnapshot(t, "unknown authority", newHTTP(t, HTTPConfig{URL: s.URL}).read(t.Context()), "", ": send the request: tls: failed to verify certificate")
	file := filepath.Join(t.TempDir(), "ca.crt")
	expect.NoError(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600))
	h := newHTTP(t, HTTPConfig{URL: s.URL, CAFile: file})
	expectSnapshot(t, "known authority", h.read(t.Context()), httpA)
	s.answer = func(w http.ResponseWriter, req *http.Request) { http.Redirect(w, req, plain.URL, http.StatusFound) }
	expectSnapshot(t, "redirected", h.read(t.Context()), httpA, ": send the request: redirected from https to http")
	if len(plain.requests) > 0 {
		t.Error("it followed a redirect without TLS")
	}
	_, err := NewHTTP(HTTPConfig{URL: s.URL, CAFile: file + "-missing"})
	expect.Error(t, err, "read the authorities of the URL")
}

func TestParseURL(t *testing.T) {
	t.Parallel()
	tests := map[string]string{
		"https://example.com/a":     "",
		"http://127.0.0.1:8080/a":   "",
		"http://localhost/a":        "",
		"http://[::1]/a":            "",
		"http://example.com/a":      "must begin with https://",
		"https://me:pw@example.com": "must not contain a password",
		"ftp://example.com/a":       "must begin with https://",
		"/etc/annex":                "must begin with https://HOST",
		"://":                       "parse the URL",
	}
	for raw, want := range tests {
		t.Run(raw, func(t *testing.T) {
			t.Parallel()
			_, err := ParseURL(raw)
			expect.ErrorOrNone(t, err, want)
		})
	}
}

func TestHTTPRun(t *testing.T) {
	t.Parallel()
	s := newSite(t, httptest.NewServer)
	s.answer = body(200, widgetA)
	p := run(t, newHTTP(t, HTTPConfig{URL: s.URL, Interval: time.Hour}))
	p.wait(t, "read", httpA, true)
}
