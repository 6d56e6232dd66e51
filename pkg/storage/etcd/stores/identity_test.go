// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package stores

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/storage/etcd/embeddedetcd/etcdtest"
	"github.com/annex-dev/annex/pkg/storage/etcd/keys"
	"github.com/annex-dev/annex/pkg/storage/layer/revision"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// copyData copies the data of a stopped etcd.
func copyData(t *testing.T, etcd *etcdtest.TCP, dir string) {
	t.Helper()
	expect.NoError(t, os.RemoveAll(dir))
	expect.NoError(t, os.CopyFS(dir, os.DirFS(etcd.Config.Dir)))
}

// replaceData starts an etcd with the same endpoint and cluster ID and other data.
func replaceData(t *testing.T, etcd *etcdtest.TCP, dir string) {
	t.Helper()
	etcd.Config.Dir = dir
	etcd.Start(t)
}

// writeDirectly writes without annex, so that the etcd is ahead.
func writeDirectly(t *testing.T, etcd *etcdtest.TCP, writes int) {
	t.Helper()
	client := dialDirectly(t, etcd.URL)
	for i := range writes {
		_, err := client.Put(t.Context(), "elsewhere", fmt.Sprint(i))
		expect.NoError(t, err)
	}
}

// stopProbes stops the probes of a Store, so that only requests detect changes.
func stopProbes(t *testing.T, s *Store) {
	t.Helper()
	s.stop()
	s.running.Wait()
}

// TestReplacedDataAtSameEndpoint replaces the data of an etcd between probes of the Store: every
// kind of request detects it by itself, and nothing is written.
func TestReplacedDataAtSameEndpoint(t *testing.T) {
	t.Parallel()
	requests := map[string]func(t *testing.T, s *Store) error{
		"get": func(t *testing.T, s *Store) error { _, err := get(t, s, "a"); return err },
		"list": func(t *testing.T, s *Store) error {
			_, err := s.Client().KV.Get(t.Context(), "/annex/", clientv3.WithPrefix())
			return err
		},
		"create": func(t *testing.T, s *Store) error { _, err := put(t, s, "new", "1"); return err },
		"put": func(t *testing.T, s *Store) error {
			_, err := s.Client().Put(t.Context(), "/annex/new", "1")
			return err
		},
		"delete": func(t *testing.T, s *Store) error {
			_, err := s.Client().Delete(t.Context(), "/annex/a")
			return err
		},
		"read-only transaction": func(t *testing.T, s *Store) error {
			_, err := revision.Load(t.Context(), s.Client().KV, "/annex", schema.GroupResource{Resource: "any"})
			return err
		},
		"stream": func(t *testing.T, s *Store) error {
			stream, err := s.Client().GetStream(t.Context(), "/annex/", clientv3.WithPrefix())
			if err != nil {
				return err
			}
			_, err = clientv3.GetStreamToGetResponse(stream)
			return err
		},
		"watch": func(t *testing.T, s *Store) error {
			response := <-s.Client().Watch(t.Context(), "/annex/", clientv3.WithPrefix(), clientv3.WithCreatedNotify())
			if len(response.Events) > 0 || response.Created {
				return fmt.Errorf("it sent %+v", response)
			}
			if !response.Canceled || s.breaker.Load().unavailable == nil {
				return response.Err()
			}
			return s.breaker.Load().unavailable
		},
	}
	for name, tc := range map[string]struct {
		// replace replaces the data of a stopped etcd; earlier is a copy from before the last
		// writes.
		replace func(t *testing.T, etcd *etcdtest.TCP, earlier string)
		reason  string
	}{
		"emptied": {func(t *testing.T, etcd *etcdtest.TCP, _ string) { replaceData(t, etcd, t.TempDir()) }, ReasonDataReplaced},
		"emptied and ahead": {func(t *testing.T, etcd *etcdtest.TCP, _ string) {
			replaceData(t, etcd, t.TempDir())
			writeDirectly(t, etcd, 50)
		}, ReasonDataReplaced},
		"emptied and claimed again": {func(t *testing.T, etcd *etcdtest.TCP, _ string) {
			replaceData(t, etcd, t.TempDir())
			value, err := newMark("far", "uid-of-far").encode()
			expect.NoError(t, err)
			put, err := dialDirectly(t, etcd.URL).Put(t.Context(), keys.Store("/annex"), value)
			if err != nil || put.Header.Revision != 2 {
				t.Fatalf("%v, %v: the mark is at revision 2 again", put, err)
			}
		}, ReasonDataReplaced},
		"rolled back": {func(t *testing.T, etcd *etcdtest.TCP, earlier string) { replaceData(t, etcd, earlier) }, ReasonRolledBack},
		"a copy that is ahead": {func(t *testing.T, etcd *etcdtest.TCP, earlier string) {
			replaceData(t, etcd, earlier)
			writeDirectly(t, etcd, 50)
		}, ReasonDiverged},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := openPool(t, func(c *Config) { c.checkpointInterval = time.Millisecond })
			etcd := etcdtest.StartTCP(t, nil)
			store := claim(t, pool, object("far", etcd.URL))
			for _, key := range []string{"a", "b"} {
				_, err := put(t, store, key, "1")
				expect.NoError(t, err)
			}
			etcd.Close()
			earlier := t.TempDir()
			copyData(t, etcd, earlier)
			etcd.Start(t)
			awaitReason(t, store, "")
			poll.Until(t, "a write", func() string { // the connection is a moment behind
				if _, err := put(t, store, "c", "1"); err != nil {
					return err.Error()
				}
				return ""
			})
			stopProbes(t, store)
			honest := store.breaker.Load()
			etcd.Close()
			tc.replace(t, etcd, earlier)
			before := dump(t, etcd)
			for what, request := range requests {
				store.breaker.Store(newBreaker(nil, honest.connection, honest.cluster, honest.fence))
				var err error
				poll.Until(t, what+" is refused", func() string {
					if err = request(t, store); isFor(err, ReasonFailed) {
						return err.Error() // the connection is a moment behind
					}
					return ""
				})
				if !isFor(err, tc.reason) {
					t.Errorf("%s: %v, want %s", what, err, tc.reason)
				}
			}
			if after := dump(t, etcd); after != before {
				t.Errorf("annex wrote to it:\n%s\nwas:\n%s", after, before)
			}
		})
	}
}

