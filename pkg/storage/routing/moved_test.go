// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/component-base/metrics/testutil"

	"github.com/annex-dev/annex/pkg/storage/etcd/keys"
	"github.com/annex-dev/annex/pkg/storage/layer/freeze"
	"github.com/annex-dev/annex/pkg/storage/layer/revision"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// closeMoved closes a Store for the HostedResource with the UID "moved", as a move does.
func closeMoved(t *testing.T, store *fakeStore) {
	t.Helper()
	before, err := revision.LoadState(t.Context(), store.client.KV, store.Prefix(), widgets)
	expect.NoError(t, err)
	_, err = store.client.Txn(t.Context()).Then(revision.Close(store.Prefix(), widgets, before, "moved")).Commit()
	expect.NoError(t, err)
}

// TestClosedStore holds requests to a Store that is closed, until it is opened for a HostedResource
// that was created since.
func TestClosedStore(t *testing.T) {
	t.Parallel()
	one := startStore(t, "one")
	w, s := serveWidgets(t, withUID("moved", placedOn("one", "first")), one)
	expect.NoError(t, create(t.Context(), s, widgetKey))
	closeMoved(t, one)
	refused := map[string]chan error{}
	for name, call := range map[string]func(context.Context) error{
		"create": func(ctx context.Context) error { return create(ctx, s, widgetKey+"2") },
		"get": func(ctx context.Context) error {
			return s.Get(ctx, widgetKey, storage.GetOptions{}, &example.Pod{})
		},
	} {
		result := make(chan error, 1)
		refused[name] = result
		go func() { result <- call(t.Context()) }()
	}
	for name, result := range refused {
		message, retryAfter := refusal(t, <-result)
		if want := "annex is moving widgets.example.com, try again"; message != want || retryAfter != 1 {
			t.Errorf("%s: message %q, retry after %d", name, message, retryAfter)
		}
	}
	created := make(chan error, 1)
	go func() { created <- create(t.Context(), s, widgetKey+"3") }()
	w.place(t, withUID("later", placedOn("one", "first")))
	expect.NoError(t, <-created, "a request that was held")
	if state, err := revision.LoadState(t.Context(), one.client.KV, one.Prefix(), widgets); err != nil || state.Closed {
		t.Errorf("the Store is %+v (%v), want open", state, err)
	}
	expectHeld(t, "refused", 2)
}

// TestHeldListBeginsAnew closes a Store before lists: each has read all objects but the last when it is refused, and
// is repeated when the Store is open.
func TestHeldListBeginsAnew(t *testing.T) {
	t.Parallel()
	const objects = 25 // etcd sends them in parts of 10 and more
	one := startStore(t, "one")
	w, s := serveWidgets(t, withUID("moved", placedOn("one", "first")), one)
	for i := range objects {
		expect.NoError(t, create(t.Context(), s, fmt.Sprintf("%s%02d", widgetKey, i)))
	}
	closeMoved(t, one)
	limits := []int64{0, 15}
	lists, results := make([]example.PodList, len(limits)), make(chan error, len(limits))
	for i, limit := range limits {
		page := storage.Everything
		page.Limit = limit
		go func() {
			results <- s.GetList(t.Context(), "/example.com/widgets/", storage.ListOptions{Predicate: page, Recursive: true}, &lists[i])
		}()
	}
	b := s.(*lazyStorage).backend.Load()
	poll.UntilDone(t, "a list is refused", func() (bool, string) { return isClosed(b.changed), "none is" })
	w.place(t, withUID("later", placedOn("one", "first")))
	for range limits {
		expect.NoError(t, <-results)
	}
	expect.Equal(t, []int{objects, 15}, []int{len(lists[0].Items), len(lists[1].Items)}, "objects in each list")
}

// expectHeld checks how many requests waited with this result, at least.
func expectHeld(t *testing.T, result string, want uint64) {
	t.Helper()
	if got, err := testutil.GetHistogramMetricCount(heldSeconds.WithLabelValues(result)); err != nil || got < want {
		t.Errorf("%d requests were held and %s (%v), want %d at least", got, result, err, want)
	}
}

// startHosted starts a Store with one object, placed for the HostedResource with the UID "hosted".
func startHosted(t *testing.T) (w *fixture, s storage.Interface, target freeze.Target) {
	t.Helper()
	one := startStore(t, "one")
	w, s = serveWidgets(t, withUID("hosted", placedOn("one", "first")), one)
	expect.NoError(t, create(t.Context(), s, widgetKey))
	return w, s, freeze.Target{KV: one.client.KV, Prefix: one.Prefix(), Resource: widgets}
}

