// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	flowcontrolrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

var errDown = errors.New("connection refused")

// refusal returns the message and the Retry-After of a 503.
func refusal(t *testing.T, err error) (message string, retryAfter int32) {
	t.Helper()
	if !apierrors.IsServiceUnavailable(err) {
		t.Fatalf("error %v, want a 503", err)
	}
	var status apierrors.APIStatus
	errors.As(err, &status)
	return status.Status().Message, status.Status().Details.RetryAfterSeconds
}

func TestEveryResourceGoesToItsStore(t *testing.T) {
	t.Parallel()
	one, two := startStore(t, "default"), startStore(t, "two")
	w := newFixture(t, one, two)
	w.place(t, placedOn("two", "first"))

	custom := w.widgetStorage(t)
	expect.NoError(t, create(t.Context(), custom, widgetKey))
	pinned := w.storageOf(t, w.Pinned(plainOptions{}), schema.GroupResource{Group: "example.com", Resource: "gears"})
	expect.NoError(t, create(t.Context(), pinned, "/example.com/gears/ns/a"))
	if diff := cmp.Diff([]string{"/of-default/example.com/gears/ns/a"}, one.keys(t)); diff != "" {
		t.Errorf("keys in the Store default (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"/of-two/example.com/widgets/ns/a"}, two.keys(t)); diff != "" {
		t.Errorf("keys in the other Store (-want +got):\n%s", diff)
	}
	if got, err := list(t.Context(), custom, ""); err != nil || got != 1 {
		t.Errorf("%d widgets listed (%v), want 1", got, err)
	}
}

// TestRefusedUntilPlaced has the states of a HostedResource in which requests are refused.
func TestRefusedUntilPlaced(t *testing.T) {
	t.Parallel()
	unschedulable := func(hosted *hostingv1alpha1.HostedResource) {
		hosted.Status.Conditions = []metav1.Condition{{
			Type: hostingv1alpha1.HostedResourceScheduled, Status: metav1.ConditionFalse, Reason: "Unschedulable", Message: "0/3 Stores fit: 3 are full",
		}}
	}
	for name, tc := range map[string]struct {
		hosted    func(*hostingv1alpha1.HostedResource)
		undefined bool
		want      string
		wantWait  time.Duration
		wantRetry int32
	}{
		"no HostedResource":           {want: "does not exist yet", wantWait: placementTimeout, wantRetry: 1},
		"not placed":                  {hosted: placedOn("", "first"), want: "has no Store yet", wantWait: placementTimeout, wantRetry: 1},
		"cannot be placed":            {hosted: unschedulable, want: "has no Store: 0/3 Stores fit: 3 are full"},
		"placed without a definition": {hosted: placedOn("default", ""), want: "waits for annex to see the definition", wantWait: placementTimeout, wantRetry: 1},
		"placed for another of them":  {hosted: placedOn("default", "zeroth"), want: "waits for annex to see the definition", wantWait: placementTimeout, wantRetry: 1},
		"definition gone":             {hosted: placedOn("default", ""), undefined: true, want: "is not routed: gone"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newFixture(t, &fakeStore{name: "default"})
				if tc.hosted != nil {
					w.place(t, tc.hosted)
				}
				if tc.undefined {
					w.define("", false)
				}
				synctest.Wait()
				s := w.widgetStorage(t)
				started := time.Now()
				message, retryAfter := refusal(t, create(t.Context(), s, widgetKey))
				if want := "hostedresource widgets.example.com " + tc.want; !strings.HasPrefix(message, want) {
					t.Errorf("message %q, want %q", message, want)
				}
				if got := time.Since(started); got != tc.wantWait {
					t.Errorf("refused after %s, want %s", got, tc.wantWait)
				}
				if retryAfter != tc.wantRetry {
					t.Errorf("retry after %d, want %d", retryAfter, tc.wantRetry)
				}
				if err := s.ReadinessCheck(); err != nil {
					t.Errorf("annex would not be ready: %v", err)
				}
			})
		})
	}
}