func isFor(err error, reason string) bool {
	var refused *UnavailableError
	return errors.As(err, &refused) && refused.Reason == reason
}

// dump returns all keys of an etcd.
func dump(t *testing.T, etcd *etcdtest.TCP) string {
	t.Helper()
	found, err := dialDirectly(t, etcd.URL).Get(t.Context(), "", clientv3.WithPrefix())
	expect.NoError(t, err)
	return fmt.Sprint(found.Kvs)
}

// TestWatchResumesInReplacedData: etcd's client reopens a watch silently, on data that contain
// the key that it waits for.
func TestWatchResumesInReplacedData(t *testing.T) {
	t.Parallel()
	pool := openPool(t, nil)
	etcd := etcdtest.StartTCP(t, nil)
	store := claim(t, pool, object("far", etcd.URL))
	watch := store.Client().Watch(t.Context(), "/annex/", clientv3.WithPrefix(), clientv3.WithRev(store.highest.Load()+1))
	_, err := put(t, store, "a", "1")
	expect.NoError(t, err)
	if response := <-watch; len(response.Events) == 0 {
		t.Fatalf("watch: %+v", response)
	}
	stopProbes(t, store)
	etcd.Close()
	replaceData(t, etcd, t.TempDir())
	client := dialDirectly(t, etcd.URL)
	for i := range 20 {
		_, err = client.Put(t.Context(), "/annex/invented", fmt.Sprint(i))
		expect.NoError(t, err)
	}
	for response := range watch {
		if len(response.Events) > 0 {
			t.Fatalf("an event that did not happen: %+v", response.Events)
		}
		if response.Canceled {
			return
		}
	}
}

