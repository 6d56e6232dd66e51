// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package stores

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/storage/etcd/embeddedetcd/etcdtest"
	"github.com/annex-dev/annex/pkg/storage/etcd/etcdkv"
	"github.com/annex-dev/annex/pkg/storage/etcd/externaletcd"
	"github.com/annex-dev/annex/pkg/storage/etcd/keys"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// dialDirectly returns a client that bypasses annex.
func dialDirectly(t testing.TB, endpoint string) *clientv3.Client {
	t.Helper()
	client, err := externaletcd.Dial([]string{endpoint}, nil, nil)
	expect.NoError(t, err)
	t.Cleanup(func() { client.Close() })
	return client
}

// openPool returns a Pool whose Store "default" is an etcd of its own.
func openPool(t testing.TB, change func(*Config)) *Pool {
	t.Helper()
	etcd := etcdtest.StartTCP(t, nil)
	config := Config{
		Default:            Default{Client: dialDirectly(t, etcd.URL), Endpoints: []string{etcd.URL}, Prefix: "/annex"},
		CompactionInterval: time.Hour,
		ReadSecret: func(_ context.Context, _, name string) (*corev1.Secret, error) {
			return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, name)
		},
	}
	if change != nil {
		change(&config)
	}
	pool, err := Open(t.Context(), config)
	expect.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

func named(t testing.TB, pool *Pool, name string) *Store {
	t.Helper()
	store, err := pool.Get(name)
	expect.NoError(t, err)
	return store
}

// synced returns the Store of an API object.
func synced(t testing.TB, pool *Pool, object *hostingv1alpha1.Store) *Store {
	t.Helper()
	pool.sync(object)
	return named(t, pool, object.Name)
}

// object returns the API object of a Store.
func object(name string, endpoints ...string) *hostingv1alpha1.Store {
	return &hostingv1alpha1.Store{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-of-" + name), Generation: 1},
		Spec:       hostingv1alpha1.StoreSpec{Etcd: &hostingv1alpha1.EtcdStore{Endpoints: endpoints, KeyPrefix: "/annex"}},
	}
}

// claim claims a Store as the controller does.
func claim(t testing.TB, pool *Pool, store *hostingv1alpha1.Store) *Store {
	t.Helper()
	s := synced(t, pool, store)
	awaitReason(t, s, ReasonUnclaimed)
	recordClaim(t, store, s, false)
	pool.sync(store)
	awaitReason(t, s, "")
	return s
}

// recordClaim claims the prefix of a Store and records the result in its API object.
func recordClaim(t testing.TB, object *hostingv1alpha1.Store, s *Store, adopt bool) {
	t.Helper()
	poll.Until(t, "a probe finds the etcd unclaimed", func() string {
		if seen := s.Snapshot(); seen.Unavailable == nil || seen.Cluster == 0 { // a request may have met it before
			return fmt.Sprintf("the last look found %v", seen.Unavailable)
		}
		return ""
	})
	claimed, err := s.Claim(t.Context(), object.UID, adopt)
	expect.NoError(t, err)
	object.Status.ClusterID = FormatClusterID(claimed.Cluster)
	object.Status.History = &hostingv1alpha1.StoreHistory{Epoch: claimed.History.Epoch, Revision: claimed.History.Revision}
}

// awaitReason waits until a Store is unavailable for a reason, or is available.
func awaitReason(t testing.TB, s *Store, want string) {
	t.Helper()
	poll.Until(t, fmt.Sprintf("the Store is unavailable for reason %q", want), func() string {
		err := s.Available()
		var refused *UnavailableError
		switch {
		case err == nil && want == "" && s.breaker.Load().unavailable == nil && s.Snapshot().Unavailable == nil: // requests pass before it is reported
			return ""
		case errors.As(err, &refused) && refused.Reason == want:
			return ""
		}
		return fmt.Sprintf("store %s: %v, want the reason %q", s.Name(), err, want)
	})
}

func put(t *testing.T, s *Store, key, value string) (kubernetes.PutResponse, error) {
	t.Helper()
	return s.Client().Kubernetes.OptimisticPut(t.Context(), keys.Root(s.Prefix())+key, []byte(value), 0, kubernetes.PutOptions{GetOnFailure: true})
}

func get(t *testing.T, s *Store, key string) (string, error) {
	t.Helper()
	response, err := s.Client().Kubernetes.Get(t.Context(), keys.Root(s.Prefix())+key, kubernetes.GetOptions{})
	if err != nil || response.KV == nil {
		return "", err
	}
	return string(response.KV.Value), nil
}

