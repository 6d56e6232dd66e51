// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"context"
	cryptorand "crypto/rand"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	restclient "k8s.io/client-go/rest"

	"github.com/annex-dev/annex/pkg/test/clients"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// incompressible returns random base64 characters, which compress by a quarter.
func incompressible(characters int) string {
	random := rand.NewChaCha8([32]byte{})
	data := make([]byte, characters/4*3)
	random.Read(data)
	return base64.StdEncoding.EncodeToString(data)
}

// TestLargeObject creates, reads, watches, patches and lists an object of 8 MiB, until it is
// too large.
func TestLargeObject(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	widgets := a.installCRD(t, newCRD(t, anySchema))
	widgets.create(t, "v1", "small", "spec: {}")
	events := widgets.watch(t, "v1", metav1.ListOptions{ResourceVersion: widgets.get(t, "v1", "small").GetResourceVersion()})

	data := incompressible(8 << 20)
	object := widgets.object(t, "v1", "large", "spec: {}")
	object.Object["spec"] = map[string]any{"data": data}
	created, err := widgets.in("v1").Create(t.Context(), object, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("create an object of 8 MiB: %.300v", err)
	}
	isWhole := func(what string, got *unstructured.Unstructured) {
		t.Helper()
		if got.GetName() != "large" || field(got, "spec", "data") != data {
			t.Errorf("%s: got %q with %d bytes of data, want large with %d", what, got.GetName(), len(fmt.Sprint(field(got, "spec", "data"))), len(data))
		}
	}
	isWhole("created", created)
	isWhole("read", widgets.get(t, "v1", "large"))
	event := nextEvent(t, events)
	if event.Type != watch.Added {
		t.Fatalf("watched %s %.200v", event.Type, event.Object)
	}
	isWhole("watched", event.Object.(*unstructured.Unstructured))

	patched, err := widgets.patch(t, "v1", "large", `{"metadata":{"labels":{"patched":"yes"}}}`)
	if err != nil {
		t.Fatalf("patch a label: %.300v", err)
	}
	isWhole("patched", patched)
	list, err := widgets.in("v1").List(t.Context(), metav1.ListOptions{LabelSelector: "patched=yes"})
	if err != nil || len(list.Items) != 1 {
		t.Fatalf("list: got %d objects, error %.300v, want one", len(list.Items), err)
	}
	isWhole("listed", &list.Items[0])

	// A small request can make a large object.
	copies := `[{"op":"copy","from":"/spec/data","path":"/spec/again"}]`
	_, err = widgets.in("v1").Patch(t.Context(), "large", types.JSONPatchType, []byte(copies), metav1.PatchOptions{})
	if !apierrors.IsRequestEntityTooLargeError(err) || !strings.Contains(err.Error(), "KiB as it is stored: an object may have 16777216 bytes (--max-object-bytes)") {
		t.Errorf("grow it by a patch that copies: got %.300v, want a 413 with both sizes", err)
	}
	if err := widgets.in("v1").Delete(t.Context(), "large", metav1.DeleteOptions{}); err != nil {
		t.Errorf("delete: %v", err)
	}
}

func TestTooLargeBody(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	widgets := a.installCRD(t, newCRD(t, anySchema))
	answer := a.request(t, http.MethodPost, widgets.path("v1"), strings.Repeat(" ", 18<<20))
	if answer.Code != http.StatusRequestEntityTooLarge || !strings.Contains(string(answer.Body), "the request has 18874368 bytes, the limit is 17825792") {
		t.Errorf("got %.300s, want a 413 with the size and the limit", answer)
	}
}

const reviewsPath = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"

// slowPost is a POST whose body does not end.
type slowPost struct {
	http2 bool
	// length is the declared length, or -1 for a body in chunks; sent is sent at once.
	length int64
	sent   int
	user   string
}

// closed is the code of a request that ended without a response.
const closed, unknown = 0, -1

func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(200 * time.Millisecond):
	}
}

