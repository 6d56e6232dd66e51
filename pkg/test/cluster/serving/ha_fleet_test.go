// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package serving

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/annex-dev/annex/pkg/storage/etcd/embeddedetcd/etcdtest"
	"github.com/annex-dev/annex/pkg/test/annextest"
	"github.com/annex-dev/annex/pkg/test/clients"
	"github.com/annex-dev/annex/pkg/test/crds"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

const haNamespace = "ha"

var things = schema.GroupVersionResource{Group: "ha.example.com", Version: "v1", Resource: "things"}

// fleet is the set of replicas of one annex.
type fleet struct {
	*annextest.Installation
	dir     string
	etcd    string
	flags   []string
	running []*replica
}

// startFleet installs annex with an etcd that outlives the replicas, until the test ends.
func startFleet(t *testing.T) *fleet {
	t.Helper()
	etcd := etcdtest.Start(t, nil)
	f := &fleet{Installation: annextest.InstallForTest(t, mainCluster), dir: t.TempDir(), etcd: etcd.Endpoint(), flags: []string{
		"--etcd-servers=" + etcd.Endpoint(),
		// The balancer of the tests probes every 200 ms.
		"--shutdown-delay-duration=2s",
		"--leader-elect-lease-duration=4s", "--leader-elect-renew-deadline=3s", "--leader-elect-retry-period=500ms",
	}}
	t.Cleanup(func() {
		for _, r := range slices.Clone(f.running) {
			f.kill(r)
			f.forget(r)
		}
		expect.Succeeds(t, f.Uninstall(context.Background()))
	})
	return f
}

// replica is a process with a readiness probe for the balancer.
type replica struct {
	*annextest.Annex
	stopProbing context.CancelFunc
	probing     sync.WaitGroup
}

// scale starts replicas up to a count.
func (f *fleet) scale(t testing.TB, count int) {
	t.Helper()
	for len(f.running) < count {
		f.start(t)
	}
	expect.NoError(t, f.WaitHosting(t.Context()))
}

// start starts a replica on a new data directory, like a new pod.
func (f *fleet) start(t testing.TB) *replica {
	t.Helper()
	dataDir, err := os.MkdirTemp(f.dir, "data-")
	expect.NoError(t, err)
	annex, err := f.LaunchProcess(t.Context(), dataDir, f.flags...)
	expect.NoError(t, err)
	annexClient := clients.For(t, annex.AnnexConfig).Kube.CoreV1()
	ctx, cancel := context.WithCancel(context.Background())
	r := &replica{Annex: annex, stopProbing: cancel}
	r.probing.Go(func() {
		for ctx.Err() == nil {
			attempt, cancel := context.WithTimeout(ctx, time.Second)
			err := annexClient.RESTClient().Get().AbsPath("/readyz").MaxRetries(0).Do(attempt).Error()
			cancel()
			f.Balancer.SetReady(annex.Address(), err == nil)
			select {
			case <-ctx.Done():
			case <-time.After(200 * time.Millisecond):
			}
		}
	})
	f.running = append(f.running, r)
	return r
}

// restart stops a replica gracefully, starts another, and returns the duration of the stop.
func (f *fleet) restart(t testing.TB, r *replica) time.Duration {
	t.Helper()
	began := time.Now()
	expect.Succeeds(t, r.Process.Stop(poll.Timeout))
	took := time.Since(began)
	f.forget(r)
	f.start(t)
	return took
}

// kill kills a replica. The balancer detects that by its probe.
func (f *fleet) kill(r *replica) { r.Process.Kill() }

// forget removes an exited replica from the Service.
func (f *fleet) forget(r *replica) {
	r.stopProbing()
	r.probing.Wait()
	f.Balancer.Remove(r.Address())
	for i, running := range f.running {
		if running == r {
			f.running = append(f.running[:i:i], f.running[i+1:]...)
			return
		}
	}
}

// ready waits until the balancer sends connections to all replicas.
func (f *fleet) ready(t testing.TB) {
	t.Helper()
	poll.UntilDone(t, "all replicas are ready", func() (bool, string) {
		got := f.Balancer.Ready()
		return len(got) == len(f.running), fmt.Sprintf("%d of %d are ready", len(got), len(f.running))
	})
}

// serveThings creates a CRD in annex, once, and waits until the main cluster proxies it.
func (f *fleet) serveThings(t testing.TB) {
	t.Helper()
	definitions := clients.For(t, f.running[0].AnnexConfig).CRDs()
	if _, err := definitions.Get(t.Context(), things.GroupResource().String(), metav1.GetOptions{}); err == nil {
		return
	}
	expect.Create(t, definitions, crds.New(things.Group, things.Resource, things.Version))
	expect.NoError(t, f.WaitPublished(t.Context(), things.Group, things.Version))
	// Each replica refuses a new resource until it has read its objects.
	for _, r := range f.running {
		annexClient := clients.For(t, r.AnnexConfig).Kube.CoreV1()
		poll.UntilNoError(t, "the new resource can be listed", func() error {
			err := annexClient.RESTClient().Get().AbsPath("/apis/ha.example.com/v1/things").Do(t.Context()).Error()
			return err
		})
	}
	expect.Create(t, kube(t, mainCluster.Config).CoreV1().Namespaces(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: haNamespace}})
}