// TestAdoption: the owner adopts an etcd that lost its data. Revisions continue above those that
// clients have seen, and watches of the old data end.
func TestAdoption(t *testing.T) {
	t.Parallel()
	pool, other := openPool(t, nil), openPool(t, nil)
	etcd := etcdtest.StartTCP(t, nil)
	far := object("far", etcd.URL)
	before := claim(t, pool, far)
	late := synced(t, other, far)
	awaitReason(t, late, "")
	resource := schema.GroupResource{Group: "example.com", Resource: "widgets"}
	const restored = 5_000_000_000
	expect.NoError(t, revision.Save(t.Context(), before.Client().KV, "/annex", resource, restored))
	written, err := put(t, before, "a", "1")
	expect.NoError(t, err)
	poll.Until(t, "the checkpoint includes the restored revisions", func() string {
		before.probeSoon()
		if known := before.Snapshot().History; known.Revision < written.Revision+restored {
			return fmt.Sprintf("clients may have seen %d, not %d", written.Revision+restored, known.Revision)
		}
		return ""
	})
	etcd.Close()
	replaceData(t, etcd, t.TempDir())
	awaitReason(t, before, ReasonDataReplaced)
	first, err := before.Claim(t.Context(), far.UID, true)
	expect.NoError(t, err)
	poll.Until(t, "the mark of the adoption is probed", func() string {
		before.probeSoon()
		if mark := before.Snapshot().Mark; mark == nil || mark.Epoch != first.History.Epoch {
			return fmt.Sprintf("the mark is %+v, not of %s", mark, first.History.Epoch)
		}
		return ""
	})
	// A controller whose cache is behind the status claims again.
	recordClaim(t, far, before, true)
	if recorded := far.Status.History.Epoch; recorded != first.History.Epoch {
		t.Errorf("one adoption began the epochs %s and %s", first.History.Epoch, recorded)
	}
	pool.sync(far)
	<-before.Done()
	after := named(t, pool, "far")
	awaitReason(t, after, "")
	offset, err := revision.Load(t.Context(), after.Client().KV, "/annex", resource)
	expect.NoError(t, err)
	if first := after.highest.Load() + offset; first <= written.Revision+restored {
		t.Errorf("revisions continue at %d, clients have seen %d", first, written.Revision+restored)
	}
	// A replica with a stale API object writes and reads nothing.
	if _, err := put(t, late, "late", "1"); !isUnavailable(err) {
		t.Errorf("a write of a replica before it observes the adoption: %v", err)
	}
	if value, err := get(t, late, "a"); !isUnavailable(err) {
		t.Errorf("a read of a replica before it observes the adoption: %q, %v", value, err)
	}
	awaitReason(t, late, ReasonDataReplaced)
	other.sync(far)
	<-late.Done()
}

// TestAdoptionBeforeProbe: a request has found that the data were replaced, and no probe has yet. The claim depends on
// the mark in etcd, not on the last probe's.
func TestAdoptionBeforeProbe(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.StartTCP(t, nil)
	far := object("far", etcd.URL)
	store := claim(t, openPool(t, nil), far)
	stopProbes(t, store)
	etcd.Close()
	replaceData(t, etcd, t.TempDir())
	poll.Until(t, "a request finds other data", func() string {
		if _, err := put(t, store, "a", "1"); !isFor(err, ReasonDataReplaced) {
			return fmt.Sprint(err)
		}
		return ""
	})
	adopted, err := store.Claim(t.Context(), far.UID, true)
	expect.NoError(t, err)
	found, err := dialDirectly(t, etcd.URL).Get(t.Context(), keys.Store("/annex"))
	expect.NoError(t, err)
	if mark, err := parseMark(found.Kvs[0].Value); err != nil || mark.Epoch != adopted.History.Epoch {
		t.Errorf("the mark is %+v, not of %s (%v)", mark, adopted.History.Epoch, err)
	}
}

