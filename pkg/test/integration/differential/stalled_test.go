// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	restclient "k8s.io/client-go/rest"

	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
	"github.com/annex-dev/annex/pkg/test/testserver"
)

const (
	// The connections that do not read would get 360 MB of lists and 360 MB of events.
	stalledObjects, stalledLists, stalledWatches = 100, 60, 60
	stalledText                                  = 60 << 10
	// stalledGrowth is the memory that these connections may take. Buffers of HTTP and TLS are
	// most of it.
	stalledGrowth = 80 << 20
)

// TestStalledClients opens lists and watches that are not read. They take memory for buffers only,
// and other clients miss nothing. A list is complete although its definition was created again
// before it is read.
func TestStalledClients(t *testing.T) {
	annex := testserver.Start(t, "--storage-compression=None")
	s := newServer(t, annex.AnnexConfig, nil)
	create(t, s, definitionsPath, definition("widgets", "Widget", apiextensionsv1.NamespaceScoped))
	objects := s.dynamic.Resource(widgets).Namespace("default")
	poll.UntilNoError(t, "widgets are served", func() error {
		_, err := objects.List(t.Context(), metav1.ListOptions{})
		return err
	})
	var creating errgroup.Group
	creating.SetLimit(4)
	for i := range stalledObjects {
		creating.Go(func() error {
			object := newObject("Widget", "default", i)
			object.SetFinalizers(nil)
			expectSet(object, strings.Repeat("large ", stalledText/6), "spec", "text")
			_, err := objects.Create(t.Context(), object, metav1.CreateOptions{})
			return err
		})
	}
	expect.NoError(t, creating.Wait())
	list, err := objects.List(t.Context(), metav1.ListOptions{Limit: 1})
	expect.NoError(t, err)
	version := list.GetResourceVersion()

	before := heap()
	path := "/apis/" + group + "/v1/namespaces/default/widgets"
	var lists []*http.Response
	for range stalledLists {
		lists = append(lists, stall(t, annex.AnnexConfig, path))
	}
	for range stalledWatches {
		stall(t, annex.AnnexConfig, path+"?watch=true&resourceVersion="+version)
	}
	watcher, err := objects.Watch(t.Context(), metav1.ListOptions{ResourceVersion: version})
	expect.NoError(t, err)
	defer watcher.Stop()
	for i := range stalledObjects {
		_, err := objects.Patch(t.Context(), fmt.Sprintf("object-%03d", i), types.MergePatchType, []byte(`{"spec":{"size":-1}}`), metav1.PatchOptions{})
		expect.NoError(t, err)
		event, open := <-watcher.ResultChan()
		object, _ := event.Object.(*unstructured.Unstructured)
		if !open || object == nil || object.GetName() != fmt.Sprintf("object-%03d", i) {
			t.Fatalf("a client that reads: event %d is %+v", i, event)
		}
	}
	if growth := heap() - before; growth > stalledGrowth {
		t.Errorf("the heap grew by %d MiB, want at most %d", growth>>20, stalledGrowth>>20)
	} else {
		t.Logf("the heap grew by %d MiB", growth>>20)
	}

	crd := definition("widgets", "Widget", apiextensionsv1.NamespaceScoped)
	expect.NoError(t, s.dynamic.Resource(definitions).Delete(t.Context(), crd.Name, metav1.DeleteOptions{}))
	poll.UntilNoError(t, "the definition is created again", func() error { return post(t.Context(), s, definitionsPath, crd) })
	var rest unstructured.UnstructuredList
	expect.NoError(t, json.NewDecoder(lists[0].Body).Decode(&rest), "read a list that began before")
	if len(rest.Items) != stalledObjects {
		t.Errorf("a list that began before has %d objects, want %d", len(rest.Items), stalledObjects)
	}
}

// stall sends a GET, reads the head of the response, and leaves the body.
func stall(t *testing.T, config *restclient.Config, path string) *http.Response {
	t.Helper()
	tlsConfig, err := restclient.TLSConfigFor(config)
	expect.NoError(t, err)
	tlsConfig.NextProtos = []string{"http/1.1"}
	connection, err := (&tls.Dialer{Config: tlsConfig}).DialContext(t.Context(), "tcp", strings.TrimPrefix(config.Host, "https://"))
	expect.NoError(t, err)
	t.Cleanup(func() { _ = connection.Close() })
	_, err = fmt.Fprintf(connection, "GET %s HTTP/1.1\r\nHost: annex\r\nAccept: application/json\r\n\r\n", path)
	expect.NoError(t, err)
	response, err := http.ReadResponse(bufio.NewReaderSize(connection, 512), nil)
	expect.NoError(t, err)
	if response.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(response.Body)
		t.Fatalf("%s: %s: %s", path, response.Status, body)
	}
	return response
}

// heap returns the memory in use after a collection.
func heap() int64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapInuse)
}
