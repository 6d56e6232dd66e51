// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package groupmove

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	restclient "k8s.io/client-go/rest"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/annextest"
	"github.com/annex-dev/annex/pkg/test/clients"
	"github.com/annex-dev/annex/pkg/test/etcdcluster"
	"github.com/annex-dev/annex/pkg/test/poll"
)

const (
	faultsOfMigration = 3
	// longOutage is longer than the interval at which the garbage collector discovers resources.
	longOutage = 40 * time.Second
	// longestPause is longer than the lease of the leader.
	longestPause = 25 * time.Second
	// longestStall is shorter than what makes kube-apiserver give up its etcd.
	longestStall = 8 * time.Second
	// throttled is the time for which the kube-apiservers get half of the CPU time.
	throttled = 15 * time.Second
	// storeQuota is the quota of annex's own etcd.
	storeQuota = 224 << 20
	fillPrefix = "/others/"
	fullStore  = "room in annex's etcd"
	// besideFull is written while annex's etcd is full.
	besideFull = "beside-full"
)

// fault stops or ends a program. Those with the same lock follow one another.
type fault struct {
	what string
	lock *sync.Mutex
	do   func()
}

// faults returns all that may happen during a Migration.
func (r *torture) faults() []fault {
	random := func(limit time.Duration) time.Duration { return time.Duration(r.random.Int64N(int64(limit))) }
	var down time.Duration
	if r.long && r.random.IntN(3) == 0 {
		down = longOutage
	}
	replica, server, pause, leader := r.random.IntN(len(r.replicas)), r.random.IntN(2), random(longestPause), r.random.IntN(2) == 0
	stall := random(longestStall)
	all := []fault{
		{"kill a replica of annex", &r.annexLock, func() { r.restartReplica(replica, down) }},
		{fmt.Sprintf("stop a replica of annex, the leader %t, for %s", leader, pause), &r.annexLock, func() { r.pauseReplica(leader, pause) }},
		{"kill a kube-apiserver", &r.serverLock, func() { r.restartAPIServer(server) }},
		{"halve the time of the kube-apiservers", &r.serverLock, r.throttle},
		{"kill the main cluster's etcd", &r.mainEtcdLock, func() { r.restartEtcd(r.mainEtcd) }},
		{"stop the main cluster's etcd", &r.mainEtcdLock, func() { r.stallEtcd(r.mainEtcd, stall) }},
	}
	if r.annexEtcd != nil {
		all = append(all,
			fault{"kill annex's etcd", &r.annexEtcdLock, func() { r.restartEtcd(r.annexEtcd) }},
			fault{"stop annex's etcd", &r.annexEtcdLock, func() { r.stallEtcd(r.annexEtcd, stall) }},
			fault{"fill annex's etcd", &r.annexEtcdLock, func() { r.fillStore(stall) }},
		)
	}
	return all
}

// launch starts a replica on its data, and adds it to r.replicas.
func (r *torture) launch(i int, dataDir string) error {
	started, err := r.installation.LaunchProcess(r.ctx, dataDir, r.flags...)
	if err != nil {
		return err
	}
	own, err := clients.New(started.AnnexConfig)
	if err != nil {
		return errors.Join(err, started.Shutdown())
	}
	r.mu.Lock()
	if r.replicas[i], r.own[i] = started, own; r.fixture != nil {
		r.fixture.own = own
	}
	r.mu.Unlock()
	return nil
}

// restartReplica kills a replica, and starts it again on its data some time later.
func (r *torture) restartReplica(i int, down time.Duration) {
	defer r.outage("annex")()
	killed := r.replicas[i]
	killed.Process.Kill()
	killed.Balancer.Remove(killed.Address())
	r.logAnnex(killed)
	time.Sleep(down)
	if err := r.launch(i, killed.DataDir); err != nil {
		r.problem("start annex again: %v", err)
		return
	}
	r.untilServed()
}

// pauseReplica stops the process of the leader, or of the other replica, for some time.
func (r *torture) pauseReplica(leader bool, during time.Duration) {
	defer r.outage("annex")()
	paused := r.replicas[0]
	for i, own := range r.own {
		ctx, cancel := context.WithTimeout(r.ctx, requestTimeout)
		metrics, err := own.Kube.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
		cancel()
		if err == nil && strings.Contains(string(metrics), `leader_election_master_status{name="annex-controllers"} 1`) == leader {
			paused = r.replicas[i]
		}
	}
	paused.Balancer.SetReady(paused.Address(), false)
	err := paused.Process.Signal(syscall.SIGSTOP)
	time.Sleep(during)
	if err := errors.Join(err, paused.Process.Signal(syscall.SIGCONT)); err != nil {
		r.problem("stop annex for a while: %v", err)
	}
	paused.Balancer.SetReady(paused.Address(), true)
	r.untilServed()
}

// logAnnex keeps the log of a process.
func (r *torture) logAnnex(annex *annextest.Annex) {
	if dir := os.Getenv("TORTURE_LOGS"); dir != "" {
		_ = os.WriteFile(fmt.Sprintf("%s/annex-%d.log", dir, annex.Process.PID()), []byte(annex.Process.Stderr()), 0o600)
	}
}