func TestRequestWaitsForPlacement(t *testing.T) {
	t.Parallel()
	two := startStore(t, "two")
	w := newFixture(t, two)
	s := w.widgetStorage(t)
	created := make(chan error, 1)
	go func() { created <- create(t.Context(), s, widgetKey) }()
	w.place(t, placedOn("", "first"))
	w.place(t, placedOn("two", "first"))
	if err := <-created; err != nil {
		t.Errorf("a request that came before the Store was chosen failed: %v", err)
	}
}

func TestCancelledRequestDoesNotWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		ctx, cancel := context.WithTimeout(t.Context(), placementTimeout/4)
		defer cancel()
		started := time.Now()
		refusal(t, create(ctx, w.widgetStorage(t), widgetKey))
		if got := time.Since(started); got != placementTimeout/4 {
			t.Errorf("refused after %s, want %s", got, placementTimeout/4)
		}
	})
}

// unansweredKV is an etcd that never answers.
type unansweredKV struct {
	clientv3.KV
	asked atomic.Int32
}

func (kv *unansweredKV) Txn(ctx context.Context) clientv3.Txn { return unansweredTxn{ctx: ctx, kv: kv} }

type unansweredTxn struct {
	clientv3.Txn
	ctx context.Context
	kv  *unansweredKV
}

func (txn unansweredTxn) Then(...clientv3.Op) clientv3.Txn { return txn }

func (txn unansweredTxn) Commit() (*clientv3.TxnResponse, error) {
	txn.kv.asked.Add(1)
	<-txn.ctx.Done()
	return nil, txn.ctx.Err()
}

// TestPrepareAsksAgain sends a request again that etcd does not answer.
func TestPrepareAsksAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		kv := &unansweredKV{}
		client := &kubernetes.Client{Client: clientv3.NewCtxClient(t.Context())}
		client.KV = kv
		s := newLazyStorage(pinned{}, func(name string) (Store, error) {
			return &fakeStore{name: name, client: client, done: make(chan struct{})}, nil
		}, storageConfig{ConfigForResource: &storagebackend.ConfigForResource{GroupResource: widgets}, eager: true})
		if err := s.prepare(); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v, want that the time is over", err)
		}
		if asked := kv.asked.Load(); asked < 2 {
			t.Errorf("etcd was asked %d times, want several", asked)
		}
	})
}

func TestUnavailableStore(t *testing.T) {
	t.Parallel()
	two := startStore(t, "two")
	two.set(errDown)
	_, s := serveWidgets(t, placedOn("two", "first"), two)
	const want = `store "two" is not available: connection refused`

	refused := func(t *testing.T, err error) {
		t.Helper()
		if message, retryAfter := refusal(t, err); message != want || retryAfter != 0 {
			t.Errorf("message %q, retry after %d, want %q and no retry", message, retryAfter, want)
		}
	}
	// Before the first connection.
	refused(t, create(t.Context(), s, widgetKey))
	_, err := list(t.Context(), s, "0")
	refused(t, err)

	two.set(nil)
	expect.NoError(t, create(t.Context(), s, widgetKey), "after it came back")
	waitCached(t, s, 1)
	watcher := watchWidgets(t, s)

	two.set(errDown)
	for name, call := range map[string]func() error{
		"create": func() error { return create(t.Context(), s, widgetKey+"2") },
		"get":    func() error { return s.Get(t.Context(), widgetKey, storage.GetOptions{}, &example.Pod{}) },
		"delete": func() error {
			return s.Delete(t.Context(), widgetKey, &example.Pod{}, nil, storage.ValidateAllObjectFunc, nil, storage.DeleteOptions{})
		},
		"list": func() error { _, err := list(t.Context(), s, ""); return err },
	} {
		t.Run(name, func(t *testing.T) { refused(t, call()) })
	}
	if got, err := list(t.Context(), s, "0"); err != nil || got != 1 {
		t.Errorf("%d widgets listed from memory (%v), want 1", got, err)
	}
	select {
	case event := <-watcher.ResultChan():
		if event.Type != watch.Added {
			t.Errorf("the watch has %s, want the event from before", event.Type)
		}
	case <-time.After(time.Minute):
		t.Error("the watch has no event")
	}
	if err := s.ReadinessCheck(); err != nil {
		t.Errorf("annex would not be ready: %v", err)
	}
	two.set(nil)
	if err := create(t.Context(), s, widgetKey+"2"); err != nil {
		t.Errorf("after it came back again: %v", err)
	}
}

