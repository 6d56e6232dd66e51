// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package serving

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	restclient "k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

const loadClients = 12

// TestReplicas shares one set of replicas among the tests.
func TestReplicas(t *testing.T) {
	replicas := startFleet(t)
	// The first begins with the fewest replicas.
	for _, tt := range []struct {
		name string
		test func(*testing.T, *fleet)
	}{
		{"rolling restart", testRollingRestart},
		{"kill", testKill},
		{"leader is killed", testLeaderIsKilled},
		{"leader is paused", testPausedLeader},
		{"watches spread", testWatchesSpread},
	} {
		t.Run(tt.name, func(t *testing.T) { tt.test(t, replicas) })
	}
}

// testRollingRestart replaces two replicas one after the other: no request of the load fails.
func testRollingRestart(t *testing.T, replicas *fleet) {
	replicas.scale(t, 2)
	replicas.serveThings(t)
	replicas.ready(t)
	load := startWriters(t, loadClients)
	var watchers []*watcher
	for range 5 {
		watchers = append(watchers, startWatch(t))
	}
	var stops []time.Duration
	for _, r := range slices.Clone(replicas.running) {
		stops = append(stops, replicas.restart(t, r).Round(time.Millisecond))
		replicas.ready(t)
	}
	load.end()
	watches := 0
	for _, w := range watchers {
		w.check(t, load)
		watches += w.watches
		if len(w.abrupt) > 0 {
			t.Errorf("watches did not end cleanly: %q", w.abrupt)
		}
	}
	t.Logf("%s; stops took %v; %d watches were made for %d", load.report(), stops, watches, len(watchers))
	for _, failure := range load.failures[:min(len(load.failures), 5)] {
		t.Error(failure.what)
	}
}

// testKill kills the busiest replica. Its open requests fail, and new ones until the balancer
// and the aggregator use another replica.
func testKill(t *testing.T, replicas *fleet) {
	replicas.scale(t, 3)
	replicas.serveThings(t)
	replicas.ready(t)
	load := startWriters(t, loadClients)
	watch := startWatch(t)
	busiest := func() *replica {
		connections := replicas.Balancer.Connections()
		return slices.MaxFunc(replicas.running, func(a, b *replica) int { return connections[a.Address()] - connections[b.Address()] })
	}()
	load.waitForRequests(t, loadClients)
	killed := time.Now()
	replicas.kill(busiest)
	poll.UntilDone(t, "the balancer leaves it out", func() (bool, string) {
		ready := replicas.Balancer.Ready()
		return !slices.Contains(ready, busiest.Address()), fmt.Sprintf("%q are ready", ready)
	})
	// The open requests, and those that had a connection to it.
	load.waitForRequests(t, 2*loadClients)
	recovered := time.Now()
	load.waitForRequests(t, 20*loadClients)
	load.end()
	watch.check(t, load)
	t.Logf("the balancer had left it out after %s: %s", recovered.Sub(killed).Round(time.Millisecond), load.report())
	for _, failure := range load.failed(recovered) {
		t.Errorf("it failed after the balancer had left the replica out: %s", failure.what)
	}
	replicas.forget(busiest)
}

var isLeader = regexp.MustCompile(`(?m)^leader_election_master_status\{name="annex-controllers"\} 1$`)

// leaders returns the replicas whose metric reports leadership.
func (f *fleet) leaders(t testing.TB) (found []*replica) {
	t.Helper()
	for _, r := range f.running {
		if isLeader.MatchString(metrics(t, r.Annex)) {
			found = append(found, r)
		}
	}
	return found
}

// holder returns the identity of the replica that has the Lease of the controllers.
func holder(t *testing.T) string {
	t.Helper()
	var lease *coordinationv1.Lease
	poll.UntilNoError(t, "the Lease of the controllers", func() (err error) {
		lease, err = kube(t, mainCluster.Config).CoordinationV1().Leases("annex-system").Get(t.Context(), "annex-controllers", metav1.GetOptions{})
		return err
	})
	return ptr.Deref(lease.Spec.HolderIdentity, "")
}

// testLeaderIsKilled: another replica becomes the leader when the lease expires.
func testLeaderIsKilled(t *testing.T, replicas *fleet) {
	replicas.scale(t, 3)
	var before []*replica
	poll.UntilDone(t, "one leader", func() (bool, string) {
		before = replicas.leaders(t)
		return len(before) == 1, fmt.Sprintf("%d leaders", len(before))
	})
	held := holder(t)
	killed := time.Now()
	replicas.kill(before[0])
	replicas.forget(before[0])
	poll.UntilDone(t, "another leader", func() (bool, string) {
		now := holder(t)
		return now != held && now != "", now
	})
	took := time.Since(killed)
	t.Logf("another replica took over leadership %s after the kill, with a lease of 4 s", took.Round(time.Millisecond))
	// The metric follows the lease.
	poll.UntilDone(t, "one leader again", func() (bool, string) {
		now := replicas.leaders(t)
		return len(now) == 1, fmt.Sprintf("%d leaders", len(now))
	})
}

var watchesOfThings = regexp.MustCompile(`(?m)^apiserver_longrunning_requests\{[^}]*resource="things"[^}]*verb="WATCH"[^}]*\} (\d+)$`)

// testWatchesSpread opens watches while annex closes old connections of the main cluster: they
// are distributed over the replicas.
func testWatchesSpread(t *testing.T, replicas *fleet) {
	flags := replicas.flags
	replicas.flags = append(slices.Clone(flags), "--max-connection-age=1s")
	t.Cleanup(func() { replicas.flags = flags })
	for _, r := range slices.Clone(replicas.running) {
		replicas.kill(r)
		replicas.forget(r)
	}
	replicas.scale(t, 3)
	replicas.serveThings(t)
	replicas.ready(t)
	mainHTTP, err := restclient.HTTPClientFor(mainCluster.Config)
	expect.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const watches = 60
	for range watches {
		// A probe of a killed replica may still make the main cluster refuse requests for a moment.
		poll.UntilNoError(t, "open a watch", func() error {
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, mainCluster.URL+"/apis/ha.example.com/v1/things?watch=true", http.NoBody)
			if err != nil {
				return err
			}
			response, err := mainHTTP.Do(request)
			if err != nil {
				return err
			}
			if response.StatusCode != http.StatusOK {
				return errors.Join(fmt.Errorf("the main cluster answered %s", response.Status), response.Body.Close())
			}
			t.Cleanup(func() { response.Body.Close() })
			return nil
		})
		time.Sleep(100 * time.Millisecond) // so that connections reach their maximum age
	}
	var spread []int
	for _, r := range replicas.running {
		count := 0
		if found := watchesOfThings.FindStringSubmatch(metrics(t, r.Annex)); found != nil {
			count, _ = strconv.Atoi(found[1])
		}
		spread = append(spread, count)
	}
	t.Logf("%d watches over the replicas: %v", watches, spread)
	if most := slices.Max(spread); most > watches*3/4 {
		t.Errorf("%d of %d watches are on one replica", most, watches)
	}
}