func (r *torture) restartAPIServer(i int) {
	defer r.outage("kube-apiserver")()
	if err := r.cluster.RestartAPIServer(r.ctx, i); err != nil {
		r.problem("start a kube-apiserver again: %v", err)
		return
	}
	r.untilServed()
}

// throttle leaves the kube-apiservers half of the time.
func (r *torture) throttle() {
	const slice = 50 * time.Millisecond
	for began := time.Now(); time.Since(began) < throttled; time.Sleep(slice) {
		r.signalAPIServers(syscall.SIGSTOP)
		time.Sleep(slice)
		r.signalAPIServers(syscall.SIGCONT)
	}
}

func (r *torture) signalAPIServers(signal syscall.Signal) {
	for i := range 2 {
		if err := r.cluster.SignalAPIServer(i, signal); err != nil {
			r.problem("%v", err)
		}
	}
}

func (r *torture) restartEtcd(etcd *etcdcluster.Member) {
	defer r.outage("etcd")()
	etcd.Kill(r.fixture)
	etcd.Start(r.fixture)
	r.untilServed()
}

// stallEtcd stops the process for some time.
func (r *torture) stallEtcd(etcd *etcdcluster.Member, during time.Duration) {
	defer r.outage("etcd")()
	etcd.Freeze(r.fixture)
	time.Sleep(during)
	etcd.Thaw(r.fixture)
	r.untilServed()
}

// fillStore makes annex's etcd refuse writes for some time. Nothing of a move can be written meanwhile: before the
// switch the main cluster serves the group as if nothing had happened.
func (r *torture) fillStore(during time.Duration) {
	defer r.outage(fullStore)()
	etcd, value := r.annexEtcd.Client(r.fixture), strings.Repeat("x", 1<<20)
	var err error
	for i := 0; err == nil && i < 2*storeQuota>>20; i++ {
		_, err = etcd.Put(r.ctx, fmt.Sprint(fillPrefix, i), value)
	}
	full, beforeSwitch := errors.Is(err, rpctypes.ErrNoSpace), r.isBeforeSwitch()
	r.fixture.Logf("%s annex's etcd is full: %v; before the switch: %t", time.Now().Format("15:04:05.000"), err, beforeSwitch)
	for ends := time.Now().Add(during); time.Now().Before(ends); time.Sleep(10 * r.pause) {
		if !full || !beforeSwitch {
			continue
		}
		began := time.Now()
		err := r.increase(r.main.Dynamic.Resource(r.resource()).Namespace("default"), besideFull)
		if err != nil && !r.mayFail(began, fullStore) {
			r.problem("a write while annex's etcd is full and the main cluster serves: %v", err)
		}
	}
	poll.UntilNoError(r.fixture, "make room in annex's etcd", func() error {
		deleted, err := etcd.Delete(r.ctx, fillPrefix, clientv3.WithPrefix())
		if err == nil {
			_, err = etcd.Compact(r.ctx, deleted.Header.Revision, clientv3.WithCompactPhysical())
		}
		if err == nil || errors.Is(err, rpctypes.ErrCompacted) {
			_, err = etcd.Defragment(r.ctx, r.annexEtcd.Endpoint())
		}
		if err == nil {
			_, err = etcd.AlarmDisarm(r.ctx, &clientv3.AlarmMember{})
		}
		return err
	})
	r.untilServed()
}

// isBeforeSwitch reports whether the group is being moved and the main cluster serves it.
func (r *torture) isBeforeSwitch() bool {
	ctx, cancel := context.WithTimeout(r.ctx, time.Second)
	defer cancel()
	migrations, err := r.annexClients().Hosting.HostingV1alpha1().Migrations().List(ctx, metav1.ListOptions{})
	if err != nil {
		return false
	}
	for _, m := range migrations.Items {
		switch m.Status.Phase {
		case hostingv1alpha1.MigrationPending, hostingv1alpha1.MigrationCopying, hostingv1alpha1.MigrationFollowing, hostingv1alpha1.MigrationVerifying:
			return m.Spec.Operation == hostingv1alpha1.MigrationMove
		}
	}
	return false
}

// untilServed waits until all kube-apiservers serve hosting.annex.dev and each version of the group: they
// check the APIServices one by one.
func (r *torture) untilServed() {
	for i := range 2 {
		if err := r.serves(r.cluster.ConfigOf(i)); err != nil {
			r.problem("wait until kube-apiserver %d serves again: %v", i, err)
		}
	}
}

func (r *torture) serves(config *restclient.Config) error {
	direct, err := clients.New(config)
	if err != nil {
		return err
	}
	var last error
	err = wait.PollUntilContextTimeout(r.ctx, 100*time.Millisecond, poll.Timeout, true, func(ctx context.Context) (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		second := r.resource()
		second.Version = secondVersion
		_, last = direct.Hosting.HostingV1alpha1().Migrations().List(ctx, metav1.ListOptions{})
		for _, resource := range []dynamic.ResourceInterface{
			direct.Dynamic.Resource(r.resource()), direct.Dynamic.Resource(second), direct.Dynamic.Resource(r.resourceOf("Gadget")), r.broadcasts(direct),
		} {
			if last == nil {
				_, last = resource.List(ctx, metav1.ListOptions{Limit: 1})
			}
		}
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("%w: %w", err, last)
	}
	return nil
}