// TestReplacedData replaces the data of a Store: watches of the old data end, and reads return
// the new, also without requests in between.
func TestReplacedData(t *testing.T) {
	t.Parallel()
	before, after := startStore(t, "two"), startStore(t, "two")
	w, s := serveWidgets(t, placedOn("two", "first"), before)
	for _, key := range []string{widgetKey, widgetKey + "2"} {
		expect.NoError(t, create(t.Context(), s, key))
	}
	waitCached(t, s, 2)
	watcher := watchWidgets(t, s)
	w.replace(after)
	waitEnded(t, watcher)
	waitCached(t, s, 0)
	expect.NoError(t, create(t.Context(), s, widgetKey))
	waitCached(t, s, 1)
	if got := before.keys(t); len(got) != 2 {
		t.Errorf("the old data are %q", got)
	}
}

// waitEnded waits until a watch of old data ends.
func waitEnded(t *testing.T, watcher watch.Interface) {
	t.Helper()
	deadline := time.After(time.Minute)
	for {
		select {
		case _, open := <-watcher.ResultChan():
			if !open {
				return
			}
		case <-deadline:
			t.Fatal("the watch of the old data continues")
		}
	}
}

// TestResourceOnAnotherStore creates the HostedResource again on another Store: writes go there,
// and watches of the old one end.
func TestResourceOnAnotherStore(t *testing.T) {
	t.Parallel()
	one, two := startStore(t, "one"), startStore(t, "two")
	w, s := serveWidgets(t, withUID("a", placedOn("one", "first")), one, two)
	expect.NoError(t, create(t.Context(), s, widgetKey))
	waitCached(t, s, 1)
	watcher := watchWidgets(t, s)

	w.place(t, withUID("b", placedOn("two", ""))) // not for this definition yet
	poll.UntilDone(t, "writes are refused", func() (bool, string) {
		return create(t.Context(), s, widgetKey+"2") != nil, "a write is accepted"
	})
	w.place(t, withUID("b", placedOn("two", "first")))
	waitEnded(t, watcher)
	waitCached(t, s, 0)
	expect.NoError(t, create(t.Context(), s, widgetKey+"3"))
	if got := two.keys(t); len(got) != 1 {
		t.Errorf("Store two has %q", got)
	}
	if got := one.keys(t); slices.Contains(got, "/of-one"+widgetKey+"3") {
		t.Errorf("Store one has %q", got)
	}
	before := s.(*lazyStorage).backend.Load()
	w.place(t, withUID("c", placedOn("two", "first")))
	poll.UntilDone(t, "the backend is another", func() (bool, string) {
		return s.(*lazyStorage).backend.Load() != before, "the backend of the previous HostedResource"
	})
	waitCached(t, s, 1)
}

// withUID sets the UID of a HostedResource.
func withUID(uid types.UID, change func(*hostingv1alpha1.HostedResource)) func(*hostingv1alpha1.HostedResource) {
	return func(hosted *hostingv1alpha1.HostedResource) {
		change(hosted)
		hosted.UID = uid
	}
}

func TestUnknownStore(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.place(t, placedOn("nowhere", "first"))
	// The informer may lag behind the HostedResource.
	message, _ := refusal(t, create(t.Context(), w.widgetStorage(t), widgetKey))
	if want := `store "nowhere" is not available: there is no store "nowhere"`; message != want {
		t.Errorf("message %q, want %q", message, want)
	}
}