// TestKnownHistory starts annex with the recorded history of an etcd whose data are others now.
func TestKnownHistory(t *testing.T) {
	t.Parallel()
	pool := openPool(t, nil)
	etcd := etcdtest.StartTCP(t, nil)
	far := object("far", etcd.URL)
	store := claim(t, pool, far)
	_, err := put(t, store, "a", "1")
	expect.NoError(t, err)
	known := store.Snapshot().History
	for name, tc := range map[string]struct {
		change func(h *hostingv1alpha1.StoreHistory)
		reason string
	}{
		"as it was":            {func(*hostingv1alpha1.StoreHistory) {}, ""},
		"another epoch":        {func(h *hostingv1alpha1.StoreHistory) { h.Epoch = "another" }, ReasonDataReplaced},
		"an earlier revision":  {func(h *hostingv1alpha1.StoreHistory) { h.Revision += 1000 }, ReasonRolledBack},
		"no such checkpoint":   {func(h *hostingv1alpha1.StoreHistory) { h.Checkpoint = "another" }, ReasonDiverged},
		"an earlier one":       {func(h *hostingv1alpha1.StoreHistory) { h.CheckpointRevision += 1000 }, ReasonDiverged},
		"nothing was noted":    {func(h *hostingv1alpha1.StoreHistory) { *h = hostingv1alpha1.StoreHistory{} }, ""},
		"only the epoch noted": {func(h *hostingv1alpha1.StoreHistory) { *h = hostingv1alpha1.StoreHistory{Epoch: h.Epoch} }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			noted := far.DeepCopy()
			noted.Status.History = &hostingv1alpha1.StoreHistory{
				Epoch: known.Epoch, Revision: known.Revision, Checkpoint: known.Checkpoint, CheckpointRevision: known.CheckpointRevision,
			}
			tc.change(noted.Status.History)
			later := openPool(t, nil)
			there := synced(t, later, noted)
			awaitReason(t, there, tc.reason)
		})
	}
}

// TestEarlierMark upgrades a mark of a release without epochs and formats.
func TestEarlierMark(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.StartTCP(t, nil)
	direct := dialDirectly(t, etcd.URL)
	_, err := direct.Put(t.Context(), keys.Store("/annex"), `{"store":"far","uid":"uid-of-far"}`)
	expect.NoError(t, err)
	far := object("far", etcd.URL)
	far.Status.ClusterID = FormatClusterID(uint64(etcd.Server.Cluster().ID()))
	var epochs []string
	for _, pool := range []*Pool{openPool(t, nil), openPool(t, nil)} {
		store := synced(t, pool, far)
		awaitReason(t, store, "")
		_, epoch := store.Data()
		epochs = append(epochs, epoch)
		if mark := store.Snapshot().Mark; mark.Format != (Format{currentFormat, currentFormat}) {
			t.Errorf("the mark has the format %+v", mark.Format)
		}
	}
	if epochs[0] == "" || epochs[0] != epochs[1] {
		t.Errorf("two replicas know the epochs %q", epochs)
	}
}

func TestNewerFormat(t *testing.T) {
	t.Parallel()
	for name, format := range map[string]Format{"to read": {MinReader: currentFormat + 1}, "to write": {MinWriter: currentFormat + 1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			etcd := etcdtest.StartTCP(t, nil)
			direct := dialDirectly(t, etcd.URL)
			write := func(store string) {
				value, err := Mark{Store: store, UID: "uid-of-far", Epoch: "e", Format: format}.encode()
				expect.NoError(t, err)
				_, err = direct.Put(t.Context(), keys.Store("/annex"), value)
				expect.NoError(t, err)
			}
			pool := openPool(t, nil)
			far := object("far", etcd.URL)
			store := claim(t, pool, far)
			write("far")
			if value, err := get(t, store, "a"); !isUnavailable(err) {
				t.Errorf("read %q, %v", value, err)
			}
			awaitReason(t, store, ReasonNewerFormat)
			write("default")
			_, err := Open(t.Context(), Config{Default: Default{Client: direct, Endpoints: []string{etcd.URL}, Prefix: "/annex"}})
			if err == nil || !strings.Contains(err.Error(), "newer release") {
				t.Errorf("start on it: %v", err)
			}
		})
	}
}

