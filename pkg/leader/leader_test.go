// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package leader

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/utils/ptr"

	"github.com/annex-dev/annex/pkg/test/expect"
)

// cluster has the Lease, and the replicas that want it.
type cluster struct {
	*fake.Clientset
	// stopping is the time in which a replica stops its work.
	stopping time.Duration

	mu      sync.Mutex
	offline map[string]bool // replicas that cannot reach the cluster
	leaders []string        // leading replicas, several if something is wrong
	history []string
	overlap bool
	// renewLate makes a renewal arrive just before the Lease is released.
	renewLate bool
}

func newCluster() *cluster {
	return &cluster{Clientset: fake.NewClientset(), offline: map[string]bool{}}
}

// run makes a replica a candidate until the returned function is called.
func (c *cluster) run(t *testing.T, identity string) (stop func()) {
	t.Helper()
	// Each replica reaches the cluster in its own way.
	way := fake.NewClientset()
	way.PrependReactor("*", "leases", func(action clienttesting.Action) (bool, runtime.Object, error) {
		c.mu.Lock()
		offline := c.offline[identity]
		c.mu.Unlock()
		if offline {
			return true, nil, apierrors.NewServiceUnavailable("cut off")
		}
		if c.isRenewedBefore(action) {
			return true, nil, apierrors.NewConflict(coordinationv1.Resource("leases"), "annex-controllers", errors.New("renewed"))
		}
		return clienttesting.ObjectReaction(c.Tracker())(action)
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- Run(ctx, Config{
			Leases: way.CoordinationV1(), Namespace: "annex-system", Name: "annex-controllers",
			Identity: identity, Timing: DefaultTiming(),
		}, func(ctx context.Context) { c.lead(ctx, identity) })
	}()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// lead records the leader, and takes a while to stop.
func (c *cluster) lead(ctx context.Context, identity string) {
	c.mu.Lock()
	c.leaders = append(c.leaders, identity)
	c.history = append(c.history, identity)
	c.overlap = c.overlap || len(c.leaders) > 1
	c.mu.Unlock()
	<-ctx.Done()
	time.Sleep(c.stopping)
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, leader := range c.leaders {
		if leader == identity {
			c.leaders = append(c.leaders[:i], c.leaders[i+1:]...)
			break
		}
	}
}

// isRenewedBefore reports once whether a renewal comes before an action that releases the Lease.
func (c *cluster) isRenewedBefore(action clienttesting.Action) bool {
	update, ok := action.(clienttesting.UpdateAction)
	if !ok {
		return false
	}
	lease, ok := update.GetObject().(*coordinationv1.Lease)
	if !ok || ptr.Deref(lease.Spec.HolderIdentity, "") != "" {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	renewed := c.renewLate
	c.renewLate = false
	return renewed
}

func (c *cluster) cutOff(identity string, offline bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offline[identity] = offline
}

// leader waits for a leader different from the given one, and returns it and how long
// that took.
func (c *cluster) leader(t *testing.T, other string) (string, time.Duration) {
	t.Helper()
	for started := time.Now(); time.Since(started) < 5*time.Minute; time.Sleep(10 * time.Millisecond) {
		c.mu.Lock()
		leaders, overlap := strings.Join(c.leaders, ","), c.overlap
		c.mu.Unlock()
		if overlap {
			t.Fatal("two replicas led at once")
		}
		if leaders != "" && leaders != other {
			return leaders, time.Since(started)
		}
	}
	t.Fatalf("no replica except %q leads", other)
	return "", 0
}

func (c *cluster) lease(t *testing.T) *coordinationv1.Lease {
	t.Helper()
	lease, err := c.CoordinationV1().Leases("annex-system").Get(t.Context(), "annex-controllers", metav1.GetOptions{})
	expect.NoError(t, err)
	return lease
}

// longestRetry bounds the time until c.leader sees a new leader: the pause of a candidate between attempts,
// to which upstream adds a random part, and a second for c.leader to notice.
const longestRetry = time.Duration((1+leaderelection.JitterFactor)*float64(DefaultRetryPeriod)) + time.Second

func TestStoppedLeaderIsReplacedAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		c.stopping = 4 * time.Second
		stops := map[string]func(){}
		for _, identity := range []string{"a", "b", "c"} {
			stops[identity] = c.run(t, identity)
		}
		previous := ""
		for range 3 {
			leader, took := c.leader(t, previous)
			if previous != "" && took > longestRetry {
				t.Errorf("%s followed %s after %s", leader, previous, took)
			}
			stops[leader]()
			previous = leader
		}
		if holder := *c.lease(t).Spec.HolderIdentity; holder != "" {
			t.Errorf("the lease is still held by %q", holder)
		}
	})
}