// TestFrozen holds writes of a resource that is being returned to the main cluster. If it was, clients
// may repeat them at once, except for later ones: those came from a kube-apiserver that lags. Once the objects
// are deleted, requests are refused as before. A HostedResource that is created later opens the Store.
func TestFrozen(t *testing.T) {
	t.Parallel()
	w, s, target := startHosted(t)
	attempts := make(chan struct{}, 1000)
	calls := make(chan error, 2)
	update := func(object runtime.Object, _ storage.ResponseMeta) (runtime.Object, *uint64, error) {
		attempts <- struct{}{}
		object.(*example.Pod).Labels = map[string]string{"changed": rand.Text()}
		return object, nil, nil
	}
	write := WithRepeats(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		calls <- s.GuaranteedUpdate(req.Context(), widgetKey, &example.Pod{}, false, nil, update, nil)
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	// freeze returns what waits for a write that was refused once.
	frozen := keys.Frozen(target.Prefix, widgets)
	freeze := func() (response func() *httptest.ResponseRecorder) {
		_, err := target.KV.Put(t.Context(), frozen, freeze.Returning)
		expect.NoError(t, err)
		recorder, done := httptest.NewRecorder(), make(chan struct{})
		go func() {
			defer close(done)
			write.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodPut, "/", http.NoBody))
		}()
		// One call makes two attempts, the second with the object as it is in etcd.
		for range 3 {
			<-attempts
		}
		expect.NoError(t, s.Get(t.Context(), widgetKey, storage.GetOptions{}, &example.Pod{}), "a read while it is frozen")
		return func() *httptest.ResponseRecorder { <-done; return recorder }
	}

	response := freeze()
	_, err := target.KV.Delete(t.Context(), frozen)
	expect.NoError(t, err)
	response()
	expect.NoError(t, <-calls, "a write that was held until the resource was thawed")
	expectHeld(t, "served", 1)

	response = freeze()
	returnResource(t, target)
	clearObjects(t, target)
	held, later := response(), httptest.NewRecorder()
	write.ServeHTTP(later, httptest.NewRequestWithContext(t.Context(), http.MethodPut, "/", http.NoBody))
	expectHeld(t, "returned", 1)
	err = s.Get(t.Context(), widgetKey, storage.GetOptions{}, &example.Pod{})
	if message, _ := refusal(t, err); message != "annex has returned widgets.example.com to the main cluster, try again" {
		t.Errorf("a read after it was returned: %v", err)
	}
	for recorder, want := range map[*httptest.ResponseRecorder]string{held: "0", later: ""} {
		message, retryAfter := refusal(t, <-calls)
		if message != "annex has returned widgets.example.com to the main cluster, try again" || retryAfter != 1 {
			t.Errorf("message %q, retry after %d", message, retryAfter)
		}
		if got := recorder.Header().Get("Retry-After"); got != want {
			t.Errorf("Retry-After %q, want %q", got, want)
		}
	}

	w.place(t, withUID("later", placedOn("one", "first")))
	poll.UntilNoError(t, "the Store is open without objects", func() error { return create(t.Context(), s, widgetKey) })
}

// TestDefinitionOfReturnedResourceCanBeDeleted lists like the finalizer of a definition.
func TestDefinitionOfReturnedResourceCanBeDeleted(t *testing.T) {
	t.Parallel()
	_, s, target := startHosted(t)
	returnResource(t, target)
	if _, err := list(t.Context(), s, ""); !freeze.IsReturned(err) {
		t.Errorf("a list while there are objects: %v, want a ReturnedError", err)
	}
	clearObjects(t, target)
	if got, err := list(t.Context(), s, ""); err != nil || got != 0 {
		t.Errorf("listed %d objects, error %v, want none", got, err)
	}
	ofClient := request.WithRequestInfo(t.Context(), &request.RequestInfo{})
	if _, err := list(ofClient, s, ""); !freeze.IsReturned(err) {
		t.Errorf("a list of a client: %v, want a ReturnedError", err)
	}
}

// returnResource closes a resource that the main cluster serves, as a move does.
func returnResource(t *testing.T, target freeze.Target) {
	t.Helper()
	state, err := revision.LoadState(t.Context(), target.KV, target.Prefix, target.Resource)
	expect.NoError(t, err)
	_, err = target.KV.Txn(t.Context()).Then(
		revision.Return(target.Prefix, target.Resource, state, "hosted"), clientv3.OpDelete(keys.Frozen(target.Prefix, target.Resource)),
	).Commit()
	expect.NoError(t, err)
}

// clearObjects deletes the objects of a resource that was returned, as a move does.
func clearObjects(t *testing.T, target freeze.Target) {
	t.Helper()
	_, err := target.KV.Delete(t.Context(), keys.Objects(target.Prefix, target.Resource), clientv3.WithPrefix())
	expect.NoError(t, err)
}
