// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package serving

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	restclient "k8s.io/client-go/rest"

	"github.com/annex-dev/annex/pkg/test/clients"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// requestPause is between two requests of a client: without, twelve take all of the machine.
const requestPause = 100 * time.Millisecond

// writers is a set of clients of the main cluster that do not retry. It counts failures.
type writers struct {
	http   *http.Client
	cancel context.CancelFunc
	group  sync.WaitGroup

	mu       sync.Mutex
	began    time.Time
	requests map[string]int
	failures []failure
	slowest  time.Duration
	// writes are the acknowledged ones by resource version. Deletions return none, so
	// deleted counts them by name.
	writes  map[uint64]change
	deleted map[string]int
}

// failure is a failed request.
type failure struct {
	began time.Time
	what  string
}

// change is the effect of a write, as in a watch event.
type change struct {
	kind, name string
}

func (c change) String() string { return c.kind + " " + c.name }

// startLoad starts clients that run until end is called.
func startWriters(t *testing.T, clients int) *writers {
	t.Helper()
	config := restclient.CopyConfig(mainCluster.Config)
	config.Timeout = 30 * time.Second
	mainHTTP, err := restclient.HTTPClientFor(config)
	expect.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	w := &writers{http: mainHTTP, cancel: cancel, began: time.Now(), requests: map[string]int{}, writes: map[uint64]change{}, deleted: map[string]int{}}
	for i := range clients {
		w.group.Go(func() {
			for round := 0; ctx.Err() == nil; round++ {
				w.live(ctx, fmt.Sprintf("thing-%d-%d-%d", w.began.UnixNano()%1e6, i, round))
			}
		})
	}
	t.Cleanup(w.end)
	return w
}

// end stops the clients after their current requests.
func (w *writers) end() {
	w.cancel()
	w.group.Wait()
}

// waitForRequests waits until more requests were answered.
func (w *writers) waitForRequests(t *testing.T, more int) {
	t.Helper()
	count := func() int {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.total()
	}
	begin := count()
	poll.UntilDone(t, fmt.Sprintf("%d requests", more), func() (bool, string) {
		done := count() - begin
		return done >= more, fmt.Sprintf("%d were answered", done)
	})
}

// total returns the number of requests. The caller locks mu.
func (w *writers) total() int {
	total := 0
	for _, count := range w.requests {
		total += count
	}
	return total
}

// failed returns the failures of requests that began later.
func (w *writers) failed(later time.Time) []failure {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(w.failures), func(f failure) bool { return f.began.Before(later) })
}

// live creates, changes, lists and deletes one thing.
func (w *writers) live(ctx context.Context, name string) {
	object := fmt.Sprintf(`{"apiVersion":"ha.example.com/v1","kind":"Thing","metadata":{"name":%q},"spec":{"step":0,"text":%q}}`, name, strings.Repeat("x", 500))
	if _, ok := w.write(http.MethodPost, "", "application/json", object, change{"ADDED", name}); !ok {
		return
	}
	for step := range 3 {
		if ctx.Err() != nil {
			break
		}
		w.do(http.MethodGet, "/"+name, "", "")
		patch := fmt.Sprintf(`{"spec":{"patched":%d}}`, step)
		made, ok := w.write(http.MethodPatch, "/"+name, "application/merge-patch+json", patch, change{"MODIFIED", name})
		if !ok {
			return
		}
		made.Object["spec"].(map[string]any)["step"] = step + 1
		body, err := json.Marshal(made)
		if err != nil {
			w.fail(time.Now(), "encode: "+err.Error())
			return
		}
		if _, ok := w.write(http.MethodPut, "/"+name, "application/json", string(body), change{"MODIFIED", name}); !ok {
			return
		}
	}
	w.do(http.MethodGet, "", "", "")
	w.do(http.MethodGet, "?resourceVersion=0", "", "")
	if _, ok := w.do(http.MethodDelete, "/"+name, "", ""); ok {
		w.mu.Lock()
		w.deleted[name]++
		w.mu.Unlock()
	}
}

// write sends a write and records its effect.
func (w *writers) write(method, path, contentType, body string, did change) (*unstructured.Unstructured, bool) {
	answer, ok := w.do(method, path, contentType, body)
	if !ok {
		return nil, false
	}
	object := &unstructured.Unstructured{}
	if err := json.Unmarshal(answer, object); err != nil {
		w.fail(time.Now(), fmt.Sprintf("%s %s: %v", method, path, err))
		return nil, false
	}
	version, err := strconv.ParseUint(object.GetResourceVersion(), 10, 64)
	if err != nil {
		w.fail(time.Now(), fmt.Sprintf("%s %s: %v", method, path, err))
		return nil, false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if before, twice := w.writes[version]; twice {
		w.failures = append(w.failures, failure{time.Now(), fmt.Sprintf("%s and %s both have resource version %d", before, did, version)})
	}
	w.writes[version] = did
	return object, true
}

// do sends one request without retries. It completes even if the load is ended, so that its
// effect is known.
func (w *writers) do(method, path, contentType, body string) ([]byte, bool) {
	began := time.Now()
	answer, err := send(context.Background(), w.http, method, path, contentType, body)
	w.mu.Lock()
	w.requests[method]++
	w.slowest = max(w.slowest, time.Since(began))
	w.mu.Unlock()
	defer time.Sleep(requestPause)
	if err != nil {
		w.fail(began, fmt.Sprintf("%s %s: %v", method, path, err))
		return nil, false
	}
	if answer.Code/100 != 2 {
		w.fail(began, fmt.Sprintf("%s %s: %s", method, path, answer))
		return nil, false
	}
	return answer.Body, true
}

// fail records a failure of a request by the time at which it began.
func (w *writers) fail(began time.Time, what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failures = append(w.failures, failure{began, what})
}

// send sends a request for things through the main cluster.
func send(ctx context.Context, mainHTTP *http.Client, method, path, contentType, body string) (clients.Response, error) {
	url := mainCluster.URL + "/apis/ha.example.com/v1/namespaces/" + haNamespace + "/things" + path
	return clients.Send(ctx, mainHTTP, method, url, body, "Content-Type", contentType)
}

// report summarizes requests and failures.
func (w *writers) report() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := fmt.Sprintf("%d requests %v in %s, %d failed, the slowest took %s",
		w.total(), w.requests, time.Since(w.began).Round(time.Second), len(w.failures), w.slowest.Round(time.Millisecond))
	if len(w.failures) > 0 {
		text += "; the first: " + w.failures[0].what
	}
	return text
}
