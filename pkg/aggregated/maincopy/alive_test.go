// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincopy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"github.com/annex-dev/annex/pkg/storage/move"
	"github.com/annex-dev/annex/pkg/test/clients"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// startServer serves HTTP/2 until the end of the test, and returns a login to it.
func startServer(t *testing.T, handler http.Handler) (*httptest.Server, *rest.Config) {
	t.Helper()
	server, certificate := clients.ServeTLS(t, handler, &tls.Config{NextProtos: []string{"h2"}})
	return server, &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{CAData: certificate}}
}

// watched is a watch of an API server, on an HTTP/2 connection of its own.
func watched(t *testing.T, apiService, version http.HandlerFunc) (*httptest.Server, move.Watch) {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("/apis/apiregistration.k8s.io/v1/apiservices/v1.example.com", apiService)
	mux.HandleFunc("/version", version)
	mux.HandleFunc("/apis/example.com/v1/widgets", func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	server, login := startServer(t, mux)
	client, err := newPages(login, "the main cluster")
	expect.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	w, err := (&Source{client: client, resource: widgets.Stored}).Watch(ctx, 1)
	expect.NoError(t, err)
	return server, w
}

func respond(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(body))
	}
}

func fail(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "failed", code) }
}

func silent(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

var (
	readMetadata = respond(`{"kind":"PartialObjectMetadata"}`)
	readVersion  = respond(`{"major":"1"}`)
	notFound     = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","reason":"NotFound","code":404}`))
	}
)

func TestCheckAlive(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		apiService http.HandlerFunc
		// reconnect ends the connection of the watch.
		reconnect bool
		want      string
	}{
		"alive":              {readMetadata, false, ""},
		"not found":          {notFound, false, ""},
		"another connection": {readMetadata, true, errOtherConnection.Error()},
		"without etcd":       {fail(http.StatusInternalServerError), false, "check the API server that sends the watch of widgets.example.com"},
		"silent":             {silent, false, context.DeadlineExceeded.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, w := watched(t, tc.apiService, readVersion)
			if tc.reconnect {
				server.CloseClientConnections()
			}
			expect.ErrorOrNone(t, w.CheckAlive(t.Context()), tc.want)
		})
	}
}

// untilAsked returns the first error that says something about the API server: a process that gets no time for most of a
// second sends it no request.
func untilAsked(t *testing.T, untilDead func() error) (err error) {
	t.Helper()
	poll.UntilDone(t, "the process sends its requests in time", func() (bool, string) {
		err = untilDead()
		return !errors.Is(err, errNotAsked), fmt.Sprint(err)
	})
	return err
}

func TestUntilDead(t *testing.T) {
	t.Parallel()
	slow := func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-time.After(900 * time.Millisecond):
			readMetadata(w, r)
		case <-r.Context().Done():
		}
	}
	for name, tc := range map[string]struct {
		apiService, version http.HandlerFunc
		// want is in the error, empty if it is measured.
		want string
	}{
		"fast":                       {readMetadata, readVersion, ""},
		"slow":                       {slow, slow, ""},
		"cut off from etcd":          {silent, readVersion, "has read nothing from etcd"},
		"cut off, version forbidden": {silent, fail(http.StatusForbidden), "has read nothing from etcd"},
		"slow from etcd":             {slow, readVersion, "has read nothing from etcd"},
		"silent":                     {silent, silent, "has not responded"},
		"etcd fails":                 {fail(http.StatusInternalServerError), readVersion, "failed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var measured bool
			err := untilAsked(t, func() error {
				measured = false
				_, w := watched(t, tc.apiService, tc.version)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				return w.UntilDead(ctx, func() {
					measured = true
					cancel()
				})
			})
			if tc.want != "" {
				expect.Error(t, err, tc.want)
			} else if !measured || !errors.Is(err, context.Canceled) {
				t.Errorf("measured %v, error %v", measured, err)
			}
		})
	}
}

// TestSharedQuestions has several watches of a connection.
func TestSharedQuestions(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	err := untilAsked(t, func() error {
		asked.Store(0)
		_, w := watched(t, func(w http.ResponseWriter, r *http.Request) {
			asked.Add(1)
			<-r.Context().Done()
		}, readVersion)
		var all errgroup.Group
		for range 20 {
			all.Go(func() error { return w.UntilDead(t.Context(), func() {}) })
		}
		return all.Wait()
	})
	expect.Error(t, err, "has read nothing from etcd")
	if got, most := asked.Load(), int64(2*maxLimit/askInterval); got > most {
		t.Errorf("%d questions, want at most %d", got, most)
	}
}
