// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/storage/embeddedetcd"
)

// startEtcd starts a real etcd.
func startEtcd(t *testing.T, quota int64) *embeddedetcd.Server {
	t.Helper()
	// A socket's path has to be short, which t.TempDir's is not.
	dir, err := os.MkdirTemp("", "annex-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	server, err := embeddedetcd.Start(t.Context(), embeddedetcd.Config{
		Dir: filepath.Join(dir, "etcd"), SocketPath: filepath.Join(dir, "s", "etcd.sock"), QuotaBytes: quota, UnsafeNoFsync: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	return server
}

func observed(t *testing.T, etcd Etcd, timeout time.Duration) hostingv1alpha1.StoreStatus {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	var status hostingv1alpha1.StoreStatus
	setObserved(&status, etcd.observe(ctx), 1, epoch)
	return status
}

func TestObserveRealEtcd(t *testing.T) {
	t.Parallel()
	const quota = 64 * mebi
	server := startEtcd(t, quota)
	status := observed(t, Etcd{Client: server.Client(), Endpoints: []string{server.Endpoint()}}, 30*time.Second)

	if ready := status.Conditions[0]; ready.Status != metav1.ConditionTrue || ready.Reason != reasonAvailable {
		t.Errorf("condition %+v, want Ready", ready)
	}
	if status.Quota == nil || status.Quota.Value() != quota {
		t.Errorf("quota %v, want %d", status.Quota, quota)
	}
	if size, inUse := status.Size.Value(), status.SizeInUse.Value(); inUse <= 0 || size < inUse {
		t.Errorf("size %d with %d in use", size, inUse)
	}
	if len(status.Members) != 1 || !status.Members[0].Leader || status.Members[0].Endpoint != server.Endpoint() || status.Members[0].Name == "" {
		t.Errorf("members %+v, want one that leads, with its name and endpoint", status.Members)
	}
	if status.Version == "" || status.Version != status.Members[0].Version {
		t.Errorf("version %q of members %+v", status.Version, status.Members)
	}
}

func TestObserveRealEtcdWithoutSpace(t *testing.T) {
	t.Parallel()
	server := startEtcd(t, mebi)
	value := strings.Repeat("x", mebi/2)
	var err error
	// Etcd compares the size of what it committed, which it does every 100 ms.
	for i := 0; err == nil && i < 500; i++ {
		_, err = server.Client().Put(t.Context(), fmt.Sprintf("key-%d", i), value)
	}
	if err == nil {
		t.Fatal("etcd takes writes beyond its quota")
	}
	status := observed(t, Etcd{Client: server.Client(), Endpoints: []string{server.Endpoint()}}, 30*time.Second)
	if ready := status.Conditions[0]; ready.Status != metav1.ConditionFalse || ready.Reason != reasonNoSpace {
		t.Errorf("condition %+v of an etcd without space, want NoSpace", ready)
	}
}

func TestObserveRealEtcdThatStopped(t *testing.T) {
	t.Parallel()
	server := startEtcd(t, 0)
	etcd := Etcd{Client: server.Client(), Endpoints: []string{server.Endpoint()}}
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	status := observed(t, etcd, time.Second)
	if ready := status.Conditions[0]; ready.Status != metav1.ConditionFalse || ready.Reason != reasonUnreachable {
		t.Errorf("condition %+v of an etcd that stopped, want Unreachable", ready)
	}
	if status.Size != nil || status.Members != nil {
		t.Errorf("size %v and members %v of an etcd that never answered", status.Size, status.Members)
	}
}