func TestDefaultStore(t *testing.T) {
	t.Parallel()
	pool := openPool(t, nil)
	store := named(t, pool, "default")
	expect.NoError(t, store.Available(), "right after the start")
	_, err := put(t, store, "a", "1")
	expect.NoError(t, err)
	if value, err := get(t, store, "a"); value != "1" || err != nil {
		t.Fatalf("read %q, %v", value, err)
	}
	again, err := put(t, store, "a", "2")
	if err != nil || again.Succeeded || again.KV == nil || string(again.KV.Value) != "1" {
		t.Errorf("a write over another: %+v, %v", again, err)
	}
	if mark := store.Snapshot().Mark; mark == nil || mark.Store != "default" {
		t.Errorf("the prefix has the mark %v", mark)
	}
	if compactor := store.Compactor(); compactor == nil {
		t.Error("no compactor")
	}
}

func TestOnlyOneOwner(t *testing.T) {
	t.Parallel()
	pool := openPool(t, nil)
	etcd := etcdtest.StartTCP(t, nil)
	first := object("first", etcd.URL)
	claim(t, pool, first)

	// A Store with the same prefix, or one below it, is refused; one beside it is not.
	second := object("second", etcd.URL)
	store := synced(t, pool, second)
	awaitReason(t, store, ReasonInUse)
	if _, err := put(t, store, "a", "1"); !isUnavailable(err) || !strings.Contains(err.Error(), `"first"`) {
		t.Errorf("a write to a prefix that is another's: %v", err)
	}
	below := object("below", etcd.URL)
	below.Spec.Etcd.KeyPrefix = "/annex/below"
	store = synced(t, pool, below)
	awaitReason(t, store, ReasonUnclaimed)
	if _, err := store.Claim(t.Context(), below.UID, false); err == nil {
		t.Error("a prefix below another was claimed")
	}
	beside := object("beside", etcd.URL)
	beside.Spec.Etcd.KeyPrefix = "/other"
	claim(t, pool, beside)

	// A deleted Store releases the prefix.
	released := named(t, pool, "first")
	expect.NoError(t, released.Release(t.Context(), first.UID))
	pool.remove("first", "")
	claim(t, pool, second)
	if _, err := put(t, released, "b", "1"); !isUnavailable(err) {
		t.Errorf("a write to a Store that was deleted: %v", err)
	}
	if _, err := pool.Get("first"); !isUnavailable(err) {
		t.Errorf("a Store that was deleted is found: %v", err)
	}

	// The default Store does not take the prefix of another.
	_, err := Open(t.Context(), Config{Default: Default{Client: dialDirectly(t, etcd.URL), Endpoints: []string{etcd.URL}, Prefix: "/annex"}})
	if err == nil || !strings.Contains(err.Error(), "--etcd-prefix") {
		t.Errorf("start on the prefix of another Store: %v", err)
	}
}

func TestOutage(t *testing.T) {
	t.Parallel()
	pool := openPool(t, nil)
	etcd := etcdtest.StartTCP(t, nil)
	store := claim(t, pool, object("far", etcd.URL))
	_, err := put(t, store, "a", "1")
	expect.NoError(t, err)
	watch := store.Client().Watch(t.Context(), "/annex/", clientv3.WithPrefix(), clientv3.WithRev(1))
	if response := <-watch; response.Err() != nil || len(response.Events) == 0 {
		t.Fatalf("watch: %+v", response)
	}

	etcd.Close()
	awaitReason(t, store, ReasonUnreachable)
	_, err = get(t, store, "a")
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Code != 503 || !strings.Contains(err.Error(), `store "far"`) {
		t.Errorf("read from an etcd that is down: %v", err)
	}
	if message := store.Available().Error(); !strings.Contains(message, "connection refused") {
		t.Errorf("it contains no reason: %s", message)
	}
	other := named(t, pool, "default")
	if _, err := get(t, other, "a"); err != nil {
		t.Errorf("another store: %v", err)
	}

	etcd.Start(t)
	awaitReason(t, store, "")
	if value, err := get(t, store, "a"); value != "1" || err != nil {
		t.Errorf("read %q, %v", value, err)
	}
	_, err = put(t, store, "b", "1")
	expect.NoError(t, err)
	for response := range watch {
		if response.Err() != nil {
			t.Fatalf("the watch ended: %v", response.Err())
		}
		if slices.ContainsFunc(response.Events, func(event *clientv3.Event) bool { return string(event.Kv.Key) == "/annex/b" }) {
			break
		}
	}
}