// TestOverlaps lets Stores claim prefixes that overlap with claimed ones.
func TestOverlaps(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.StartTCP(t, nil)
	direct := dialDirectly(t, etcd.URL)
	pool := openPool(t, func(c *Config) {
		c.Default = Default{Client: direct, Endpoints: []string{etcd.URL}, Prefix: "/annex"}
	})
	near := object("near", etcd.URL)
	near.Spec.Etcd.KeyPrefix = "/x/y"
	claim(t, pool, near)
	for key, value := range map[string]string{
		"/registry/secrets/kube-system/token": "secret",
		keys.Store("/torn"):                   `{"store":"tor`,
		keys.Store("/null"):                   `null`,
		keys.Own("/left") + "revisions/":      "7",
	} {
		_, err := direct.Put(t.Context(), key, value)
		expect.NoError(t, err)
	}
	for prefix, tc := range map[string]struct {
		reason string
		// adoptable is set if the prefix may be adopted.
		adoptable bool
	}{
		"/annex":               {reason: ReasonInUse},
		"/annex/secrets":       {reason: ReasonInUse},
		"/annex/_annex":        {reason: ReasonInUse},
		"/":                    {reason: ReasonNotEmpty},
		"/x":                   {reason: ReasonNotEmpty},
		"/x/y/z":               {reason: ReasonInUse},
		"/registry":            {reason: ReasonNotEmpty},
		"/registry/secrets":    {reason: ReasonNotEmpty},
		"/torn":                {reason: ReasonInUse, adoptable: true},
		"/null":                {reason: ReasonInUse, adoptable: true},
		"/left":                {},
		"/free":                {},
		"/annexed":             {},
		"/registry/unused/yet": {},
	} {
		t.Run(prefix, func(t *testing.T) {
			// "localhost" is another spelling of the same address.
			greedy := object("greedy"+strings.ReplaceAll(prefix, "/", "-"), strings.Replace(etcd.URL, "127.0.0.1", "localhost", 1))
			greedy.Spec.Etcd.KeyPrefix = prefix
			store := synced(t, pool, greedy)
			defer pool.remove(greedy.Name, "")
			poll.Until(t, "the etcd is probed", func() string {
				if store.Snapshot().Cluster == 0 {
					return "it was not probed"
				}
				return ""
			})
			before := dump(t, etcd)
			_, err := store.Claim(t.Context(), greedy.UID, false)
			if tc.reason == "" {
				expect.NoError(t, err)
				expect.NoError(t, store.Release(t.Context(), greedy.UID))
				return
			}
			if !isFor(err, tc.reason) {
				t.Errorf("claimed: %v, want %s", err, tc.reason)
			}
			if !tc.adoptable {
				if _, err = store.Claim(t.Context(), greedy.UID, true); !isUnavailable(err) {
					t.Errorf("adopted: %v", err)
				}
				if after := dump(t, etcd); after != before {
					t.Errorf("there is now\n%s\nwas:\n%s", after, before)
				}
				return
			}
			if _, err = store.Claim(t.Context(), greedy.UID, true); err != nil {
				t.Errorf("adopted: %v", err)
			}
		})
	}
	standard := named(t, pool, "default")
	if _, err := get(t, standard, "a"); err != nil {
		t.Errorf("annex's own etcd: %v", err)
	}
}

// TestStoreAboveAnother claims a prefix with keys of annex and another Store below it.
func TestStoreAboveAnother(t *testing.T) {
	t.Parallel()
	pool := openPool(t, nil)
	etcd := etcdtest.StartTCP(t, nil)
	direct := dialDirectly(t, etcd.URL)
	below := object("below", etcd.URL)
	below.Spec.Etcd.KeyPrefix = "/x/y"
	claim(t, pool, below)
	_, err := direct.Put(t.Context(), keys.Revisions("/x"), "7")
	expect.NoError(t, err)
	above := object("above", etcd.URL)
	above.Spec.Etcd.KeyPrefix = "/x"
	store := synced(t, pool, above)
	awaitReason(t, store, ReasonUnclaimed)
	for _, adopt := range []bool{false, true} {
		if _, err := store.Claim(t.Context(), above.UID, adopt); !isFor(err, ReasonInUse) || !strings.Contains(err.Error(), "/x/y/_annex/store") {
			t.Errorf("adopt %v: %v", adopt, err)
		}
	}
}

// TestDefaultOnForeignKeys starts annex on the keys of a Kubernetes cluster.
func TestDefaultOnForeignKeys(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.StartTCP(t, nil)
	direct := dialDirectly(t, etcd.URL)
	_, err := direct.Put(t.Context(), "/registry/pods/a", "1")
	expect.NoError(t, err)
	open := func(prefix string) error {
		pool, err := Open(t.Context(), Config{Default: Default{Client: direct, Endpoints: []string{etcd.URL}, Prefix: prefix}})
		if err == nil {
			pool.Close()
		}
		return err
	}
	if err := open("/registry"); err == nil || !strings.Contains(err.Error(), "/registry/pods/a") {
		t.Errorf("start on the keys of another program: %v", err)
	}
	if err := open("/annex"); err != nil {
		t.Errorf("start beside them: %v", err)
	}
}

