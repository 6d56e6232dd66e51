// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package controllers

import (
	"bufio"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/annex-dev/annex/pkg/test/clients"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

const (
	watchList      = "?watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=60"
	partialObjects = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
)

// openWatchList opens a WatchList. Until the watch cache is warm it gets 429 with Retry-After,
// as from kube-apiserver, and retries as all such clients do.
func openWatchList(t *testing.T, c *endpoint, path, accept string) *http.Response {
	t.Helper()
	var opened *http.Response
	poll.Until(t, "WatchList of "+path+" as "+accept, func() string {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.Config.Host+path+watchList, nil)
		expect.NoError(t, err)
		request.Header.Set("Accept", accept)
		response, err := c.HTTP.Do(request)
		expect.NoError(t, err)
		if response.StatusCode == http.StatusOK {
			opened = response
			return ""
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusTooManyRequests || response.Header.Get("Retry-After") == "" {
			t.Fatalf("WatchList of %s as %s: %s", path, accept, response.Status)
		}
		return response.Status
	})
	return opened
}

// initialEvents opens a WatchList through the main cluster and returns the number of objects
// before the bookmark that ends the initial list.
func initialEvents(t *testing.T, c *endpoint, path, accept string) int {
	t.Helper()
	response := openWatchList(t, c, path, accept)
	defer response.Body.Close()
	// Ends a watch without that bookmark.
	giveUp := time.AfterFunc(poll.Timeout, func() { response.Body.Close() })
	defer giveUp.Stop()
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, 10<<20)
	objects := 0
	for lines.Scan() {
		var event struct {
			Type   string
			Object struct {
				Kind     string
				Metadata metav1.ObjectMeta
			}
		}
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			t.Fatalf("WatchList of %s as %s: %v in %s", path, accept, err, lines.Bytes())
		}
		if strings.Contains(accept, "PartialObjectMetadata") && event.Object.Kind != "PartialObjectMetadata" {
			t.Errorf("WatchList of %s as %s: got a %s", path, accept, event.Object.Kind)
		}
		switch {
		case event.Type == "ADDED":
			objects++
		case event.Type == "BOOKMARK" && event.Object.Metadata.Annotations[metav1.InitialEventsAnnotationKey] == "true":
			return objects
		}
	}
	t.Fatalf("WatchList of %s as %s: no bookmark after %d objects: %v", path, accept, objects, lines.Err())
	return 0
}

// testWatchListThroughTheMainCluster: the bookmark is always sent. Without it a controller of
// the main cluster would wait forever, and stop for all kinds.
func testWatchListThroughTheMainCluster(t *testing.T, s *sharedAnnex) {
	w := s.newWidgets(t)
	mainClients := main(t)
	ofAll := "/apis/" + w.group + "/v1/widgets"
	// The first request for a kind arrives before its watch cache is warm.
	for _, accept := range []string{"application/json", partialObjects} {
		for path, want := range map[string]int{ofAll: 0, w.path(): 0, "/apis/hosting.annex.dev/v1alpha1/stores": 1} {
			if got := initialEvents(t, mainClients, path, accept); got != want {
				t.Errorf("WatchList of %s as %s: %d objects, want %d", path, accept, got, want)
			}
		}
	}
	w.create(t, "one")
	w.create(t, "two")
	for _, accept := range []string{"application/json", partialObjects} {
		for _, path := range []string{ofAll, w.path()} {
			if got := initialEvents(t, mainClients, path, accept); got != 2 {
				t.Errorf("WatchList of %s as %s: %d objects, want 2", path, accept, got)
			}
		}
	}
	if got := initialEvents(t, mainClients, "/apis/hosting.annex.dev/v1alpha1/hostedresources", partialObjects); got == 0 {
		t.Error("no HostedResource")
	}
}

// testReflectorsThroughTheMainCluster: client-go's reflectors start with a WatchList, without
// falling back to a list.
func testReflectorsThroughTheMainCluster(t *testing.T, s *sharedAnnex) {
	w := s.newWidgets(t)
	for _, name := range []string{"one", "two", "three"} {
		w.create(t, name)
	}
	clients.CheckReflectors(t, mainCluster.Config, clients.ListedResource{
		GroupVersionResource: w.resource(), Objects: 3, Namespaces: []string{metav1.NamespaceAll, w.namespace},
	})
}
