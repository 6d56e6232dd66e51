// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package clients

import (
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/metadata/metadatainformer"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/annex-dev/annex/pkg/test/poll"
)

// ListedResource has a number of objects in each of the namespaces.
type ListedResource struct {
	schema.GroupVersionResource

	Objects    int
	Namespaces []string
}

// listRecorder records plain lists: reflectors fall back to one if the WatchList is refused, sends
// no bookmark, or fails.
type listRecorder struct {
	http.RoundTripper

	mu sync.Mutex
	// lists are the lists that no failure of the server explains.
	lists []string
	// watches are the last ones, by pathAndFormat.
	watches map[string]*recordedWatch
}

// recordedWatch is a watch and the end of its body.
type recordedWatch struct {
	io.ReadCloser
	recorder *listRecorder
	// status is the status of the response, or the error.
	status string
	failed bool
	tail   []byte
}

// tailBytes are enough for the last event of a watch that ends with an error.
const tailBytes = 1 << 10

// Read implements io.Reader.
func (w *recordedWatch) Read(p []byte) (int, error) {
	n, err := w.ReadCloser.Read(p)
	w.recorder.mu.Lock()
	defer w.recorder.mu.Unlock()
	w.tail = append(w.tail, p[:n]...)
	w.tail = w.tail[max(0, len(w.tail)-tailBytes):]
	return n, err
}

// RoundTrip implements http.RoundTripper.
func (l *listRecorder) RoundTrip(r *http.Request) (*http.Response, error) {
	watch := r.URL.Query().Has("watch")
	if r.Method == http.MethodGet && !watch {
		l.recordList(r)
	}
	response, err := l.RoundTripper.RoundTrip(r)
	if watch {
		l.recordWatch(r, response, err)
	}
	return response, err
}

// pathAndFormat distinguishes the reflectors.
func pathAndFormat(r *http.Request) string { return r.URL.Path + " " + r.Header.Get("Accept") }

func (l *listRecorder) recordList(r *http.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if before := l.watches[pathAndFormat(r)]; before == nil {
		l.lists = append(l.lists, r.URL.String()+" without a watch")
	} else if !before.failed {
		l.lists = append(l.lists, fmt.Sprintf("%s after a watch with status %s that ended with %q", r.URL, before.status, before.tail))
	}
}

func (l *listRecorder) recordWatch(r *http.Request, response *http.Response, err error) {
	w := &recordedWatch{recorder: l, failed: err != nil, status: fmt.Sprint(err)}
	if err == nil {
		w.ReadCloser, w.status, w.failed = response.Body, response.Status, response.StatusCode >= http.StatusInternalServerError
		response.Body = w
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watches[pathAndFormat(r)] = w
}

// CheckReflectors runs informers of objects and of metadata for all resources and namespaces at once.
// The test fails if one lacks objects, or does not sync by WatchList: sends a plain list.
func CheckReflectors(t *testing.T, config *restclient.Config, resources ...ListedResource) {
	t.Helper()
	recorder := &listRecorder{watches: map[string]*recordedWatch{}}
	config = restclient.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		recorder.RoundTripper = next
		return recorder
	})
	c := For(t, config)
	informers, want := map[string]cache.SharedIndexInformer{}, map[string]int{}
	for _, resource := range resources {
		for _, namespace := range resource.Namespaces {
			name := fmt.Sprintf("%s in %q", resource.GroupResource(), namespace)
			informers["objects of "+name] = dynamicinformer.NewFilteredDynamicInformer(c.Dynamic, resource.GroupVersionResource, namespace, 0, cache.Indexers{}, nil).Informer()
			informers["metadata of "+name] = metadatainformer.NewFilteredMetadataInformer(c.Metadata, resource.GroupVersionResource, namespace, 0, cache.Indexers{}, nil).Informer()
			want["objects of "+name], want["metadata of "+name] = resource.Objects, resource.Objects
		}
	}
	for _, informer := range informers {
		go informer.RunWithContext(t.Context())
	}
	for name, informer := range informers {
		poll.UntilDone(t, name+" are synced", func() (bool, string) {
			return informer.HasSynced(), "not synced"
		})
		if got := len(informer.GetStore().ListKeys()); got != want[name] {
			t.Errorf("%s: %d objects, want %d", name, got, want[name])
		}
	}
	recorder.mu.Lock()
	defer recorder.mu.Unlock()
	for _, list := range recorder.lists {
		t.Errorf("a plain list was sent: %s", list)
	}
}