func TestAnotherCluster(t *testing.T) {
	t.Parallel()
	pool := openPool(t, nil)
	right, wrong := etcdtest.StartTCP(t, nil), etcdtest.StartTCP(t, nil)
	far := object("far", right.URL)
	store := claim(t, pool, far)
	_, err := put(t, store, "a", "1")
	expect.NoError(t, err)

	for name, endpoints := range map[string][]string{"only": {wrong.URL}, "one of two": {right.URL, wrong.URL}} {
		moved := far.DeepCopy()
		moved.Generation++
		moved.Spec.Etcd.Endpoints = endpoints
		pool.sync(moved)
		awaitReason(t, store, ReasonWrongCluster)
		if _, err := put(t, store, "b", "1"); !isUnavailable(err) {
			t.Errorf("%s: a write to another cluster: %v", name, err)
		}
		if value, err := get(t, store, "a"); !isUnavailable(err) {
			t.Errorf("%s: a read from another cluster: %q, %v", name, value, err)
		}
		pool.sync(far)
		awaitReason(t, store, "")
	}
	if found, err := dialDirectly(t, wrong.URL).Get(t.Context(), "", clientv3.WithPrefix()); err != nil || len(found.Kvs) > 0 {
		t.Errorf("the other cluster has %v, %v", found.Kvs, err)
	}
	if value, err := get(t, store, "a"); value != "1" || err != nil {
		t.Errorf("back at the right one: %q, %v", value, err)
	}
}

