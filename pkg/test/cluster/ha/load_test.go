// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package ha

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	restclient "k8s.io/client-go/rest"

	"github.com/annex-dev/annex/pkg/test/clients"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// load is a set of clients of the main cluster that do not retry. It counts failures.
type load struct {
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
	at   time.Time
	what string
}

// change is the effect of a write, as in a watch event.
type change struct {
	kind, name string
}

func (c change) String() string { return c.kind + " " + c.name }

// startLoad starts clients that run until end is called.
func startLoad(t *testing.T, clients int) *load {
	t.Helper()
	config := restclient.CopyConfig(mainCluster.Config)
	config.Timeout = 30 * time.Second
	mainHTTP, err := restclient.HTTPClientFor(config)
	expect.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{http: mainHTTP, cancel: cancel, began: time.Now(), requests: map[string]int{}, writes: map[uint64]change{}, deleted: map[string]int{}}
	for i := range clients {
		l.group.Go(func() {
			for round := 0; ctx.Err() == nil; round++ {
				l.live(ctx, fmt.Sprintf("thing-%d-%d-%d", l.began.UnixNano()%1e6, i, round))
			}
		})
	}
	t.Cleanup(l.end)
	return l
}

// end stops the clients after their current requests.
func (l *load) end() {
	l.cancel()
	l.group.Wait()
}

// live creates, changes, lists and deletes one thing.
func (l *load) live(ctx context.Context, name string) {
	object := fmt.Sprintf(`{"apiVersion":"ha.example.com/v1","kind":"Thing","metadata":{"name":%q},"spec":{"step":0,"text":%q}}`, name, strings.Repeat("x", 500))
	if _, ok := l.write(http.MethodPost, "", "application/json", object, change{"ADDED", name}); !ok {
		return
	}
	for step := range 3 {
		if ctx.Err() != nil {
			break
		}
		l.do(http.MethodGet, "/"+name, "", "")
		patch := fmt.Sprintf(`{"spec":{"patched":%d}}`, step)
		made, ok := l.write(http.MethodPatch, "/"+name, "application/merge-patch+json", patch, change{"MODIFIED", name})
		if !ok {
			return
		}
		made.Object["spec"].(map[string]any)["step"] = step + 1
		body, err := json.Marshal(made)
		if err != nil {
			l.fail("encode: " + err.Error())
			return
		}
		if _, ok := l.write(http.MethodPut, "/"+name, "application/json", string(body), change{"MODIFIED", name}); !ok {
			return
		}
	}
	l.do(http.MethodGet, "", "", "")
	l.do(http.MethodGet, "?resourceVersion=0", "", "")
	if _, ok := l.do(http.MethodDelete, "/"+name, "", ""); ok {
		l.mu.Lock()
		l.deleted[name]++
		l.mu.Unlock()
	}
}

// write sends a write and records its effect.
func (l *load) write(method, path, contentType, body string, did change) (*unstructured.Unstructured, bool) {
	answer, ok := l.do(method, path, contentType, body)
	if !ok {
		return nil, false
	}
	object := &unstructured.Unstructured{}
	if err := json.Unmarshal(answer, object); err != nil {
		l.fail(fmt.Sprintf("%s %s: %v", method, path, err))
		return nil, false
	}
	version, err := strconv.ParseUint(object.GetResourceVersion(), 10, 64)
	if err != nil {
		l.fail(fmt.Sprintf("%s %s: %v", method, path, err))
		return nil, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if before, twice := l.writes[version]; twice {
		l.failures = append(l.failures, failure{time.Now(), fmt.Sprintf("%s and %s both have resource version %d", before, did, version)})
	}
	l.writes[version] = did
	return object, true
}

// do sends one request without retries. It completes even if the load is ended, so that its
// effect is known.
func (l *load) do(method, path, contentType, body string) ([]byte, bool) {
	began := time.Now()
	answer, err := send(context.Background(), l.http, method, path, contentType, body)
	l.mu.Lock()
	l.requests[method]++
	l.slowest = max(l.slowest, time.Since(began))
	l.mu.Unlock()
	if err != nil {
		l.fail(fmt.Sprintf("%s %s: %v", method, path, err))
		return nil, false
	}
	if answer.Code/100 != 2 {
		l.fail(fmt.Sprintf("%s %s: %s", method, path, answer))
		return nil, false
	}
	return answer.Body, true
}

func (l *load) fail(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failures = append(l.failures, failure{time.Now(), what})
}

// send sends a request for things through the main cluster.
func send(ctx context.Context, mainHTTP *http.Client, method, path, contentType, body string) (clients.Response, error) {
	url := mainCluster.URL + "/apis/ha.example.com/v1/namespaces/" + namespace + "/things" + path
	return clients.Send(ctx, mainHTTP, method, url, body, "Content-Type", contentType)
}

// report summarizes requests and failures.
func (l *load) report() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	total := 0
	for _, count := range l.requests {
		total += count
	}
	text := fmt.Sprintf("%d requests %v in %s, %d failed, the slowest took %s",
		total, l.requests, time.Since(l.began).Round(time.Second), len(l.failures), l.slowest.Round(time.Millisecond))
	if len(l.failures) > 0 {
		first, last := l.failures[0], l.failures[len(l.failures)-1]
		text += fmt.Sprintf("; %s between the first and the last failure; the first: %s", last.at.Sub(first.at).Round(time.Millisecond), first.what)
	}
	return text
}