// TestDefinitionOfUnplacedResourceCanBeDeleted lists like the finalizer of a definition.
func TestDefinitionOfUnplacedResourceCanBeDeleted(t *testing.T) {
	t.Parallel()
	ofClient := request.WithRequestInfo(t.Context(), &request.RequestInfo{})
	for name, tc := range map[string]struct {
		hosted      func(*hostingv1alpha1.HostedResource)
		terminating bool
		ctx         context.Context
		wantErr     bool
	}{
		"never placed":                    {hosted: placedOn("", "first"), terminating: true, ctx: t.Context()},
		"no HostedResource":               {terminating: true, ctx: t.Context()},
		"never placed, asked by a client": {hosted: placedOn("", "first"), terminating: true, ctx: ofClient, wantErr: true},
		"never placed, to stay":           {hosted: placedOn("", "first"), ctx: t.Context(), wantErr: true},
		"placed, Store down":              {hosted: placedOn("default", "first"), terminating: true, ctx: t.Context(), wantErr: true},
		"placed for another definition":   {hosted: placedOn("default", "zeroth"), terminating: true, ctx: t.Context(), wantErr: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newFixture(t, &fakeStore{name: "default", down: errDown})
			if tc.hosted != nil {
				w.place(t, tc.hosted)
			}
			w.define("first", tc.terminating)
			got, err := list(tc.ctx, w.widgetStorage(t), "")
			if (err != nil) != tc.wantErr || got != 0 {
				t.Errorf("listed %d objects, error %v, want error: %v", got, err, tc.wantErr)
			}
		})
	}
}

func TestNoBackendAfterDestroy(t *testing.T) {
	t.Parallel()
	two := startStore(t, "two")
	w := newFixture(t, two)
	w.place(t, placedOn("two", "first"))
	s := w.widgetStorage(t).(*lazyStorage)
	s.destroy()
	s.destroy()
	if err := create(t.Context(), s, widgetKey); !errors.Is(err, errDestroyed) {
		t.Errorf("error %v, want %v", err, errDestroyed)
	}
}

// countingOptions have what upstream counts objects with.
type countingOptions struct {
	tracker flowcontrolrequest.StorageObjectCountTracker
}

func (c countingOptions) GetRESTOptions(resource schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	options, err := plainOptions{}.GetRESTOptions(resource, example)
	options.CountMetricPollPeriod = time.Second
	options.StorageConfig.CountMetricPollPeriod, options.StorageConfig.StorageObjectCountTracker = time.Millisecond, c.tracker
	return options, err
}

// TestObjectsAreCounted checks that objects are counted until the storage is destroyed, and not by
// upstream as well.
func TestObjectsAreCounted(t *testing.T) {
	t.Parallel()
	w := newFixture(t, startStore(t, "two"))
	w.place(t, placedOn("two", "first"))
	counted := flowcontrolrequest.NewStorageObjectCountTracker()
	custom := w.Custom(countingOptions{counted}, w.defined, nil)
	options, err := custom.GetRESTOptions(widgets, nil)
	expect.NoError(t, err)
	expect.Equal(t, time.Duration(0), options.CountMetricPollPeriod, "the period of upstream's counts")
	s := w.storageOf(t, custom, widgets).(*lazyStorage)
	for i, name := range []string{"a", "b"} {
		expect.NoError(t, create(t.Context(), s, "/example.com/widgets/ns/"+name))
		poll.UntilDone(t, "the objects are counted", func() (bool, string) {
			stats, err := counted.Get(widgets.String())
			return err == nil && stats.ObjectCount == int64(i+1), fmt.Sprintf("%+v, %v", stats, err)
		})
	}
	w.DestroyCustom()
	counted.Set(widgets.String(), storage.Stats{ObjectCount: 7})
	s.count() // it returns at once
	stats, err := counted.Get(widgets.String())
	if err != nil || stats.ObjectCount != 7 {
		t.Errorf("after the end the count is %+v, %v", stats, err)
	}
}

// TestPinnedStorageIsRetried builds the storage of a pinned resource while the Store default
// is still starting: upstream panics if that fails.
func TestPinnedStorageIsRetried(t *testing.T) {
	t.Parallel()
	store := startStore(t, "default")
	w := newFixture(t, store)
	store.set(errors.New("etcdserver: request timed out"))
	time.AfterFunc(100*time.Millisecond, func() { store.set(nil) })
	pinned := w.storageOf(t, w.Pinned(plainOptions{}), schema.GroupResource{Group: "example.com", Resource: "gears"})
	if err := create(t.Context(), pinned, "/example.com/gears/ns/a"); err != nil {
		t.Error(err)
	}
}