// TestClusterReplacedBetweenProbes: no request is admitted, because each is checked by itself.
func TestClusterReplacedBetweenProbes(t *testing.T) {
	t.Parallel()
	pool := openPool(t, nil)
	right, wrong := etcdtest.StartTCP(t, nil), etcdtest.StartTCP(t, nil)
	store := claim(t, pool, object("far", right.URL))
	honest := store.breaker.Load()

	// A breaker with another cluster than the connection's.
	deceived := func(cluster uint64, fence *fence) {
		conn := newConnection(target{endpoints: []string{wrong.URL}, prefix: "/annex"}, nil, dialDirectly(t, wrong.URL), true)
		store.breaker.Store(newBreaker(nil, conn, cluster, fence))
	}
	deceived(honest.cluster, honest.fence)
	if _, err := put(t, store, "b", "1"); !isUnavailable(err) {
		t.Errorf("a transaction: %v", err)
	}
	deceived(honest.cluster, honest.fence)
	if _, err := store.Client().Put(t.Context(), "/annex/b", "1"); !isUnavailable(err) {
		t.Errorf("a put: %v", err)
	}
	deceived(honest.cluster, honest.fence)
	if value, err := get(t, store, "a"); !isUnavailable(err) {
		t.Errorf("a get: %q, %v", value, err)
	}
	deceived(honest.cluster, honest.fence)
	if stream, err := store.Client().GetStream(t.Context(), "/annex/", clientv3.WithPrefix()); err != nil {
		t.Errorf("a stream: %v", err)
	} else if _, err := clientv3.GetStreamToGetResponse(stream); !isUnavailable(err) {
		t.Errorf("a stream: %v", err)
	}
	deceived(honest.cluster, honest.fence)
	watch := store.Client().Watch(t.Context(), "/annex/", clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	if response := <-watch; response.Err() == nil {
		t.Errorf("a watch: %+v", response)
	}
	// A cluster with the right ID and replaced data has no mark.
	deceived(uint64(wrong.Server.Cluster().ID()), honest.fence)
	if _, err := put(t, store, "b", "1"); err == nil || !strings.Contains(err.Error(), "mark") {
		t.Errorf("a write to a cluster whose data are gone: %v", err)
	}
	if found, err := dialDirectly(t, wrong.URL).Get(t.Context(), "", clientv3.WithPrefix()); err != nil || len(found.Kvs) > 0 {
		t.Errorf("the other cluster has %v, %v", found.Kvs, err)
	}
}

func TestDataReplaced(t *testing.T) {
	t.Parallel()
	pool := openPool(t, nil)
	etcd := etcdtest.StartTCP(t, nil)
	store := claim(t, pool, object("far", etcd.URL))
	_, err := dialDirectly(t, etcd.URL).Delete(t.Context(), "/annex/", clientv3.WithPrefix())
	expect.NoError(t, err)
	if _, err := put(t, store, "a", "1"); !isUnavailable(err) || !strings.Contains(err.Error(), "replaced or removed") {
		t.Errorf("a write to a prefix that was emptied: %v", err)
	}
	awaitReason(t, store, ReasonDataReplaced)
}

// TestAdoptedDataReplaceTheStore: after an adoption, requests through the old Store fail.
func TestAdoptedDataReplaceTheStore(t *testing.T) {
	t.Parallel()
	pool := openPool(t, nil)
	etcd := etcdtest.StartTCP(t, nil)
	far := object("far", etcd.URL)
	before := claim(t, pool, far)
	watch := before.Client().Watch(t.Context(), "/annex/a", clientv3.WithRev(1000))
	_, err := dialDirectly(t, etcd.URL).Delete(t.Context(), "/annex/", clientv3.WithPrefix())
	expect.NoError(t, err)
	awaitReason(t, before, ReasonDataReplaced)
	select {
	case <-before.Done():
		t.Fatal("the Store is replaced before the adoption")
	default:
	}
	recordClaim(t, far, before, true)
	pool.sync(far)
	<-before.Done()
	after := named(t, pool, "far")
	awaitReason(t, after, "")
	if _, err := put(t, after, "a", "1"); err != nil {
		t.Error(err)
	}
	awaitReason(t, before, ReasonDataReplaced)
	if value, err := get(t, before, "a"); !isUnavailable(err) {
		t.Errorf("read through the old one: %q, %v", value, err)
	}
	for response := range watch {
		if response.Err() == nil && !response.Created {
			t.Errorf("the watch of a revision of the old data continues: %+v", response)
		}
	}
}

func TestUnknownStore(t *testing.T) {
	t.Parallel()
	pool := openPool(t, nil)
	if _, err := pool.Get("nowhere"); err == nil || err.Error() != `store "nowhere" is not available: it does not exist` {
		t.Errorf("got %v", err)
	}
}

// TestImitation connects a Store to a server that is no etcd, and later to an etcd.
func TestImitation(t *testing.T) {
	t.Parallel()
	pool := openPool(t, nil)
	far := object("far", (&etcdtest.Imitation{Cluster: 7}).Start(t))
	store := synced(t, pool, far)
	awaitReason(t, store, ReasonNotEtcd)
	if _, err := put(t, store, "a", "1"); !isUnavailable(err) || !strings.Contains(err.Error(), "only imitates one: it does not perform transactions as etcd does: unsupported transaction") {
		t.Errorf("a write: %v", err)
	}
	far.Spec.Etcd.Endpoints, far.Generation = []string{etcdtest.StartTCP(t, nil).URL}, 2
	claim(t, pool, far)
}

// TestOtherwise: transactions may only read if their conditions do not hold, also in a transaction of their own.
func TestOtherwise(t *testing.T) {
	t.Parallel()
	pool := openPool(t, nil)
	claimed := claim(t, pool, object("far", etcdtest.StartTCP(t, nil).URL))
	put := clientv3.OpPut("/annex/b", "1")
	absent := clientv3.Compare(clientv3.CreateRevision("/annex/a"), "=", 0)
	for _, store := range []*Store{named(t, pool, hostingv1alpha1.DefaultStoreName), claimed} {
		kv := store.Client().KV
		_, err := kv.Put(t.Context(), "/annex/a", "1")
		expect.NoError(t, err)
		for name, write := range map[string]clientv3.Op{
			"put": put, "nested": clientv3.OpTxn(nil, []clientv3.Op{put}, nil), "nested otherwise": clientv3.OpTxn([]clientv3.Cmp{absent}, nil, []clientv3.Op{put}),
		} {
			if _, err := kv.Txn(t.Context()).If(absent).Else(write).Commit(); !errors.Is(err, etcdkv.ErrWriteOtherwise) {
				t.Errorf("%s: %s: %v", store.Name(), name, err)
			}
		}
		r, err := kv.Txn(t.Context()).If(absent).Then(put).
			Else(clientv3.OpTxn([]clientv3.Cmp{absent}, nil, nil), clientv3.OpTxn(nil, []clientv3.Op{clientv3.OpGet("/annex/a")}, nil)).Commit()
		expect.NoError(t, err, "read in %s", store.Name())
		if nested := r.Responses; r.Succeeded || nested[0].GetResponseTxn().Succeeded || nested[1].GetResponseTxn().Responses[0].GetResponseRange().Count != 1 {
			t.Errorf("%s: responses %v", store.Name(), r.Responses)
		}
	}
}