func TestLeaseIsReleasedAfterLateRenewal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		c.renewLate = true
		stop := c.run(t, "a")
		c.leader(t, "")
		stop()
		if holder := *c.lease(t).Spec.HolderIdentity; holder != "" || c.renewLate {
			t.Errorf("the lease is still held by %q; a renewal was late: %v", holder, !c.renewLate)
		}
	})
}

func TestLeaseIsHeldUntilEverythingStopped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		// Longer than the lease: it must be renewed meanwhile.
		c.stopping = 2 * DefaultLeaseDuration
		stopA := c.run(t, "a")
		if leader, _ := c.leader(t, ""); leader != "a" {
			t.Fatalf("%s leads", leader)
		}
		stopB := c.run(t, "b")
		stopped := time.Now()
		stopA()
		if took := time.Since(stopped); took < c.stopping {
			t.Errorf("a stopped after %s, before what it did", took)
		}
		if leader, _ := c.leader(t, "a"); leader != "b" {
			t.Errorf("%s leads", leader)
		}
		stopB()
	})
}

func TestLosingTheLeaseEndsLeadershipOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		c.stopping = time.Second
		stopA := c.run(t, "a")
		defer stopA()
		c.leader(t, "")
		stopB := c.run(t, "b")

		c.cutOff("a", true)
		leader, took := c.leader(t, "a")
		if leader != "b" || took > DefaultLeaseDuration+2*longestRetry {
			t.Errorf("%s leads after %s", leader, took)
		}
		// a is a candidate again once it is back.
		c.cutOff("a", false)
		time.Sleep(DefaultLeaseDuration)
		stopB()
		if leader, _ := c.leader(t, "b"); leader != "a" {
			t.Errorf("%s leads", leader)
		}
	})
}

func TestOutageOfTheCluster(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		stop := c.run(t, "a")
		defer stop()
		c.leader(t, "")
		c.cutOff("a", true)
		time.Sleep(DefaultLeaseDuration)
		c.mu.Lock()
		if len(c.leaders) != 0 {
			t.Errorf("%v still leads without a lease", c.leaders)
		}
		c.mu.Unlock()
		time.Sleep(time.Hour)
		c.cutOff("a", false)
		if _, took := c.leader(t, ""); took > longestRetry {
			t.Errorf("a leads %s after the cluster came back", took)
		}
	})
}

// TestWorkThatEndsEarly: if lead returns by itself, as when the controllers cannot be
// created, it is called again after a pause.
func TestWorkThatEndsEarly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := Run(ctx, Config{
			Leases: fake.NewClientset().CoordinationV1(), Namespace: "annex-system", Name: "annex-controllers",
			Identity: "a", Timing: DefaultTiming(),
		}, func(context.Context) { calls++ })
		if err != nil {
			t.Error(err)
		}
		if calls < 10 || calls > 31 { // at once, and at most every two seconds from then on
			t.Errorf("lead was called %d times in a minute, want about once in %s", calls, DefaultRetryPeriod)
		}
	})
}

func TestValidate(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		timing Timing
		want   string
	}{
		"defaults":         {DefaultTiming(), ""},
		"fast":             {Timing{time.Second, 700 * time.Millisecond, 200 * time.Millisecond}, ""},
		"no lease":         {Timing{0, 10 * time.Second, 2 * time.Second}, "lease duration"},
		"half seconds":     {Timing{1500 * time.Millisecond, time.Second, 200 * time.Millisecond}, "whole seconds"},
		"deadline as long": {Timing{15 * time.Second, 15 * time.Second, 2 * time.Second}, "renew deadline"},
		"no retry":         {Timing{15 * time.Second, 10 * time.Second, 0}, "retry period"},
		"retry too long":   {Timing{15 * time.Second, 10 * time.Second, 9 * time.Second}, "retry period"},
	}
	for name, test := range tests {
		err := test.timing.Validate()
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %q", name, err, test.want)
		}
	}
}

func TestIdentitiesDiffer(t *testing.T) {
	t.Parallel()
	if a, b := NewIdentity(), NewIdentity(); a == b || !strings.Contains(a, "_") {
		t.Errorf("%q and %q", a, b)
	}
}