// TestConcurrentAdoption: one of several replicas adopts the etcd.
func TestConcurrentAdoption(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.StartTCP(t, nil)
	far := object("far", etcd.URL)
	var replicas []*Store
	for range 4 {
		pool := openPool(t, nil)
		store := synced(t, pool, far)
		awaitReason(t, store, ReasonUnclaimed)
		stopProbes(t, store)
		replicas = append(replicas, store)
	}
	results := make(chan error)
	for _, store := range replicas {
		go func() {
			_, err := store.Claim(context.WithoutCancel(t.Context()), far.UID, true)
			results <- err
		}()
	}
	adopted := 0
	for range replicas {
		switch err := <-results; {
		case err == nil:
			adopted++
		case !isFor(err, ReasonInUse):
			t.Errorf("refused with %v", err)
		}
	}
	if adopted != 1 {
		t.Errorf("%d replicas adopted the etcd, want one", adopted)
	}
	found, err := dialDirectly(t, etcd.URL).Get(t.Context(), keys.Store("/annex"))
	expect.NoError(t, err)
	var mark Mark
	if err := json.Unmarshal(found.Kvs[0].Value, &mark); err != nil || mark.Epoch == "" {
		t.Errorf("the mark is %s, %v", found.Kvs[0].Value, err)
	}
}

// TestConcurrentClaims: annexes whose last probes found nothing claim one prefix. One Store gets it, and a
// claim of the same Store is none of another.
func TestConcurrentClaims(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		// keys of annex are in the prefix before.
		keys  bool
		other bool
	}{
		"one Store":                              {},
		"one Store, a prefix with keys":          {keys: true},
		"several Stores":                         {other: true},
		"several Stores, and a prefix with keys": {keys: true, other: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			etcd := etcdtest.StartTCP(t, nil)
			if tc.keys {
				_, err := dialDirectly(t, etcd.URL).Put(t.Context(), keys.Revisions("/annex"), "7")
				expect.NoError(t, err)
			}
			type result struct {
				uid   types.UID
				claim Claim
				err   error
			}
			results, begin := make(chan result), make(chan struct{})
			const annexes, again = 3, 2
			for i := range annexes {
				far := object("far", etcd.URL)
				if tc.other {
					far.UID += types.UID(fmt.Sprint(i))
				}
				store := synced(t, openPool(t, nil), far)
				awaitReason(t, store, ReasonUnclaimed)
				stopProbes(t, store)
				for range again {
					go func() {
						<-begin
						claim, err := store.Claim(context.WithoutCancel(t.Context()), far.UID, false)
						results <- result{far.UID, claim, err}
					}()
				}
			}
			close(begin)
			epochs, owners := map[string]bool{}, map[types.UID]bool{}
			for range annexes * again {
				switch found := <-results; {
				case found.err == nil:
					epochs[found.claim.History.Epoch], owners[found.uid] = true, true
				case !tc.other || !isFor(found.err, ReasonInUse) || !strings.Contains(found.err.Error(), "belongs to another Store"):
					t.Errorf("%s: %v", found.uid, found.err)
				}
			}
			if len(epochs) != 1 || len(owners) != 1 {
				t.Errorf("the Stores %v claimed it with the epochs %v, want one", owners, epochs)
			}
		})
	}
}

// TestConcurrentFirstStart: replicas of one annex start together on a new etcd.
func TestConcurrentFirstStart(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.StartTCP(t, nil)
	results, begin := make(chan error), make(chan struct{})
	const replicas = 4
	for range replicas {
		config := Config{Default: Default{Client: dialDirectly(t, etcd.URL), Endpoints: []string{etcd.URL}, Prefix: "/annex"}}
		go func() {
			<-begin
			pool, err := Open(context.WithoutCancel(t.Context()), config)
			if err == nil {
				pool.Close()
			}
			results <- err
		}()
	}
	close(begin)
	for range replicas {
		expect.NoError(t, <-results)
	}
}

