// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package clients

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/annex-dev/annex/pkg/test/expect"
)

// Response is a response with its whole body.
type Response struct {
	Code   int
	Header http.Header
	Body   []byte
}

// String returns code and body.
func (r Response) String() string { return fmt.Sprintf("%d %s", r.Code, r.Body) }

// Into decodes the body.
func (r Response) Into(t testing.TB, target any) {
	t.Helper()
	expect.NoError(t, json.Unmarshal(r.Body, target), "decode %s", r)
}

// Expect fails the test if the response has another code. The explanation is a format with its
// arguments.
func (r Response) Expect(t testing.TB, code int, explanation ...any) {
	t.Helper()
	r.ExpectText(t, code, "", explanation...)
}

// ExpectText is Expect for a response whose body has to contain a text.
func (r Response) ExpectText(t testing.TB, code int, text string, explanation ...any) {
	t.Helper()
	if r.Code != code || !strings.Contains(string(r.Body), text) {
		t.Error(expect.Explain(fmt.Sprintf("%s, want %d %s", r, code, text), explanation...))
	}
}

// Send sends one request. Headers come in pairs; without a Content-Type a body is JSON.
func Send(ctx context.Context, client *http.Client, method, url, body string, headers ...string) (Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return Response{}, err
	}
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	answer, err := client.Do(request)
	if err != nil {
		return Response{}, err
	}
	defer answer.Body.Close()
	content, err := io.ReadAll(answer.Body)
	return Response{Code: answer.StatusCode, Header: answer.Header, Body: bytes.TrimSpace(content)}, err
}

// ServeTLS serves until the end of the test, with a certificate that signs itself if the configuration has none. Clients
// may fail to connect, or give up.
func ServeTLS(t testing.TB, handler http.Handler, config *tls.Config) (server *httptest.Server, certificate []byte) {
	t.Helper()
	server = httptest.NewUnstartedServer(handler)
	server.TLS = config
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
}
