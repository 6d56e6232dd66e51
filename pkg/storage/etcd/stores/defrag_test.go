// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package stores

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/apimachinery/pkg/util/rand"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/storage/etcd/embeddedetcd/etcdtest"
	"github.com/annex-dev/annex/pkg/storage/etcd/keys"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// fill puts values below the prefix until the etcd refuses more.
func fill(t *testing.T, url string) {
	t.Helper()
	direct := dialDirectly(t, url)
	poll.Until(t, "the etcd is full", func() string {
		if _, err := direct.Put(t.Context(), "/annex/large/"+rand.String(10), strings.Repeat("x", 256<<10)); err == nil {
			return "it still takes more"
		}
		return ""
	})
}

// TestOutOfSpaceIsReported fills an etcd that may be shared: annex reports that it is full, and
// does not compact, defragment or disarm.
func TestOutOfSpaceIsReported(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.StartTCP(t, func(config *embed.Config) { config.QuotaBackendBytes = 4 << 20 })
	store := claim(t, openPool(t, nil), object("far", etcd.URL))
	first, err := put(t, store, "small", "1")
	expect.NoError(t, err)
	fill(t, etcd.URL)
	_, err = store.Client().Delete(t.Context(), "/annex/large/", clientv3.WithPrefix())
	expect.NoError(t, err)
	var last *Snapshot
	for looks := 0; looks < 5; {
		poll.Until(t, "a probe of the full etcd", func() string {
			store.probeSoon()
			seen := store.Snapshot()
			if seen == last || !seen.NoSpace {
				return "NoSpace is not reported"
			}
			last = seen
			return ""
		})
		looks++
	}
	if last.Reclaiming != "" || len(last.Alarms) != 1 {
		t.Errorf("Reclaiming is %q, with the alarms %v", last.Reclaiming, last.Alarms)
	}
	if _, err := dialDirectly(t, etcd.URL).Get(t.Context(), "/", clientv3.WithRev(first.Revision)); err != nil {
		t.Errorf("history was removed: %v", err)
	}
}

// TestOutOfSpace fills an etcd to its quota and frees space by deleting objects, as a user can.
func TestOutOfSpace(t *testing.T) {
	t.Parallel()
	pool := openPool(t, nil)
	etcd := etcdtest.StartTCP(t, func(config *embed.Config) { config.QuotaBackendBytes = 4 << 20 })
	far := object("far", etcd.URL)
	far.Spec.Etcd.Defragmentation = hostingv1alpha1.DefragmentationWhenFull
	store := claim(t, pool, far)
	_, err := put(t, store, "small", "1")
	expect.NoError(t, err)
	fill(t, etcd.URL)

	var full *NoSpaceError
	_, err = put(t, store, "more", "1")
	if !errors.As(err, &full) || !strings.Contains(err.Error(), `store "far" is out of space`) {
		t.Fatalf("a write to a full etcd: %v", err)
	}
	if full.Status().Code != 507 {
		t.Errorf("status %+v, want 507", full.Status())
	}
	poll.Until(t, "annex reclaims space", func() string {
		if seen := store.Snapshot(); seen.NoSpace && seen.Reclaiming != "" && seen.Alarms[0] == "NOSPACE" {
			return ""
		}
		if _, err := put(t, store, "more", "1"); err != nil {
			return fmt.Sprintf("NoSpace is not reported, and a write fails: %v", err)
		}
		return "" // it has, between two looks
	})
	if err := store.Available(); err != nil {
		t.Errorf("a full store is read: %v", err)
	}
	if value, err := get(t, store, "small"); value != "1" || err != nil {
		t.Errorf("read %q, %v", value, err)
	}
	found, err := store.Client().Kubernetes.Get(t.Context(), keys.Root(store.Prefix())+"small", kubernetes.GetOptions{})
	expect.NoError(t, err)
	gone, err := store.Client().Kubernetes.OptimisticDelete(t.Context(), keys.Root(store.Prefix())+"small", found.KV.ModRevision, kubernetes.DeleteOptions{})
	if err != nil || !gone.Succeeded {
		t.Errorf("a delete from a full etcd: %+v, %v", gone, err)
	}

	_, err = store.Client().Delete(t.Context(), "/annex/large/", clientv3.WithPrefix())
	expect.NoError(t, err)
	poll.Until(t, "a write after space was reclaimed", func() string {
		if _, err := put(t, store, "more", "1"); err != nil {
			return err.Error()
		}
		return ""
	})
	poll.Until(t, "the alarm ends", func() string {
		if seen := store.Snapshot(); seen.NoSpace || len(seen.Alarms) > 0 {
			return "it is still reported as full"
		}
		return ""
	})
}