// TestIdleEtcdStaysIdle: replicas that write checkpoints as often as possible do not trigger
// each other.
func TestIdleEtcdStaysIdle(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.StartTCP(t, nil)
	far := object("far", etcd.URL)
	first := openPool(t, func(c *Config) { c.checkpointInterval = time.Nanosecond })
	claim(t, first, far)
	second := openPool(t, func(c *Config) { c.checkpointInterval = time.Nanosecond })
	second.sync(far)
	client := dialDirectly(t, etcd.URL)
	last, same := int64(0), 0
	poll.Until(t, "no further write by either annex", func() string {
		for _, pool := range []*Pool{first, second} {
			store := named(t, pool, "far")
			before := store.Snapshot()
			store.probeSoon()
			poll.Until(t, "a further probe", func() string {
				if store.Snapshot() == before {
					return "no further look"
				}
				return ""
			})
		}
		now, err := client.Get(t.Context(), "-")
		expect.NoError(t, err)
		if now.Header.Revision != last {
			last, same = now.Header.Revision, 0
		}
		if same++; same < 3 {
			return fmt.Sprintf("at revision %d", last)
		}
		return ""
	})
}

// TestCheckpointOfIdleReplica: another replica restarts again and again, and leaves a checkpoint
// each time. The oldest are removed, except the checkpoint of a live process.
func TestCheckpointOfIdleReplica(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.StartTCP(t, nil)
	far := object("far", etcd.URL)
	idle := claim(t, openPool(t, func(c *Config) { c.checkpointInterval = time.Nanosecond }), far)
	direct := dialDirectly(t, etcd.URL)
	for start := range 2 * maxCheckpoints {
		left, err := direct.Put(t.Context(), fmt.Sprintf("%sprocess-%d", keys.Checkpoints("/annex"), start), "")
		expect.NoError(t, err)
		if start%(maxCheckpoints/2) > 0 {
			continue
		}
		poll.Until(t, "a checkpoint by the replica that does not write", func() string {
			idle.probeSoon()
			if written := idle.breaker.Load().fence.checkpoint.Load(); written < left.Header.Revision-maxCheckpoints/2 {
				return fmt.Sprintf("its checkpoint is of revision %d, others wrote %d", written, left.Header.Revision)
			}
			return ""
		})
	}
	other := openPool(t, nil)
	second := synced(t, other, far)
	awaitReason(t, second, "")
	if _, err := get(t, idle, "a"); err != nil {
		t.Errorf("the replica that was idle: %v", err)
	}
}

// TestEmbeddedEtcdClaimed starts annex on a data directory whose etcd was claimed by a Store in
// an earlier release.
func TestEmbeddedEtcdClaimed(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.StartTCP(t, nil)
	direct := dialDirectly(t, etcd.URL)
	_, err := direct.Put(t.Context(), keys.Store("/annex"), `{"store":"greedy","uid":"uid-of-greedy"}`)
	expect.NoError(t, err)
	for _, embedded := range []bool{false, true} {
		pool, err := Open(t.Context(), Config{Default: Default{Client: direct, Endpoints: []string{etcd.URL}, Prefix: "/annex", Embedded: embedded}})
		if !embedded {
			if err == nil || !strings.Contains(err.Error(), `"greedy"`) {
				t.Errorf("start on the etcd of others that another Store has: %v", err)
			}
			continue
		}
		expect.NoError(t, err)
		t.Cleanup(pool.Close)
		store := named(t, pool, "default")
		if mark := store.Snapshot().Mark; mark.Store != "default" || store.Available() != nil {
			t.Errorf("the mark is %+v, and requests pass: %v", mark, store.Available())
		}
	}
}

// TestProbesDuringWrites probes an etcd as often as possible during writes: these do not make it
// unavailable.
func TestProbesDuringWrites(t *testing.T) {
	t.Parallel()
	pool := openPool(t, func(c *Config) { c.checkpointInterval = time.Nanosecond })
	etcd := etcdtest.StartTCP(t, nil)
	store := claim(t, pool, object("far", etcd.URL))
	stopProbes(t, store)
	ctx, cancel := context.WithCancel(t.Context())
	var writing sync.WaitGroup
	defer writing.Wait()
	defer cancel()
	for range 4 {
		writing.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				if _, err := store.Client().Put(ctx, "/annex/a", fmt.Sprint(i)); err != nil && ctx.Err() == nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 200 {
		store.probe(ctx)
		expect.NoError(t, store.Available())
	}
}
