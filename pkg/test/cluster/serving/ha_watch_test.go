// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package serving

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	restclient "k8s.io/client-go/rest"

	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// watcher watches things like a reflector: it lists once, and resumes ended watches from the
// last resource version.
type watcher struct {
	http   *http.Client
	cancel context.CancelFunc
	done   chan struct{}

	mu       sync.Mutex
	from     uint64 // of the list
	last     uint64
	events   []event
	watches  int
	abrupt   []string // errors of watches that did not end cleanly
	problems []string
}

// event is a watch event.
type event struct {
	change
	version uint64
}

// startWatch lists, and starts a watch.
func startWatch(t *testing.T) *watcher {
	t.Helper()
	mainHTTP, err := restclient.HTTPClientFor(mainCluster.Config)
	expect.NoError(t, err)
	answer, err := send(t.Context(), mainHTTP, http.MethodGet, "", "", "")
	if err != nil || answer.Code != http.StatusOK {
		t.Fatalf("list: %s, error %v", answer, err)
	}
	list := &unstructured.UnstructuredList{}
	answer.Into(t, list)
	from, err := strconv.ParseUint(list.GetResourceVersion(), 10, 64)
	expect.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	w := &watcher{http: mainHTTP, cancel: cancel, done: make(chan struct{}), from: from, last: from}
	go func() {
		defer close(w.done)
		for ctx.Err() == nil {
			if err := w.watch(ctx); err != nil && ctx.Err() == nil {
				w.mu.Lock()
				w.abrupt = append(w.abrupt, err.Error())
				w.mu.Unlock()
				time.Sleep(50 * time.Millisecond)
			}
		}
	}()
	t.Cleanup(w.end)
	return w
}

func (w *watcher) end() {
	w.cancel()
	<-w.done
}

// watch records events until the server ends the watch.
func (w *watcher) watch(ctx context.Context) error {
	w.mu.Lock()
	w.watches++
	url := fmt.Sprintf("%s/apis/ha.example.com/v1/namespaces/%s/things?watch=true&allowWatchBookmarks=true&resourceVersion=%d", mainCluster.URL, haNamespace, w.last)
	w.mu.Unlock()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	response, err := w.http.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(response.Body)
		return fmt.Errorf("%s: %s", response.Status, body)
	}
	for decoder := json.NewDecoder(response.Body); ; {
		var said struct {
			Type   string
			Object unstructured.Unstructured
		}
		if err := decoder.Decode(&said); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		w.note(said.Type, &said.Object)
	}
}

func (w *watcher) note(kind string, object *unstructured.Unstructured) {
	w.mu.Lock()
	defer w.mu.Unlock()
	version, err := strconv.ParseUint(object.GetResourceVersion(), 10, 64)
	switch {
	case kind == "ERROR" || err != nil:
		w.problems = append(w.problems, fmt.Sprintf("%s %v, %v", kind, object.Object, err))
		return
	case kind == "BOOKMARK" && version < w.last, kind != "BOOKMARK" && version <= w.last:
		w.problems = append(w.problems, fmt.Sprintf("%s %s at %d came after %d", kind, object.GetName(), version, w.last))
	}
	w.last = max(w.last, version)
	if kind != "BOOKMARK" {
		w.events = append(w.events, event{change{kind, object.GetName()}, version})
	}
}

// check waits until the watch has caught up with the ended load, and fails unless it has
// received exactly one event for each acknowledged write.
func (w *watcher) check(t *testing.T, l *writers) {
	t.Helper()
	var newest uint64
	for version := range l.writes {
		newest = max(newest, version)
	}
	deletions := 0
	for _, count := range l.deleted {
		deletions += count
	}
	poll.UntilDone(t, "the watch catches up", func() (bool, string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		deleted := 0
		for _, e := range w.events {
			if e.kind == "DELETED" {
				deleted++
			}
		}
		return w.last >= newest && deleted >= deletions, fmt.Sprintf("at %d of %d, with %d of %d deletions", w.last, newest, deleted, deletions)
	})
	w.end()
	w.mu.Lock()
	defer w.mu.Unlock()
	problems := slices.Clone(w.problems)
	seen, deleted := map[uint64]bool{}, map[string]int{}
	for _, e := range w.events {
		if e.kind == "DELETED" {
			deleted[e.name]++
			continue
		}
		did, acknowledged := l.writes[e.version]
		switch {
		case seen[e.version]:
			problems = append(problems, fmt.Sprintf("%s at %d was received twice", e.change, e.version))
		case !acknowledged && len(l.failures) == 0:
			problems = append(problems, fmt.Sprintf("%s at %d was never written", e.change, e.version))
		case acknowledged && did != e.change:
			problems = append(problems, fmt.Sprintf("%s at %d was %s", e.change, e.version, did))
		}
		seen[e.version] = true
	}
	for version, did := range l.writes {
		if version > w.from && !seen[version] {
			problems = append(problems, fmt.Sprintf("%s at %d was missed", did, version))
		}
	}
	for name, count := range l.deleted {
		if deleted[name] != count {
			problems = append(problems, fmt.Sprintf("%s was deleted %d times, received %d times", name, count, deleted[name]))
		}
	}
	for _, problem := range problems[:min(len(problems), 10)] {
		t.Error(problem)
	}
	if len(problems) > 10 {
		t.Errorf("and %d more", len(problems)-10)
	}
}