// slowPosts keeps slow POSTs open until the test ends. It repeats those that annex ends,
// and counts their codes.
func (a *annex) slowPosts(t *testing.T, count int, kind slowPost) (codes func(code int) int64) {
	t.Helper()
	login := restclient.AnonymousClientConfig(a.AnnexConfig)
	tlsConfig, err := restclient.TLSConfigFor(login)
	expect.NoError(t, err)
	transport := &http.Transport{TLSClientConfig: tlsConfig, ForceAttemptHTTP2: kind.http2}
	if !kind.http2 {
		transport.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
	}
	ctx, cancel := context.WithCancel(t.Context())
	var seen [600]atomic.Int64
	var running sync.WaitGroup
	var begun atomic.Int64
	for range count {
		running.Go(func() {
			for ctx.Err() == nil {
				body, feed := io.Pipe()
				stop := context.AfterFunc(ctx, func() { _ = feed.CloseWithError(ctx.Err()) })
				request, err := http.NewRequestWithContext(ctx, http.MethodPost, a.URL+reviewsPath, body)
				if err != nil {
					t.Error(err)
					return
				}
				request.ContentLength = kind.length
				request.Header.Set("Content-Type", "application/json")
				if kind.user != "" {
					request.Header.Set("Authorization", "Bearer "+kind.user)
				}
				running.Go(func() {
					if _, err := feed.Write(bytes.Repeat([]byte(" "), kind.sent)); err == nil {
						begun.Add(1)
					}
					for _, err := feed.Write([]byte(" ")); err == nil; _, err = feed.Write([]byte(" ")) {
						pause(ctx)
					}
				})
				answer, err := transport.RoundTrip(request)
				code := closed
				if err == nil {
					_ = answer.Body.Close()
					code = answer.StatusCode
				}
				seen[code].Add(1)
				stop()
				_ = feed.Close()
				_ = body.Close()
				pause(ctx)
			}
		})
	}
	t.Cleanup(func() {
		cancel()
		running.Wait()
		transport.CloseIdleConnections()
	})
	poll.UntilDone(t, "the slow requests have started", func() (bool, string) {
		return begun.Load() >= int64(min(count, 6)), fmt.Sprint(begun.Load())
	})
	return func(code int) int64 { return seen[code].Load() }
}

// prompt bounds a write beside slow ones: annex gives up on those later.
const prompt = 8 * time.Second

// TestSlowBodies sends bodies that never end, with and without the token of a user without
// rights, while others write objects of 2 MB.
func TestSlowBodies(t *testing.T) {
	t.Parallel()
	tokens := writeFile(t, "tokens.csv", []byte("flooder,flooder,1\nneighbour,neighbour,2\n"))
	// With fewer requests in flight, fewer slow ones do as much: each costs the tests beside this one.
	a := startAnnex(t, "--token-auth-file="+tokens, "--max-requests-inflight=80", "--max-mutating-requests-inflight=40")
	widgets := a.installCRD(t, newCRD(t, anySchema))
	a.grant(t, a.newUser(t, "neighbour"), "cluster-admin", widgets.namespace)
	writers := map[string]*http.Client{"a user": a.httpClientAs(t, bearerToken("neighbour")), "the administrator": a.HTTP}
	for _, test := range []struct {
		name  string
		count int
		kind  slowPost
		code  int
	}{
		{"more than the limit", 6, slowPost{length: 16 << 20, sent: 1000, user: "flooder"}, http.StatusRequestEntityTooLarge},
		{"length", 50, slowPost{length: 2 << 20, sent: 1000, user: "flooder"}, unknown},
		{"length, begun", 50, slowPost{length: 2 << 20, sent: 1200 << 10, user: "flooder"}, unknown},
		{"chunks", 6, slowPost{length: -1, sent: 1200 << 10, user: "flooder"}, unknown},
		{"small", 150, slowPost{length: 1000, sent: 10, user: "flooder"}, closed},
		{"HTTP/2, length", 50, slowPost{http2: true, length: 2 << 20, sent: 1000, user: "flooder"}, unknown},
		{"HTTP/2, chunks", 50, slowPost{http2: true, length: -1, sent: 1200 << 10, user: "flooder"}, http.StatusRequestTimeout},
		{"no login", 50, slowPost{length: 16 << 20, sent: 1000}, http.StatusUnauthorized},
		{"no login, HTTP/2", 50, slowPost{http2: true, length: -1, sent: 1000}, http.StatusUnauthorized},
	} {
		t.Run(test.name, func(t *testing.T) {
			codes := a.slowPosts(t, test.count, test.kind)
			for name, login := range writers {
				object := widgets.object(t, "v1", "large-"+strings.ToLower(cryptorand.Text()), "spec: {}")
				object.Object["spec"] = map[string]any{"data": strings.Repeat("x", 2_000_000)}
				large, err := object.MarshalJSON()
				expect.NoError(t, err)
				began := time.Now()
				// Starved writers fail every time, because slow requests are repeated.
				var r response
				for range 6 {
					ctx, cancel := context.WithTimeout(t.Context(), prompt)
					r, err = clients.Send(ctx, login, http.MethodPost, a.URL+widgets.path("v1"), string(large))
					cancel()
					if err == nil {
						break
					}
				}
				t.Logf("%s: %d after %s", name, r.Code, time.Since(began).Round(time.Millisecond))
				if r.Code != http.StatusCreated && r.Code != http.StatusConflict {
					t.Errorf("%s wrote 2 MB and got %.200s, %v, want 201 within %s", name, r, err, prompt)
				}
			}
			if test.code == unknown {
				return // waiting for it takes ten seconds
			}
			poll.UntilDone(t, "annex gives up on slow requests", func() (bool, string) {
				return codes(test.code) > 0, fmt.Sprintf("no answer of code %d (%d is a closed connection)", test.code, closed)
			})
		})
	}
}
