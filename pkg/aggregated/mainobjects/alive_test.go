// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package mainobjects

import (
	"context"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/annex-dev/annex/pkg/storage/move"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// watched is a watch of an API server, on an HTTP/2 connection of its own.
func watched(t *testing.T, definitions http.HandlerFunc) (*httptest.Server, move.Watch) {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if strings.HasSuffix(r.URL.Path, "/customresourcedefinitions/widgets.example.com") {
			definitions(w, r)
			return
		}
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	client, err := ClientFor(&rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{
		CAData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
	}})
	expect.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	w, err := New(client, widgets).Watch(ctx, 1)
	expect.NoError(t, err)
	return server, w
}

func TestCheckAlive(t *testing.T) {
	t.Parallel()
	found := func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"kind":"PartialObjectMetadata"}`))
	}
	t.Run("alive", func(t *testing.T) {
		t.Parallel()
		_, w := watched(t, found)
		expect.NoError(t, w.CheckAlive(t.Context()))
	})
	t.Run("another connection", func(t *testing.T) {
		t.Parallel()
		server, w := watched(t, found)
		server.CloseClientConnections()
		if err := w.CheckAlive(t.Context()); !errors.Is(err, errOtherConnection) {
			t.Errorf("error %v, want %v", err, errOtherConnection)
		}
	})
	t.Run("without etcd", func(t *testing.T) {
		t.Parallel()
		_, w := watched(t, func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "etcd is down", http.StatusInternalServerError)
		})
		expect.Error(t, w.CheckAlive(t.Context()), "check the API server that sends the watch of widgets.example.com")
	})
	t.Run("silent", func(t *testing.T) {
		t.Parallel()
		_, w := watched(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if err := w.CheckAlive(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
	})
}

func TestDecodeCopy(t *testing.T) {
	t.Parallel()
	object, err := decodeObject([]byte(served))
	expect.NoError(t, err)
	object.Value = []byte(strings.Replace(string(object.Value), "example.com/v1", "example.com/other", 1))
	got, err := NewCopy(nil, widgets.GroupResource().WithVersion("other"), "v1").Decode(t.Context(), object)
	expect.NoError(t, err)
	expect.Equal(t, stored, string(got), "object in the stored version")
}
