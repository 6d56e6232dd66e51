// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package leader

import (
	"context"
	"fmt"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	_ "k8s.io/component-base/metrics/prometheus/clientgo/leaderelection" // leader_election_master_status
	"k8s.io/klog/v2"
)

// Upstream's defaults: a replica that dies is replaced within DefaultLeaseDuration and
// DefaultRetryPeriod; a disconnected one has the difference between the first two to stop.
const (
	DefaultLeaseDuration = 15 * time.Second
	DefaultRenewDeadline = 10 * time.Second
	DefaultRetryPeriod   = 2 * time.Second
)

// releaseTimeout bounds the attempt to release a Lease, so that a replica that cannot
// reach it stops. The other replicas then wait until it expires.
const releaseTimeout = 2 * time.Second

// Timing configures how fast leadership changes.
type Timing struct {
	// LeaseDuration is how long others wait for a leader that does not renew.
	LeaseDuration time.Duration
	// RenewDeadline is how long a leader tries to renew before it stops leading.
	RenewDeadline time.Duration
	// RetryPeriod is the time between attempts to get or renew the Lease.
	RetryPeriod time.Duration
}

// DefaultTiming is upstream's.
func DefaultTiming() Timing {
	return Timing{LeaseDuration: DefaultLeaseDuration, RenewDeadline: DefaultRenewDeadline, RetryPeriod: DefaultRetryPeriod}
}

// Validate checks the relations that the election requires.
func (t Timing) Validate() error {
	switch {
	case t.LeaseDuration < time.Second || t.LeaseDuration%time.Second != 0:
		// A Lease counts in seconds.
		return fmt.Errorf("the lease duration %s must be whole seconds, one at least", t.LeaseDuration)
	case t.RenewDeadline >= t.LeaseDuration:
		return fmt.Errorf("the renew deadline %s must be shorter than the lease duration %s", t.RenewDeadline, t.LeaseDuration)
	case t.RetryPeriod <= 0 || float64(t.RetryPeriod)*leaderelection.JitterFactor >= float64(t.RenewDeadline):
		return fmt.Errorf("the retry period %s must be more than 0 and well below the renew deadline %s", t.RetryPeriod, t.RenewDeadline)
	}
	return nil
}

// Config selects the Lease.
type Config struct {
	Leases    coordinationv1client.LeasesGetter
	Namespace string
	Name      string
	// Identity is unique among all replicas, including previous ones.
	Identity string
	Timing   Timing
}

// NewIdentity returns a unique identity that contains the host name.
func NewIdentity() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return host + "_" + string(uuid.NewUUID())
}

// Run calls lead each time this replica becomes the leader, with a context that is done
// when it loses leadership or ctx is done. lead must return then, after all its work has
// stopped. Run returns when ctx is done, lead has returned and the Lease is released.
func Run(ctx context.Context, config Config, lead func(context.Context)) error {
	logger := klog.LoggerWithValues(klog.LoggerWithName(klog.FromContext(ctx), "leader"), "lease", klog.KRef(config.Namespace, config.Name))
	ctx = klog.NewContext(ctx, logger)
	e := &election{config: config, lead: lead, lock: &quietLock{
		Interface: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: config.Namespace, Name: config.Name},
			Client:     config.Leases,
			LockConfig: resourcelock.ResourceLockConfig{Identity: config.Identity},
		},
		logger:  logger,
		timeout: config.Timing.RenewDeadline / 2,
		now:     time.Now,
	}}
	for ctx.Err() == nil {
		if err := e.campaign(ctx); err != nil {
			return fmt.Errorf("elect a leader by the lease %s/%s: %w", config.Namespace, config.Name, err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(config.Timing.RetryPeriod):
		}
	}
	return nil
}

// election is the candidacy of one replica.
type election struct {
	config Config
	lead   func(context.Context)
	lock   *quietLock
}

// campaign waits for leadership, leads, and releases the Lease.
func (e *election) campaign(ctx context.Context) error {
	// The Lease is renewed until lead has returned.
	holding, stopRenewing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopRenewing()
	elected := make(chan context.Context, 1)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Name:          e.config.Name,
		Lock:          e.lock,
		LeaseDuration: e.config.Timing.LeaseDuration,
		RenewDeadline: e.config.Timing.RenewDeadline,
		RetryPeriod:   e.config.Timing.RetryPeriod,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(leadership context.Context) { elected <- leadership },
			OnStoppedLeading: func() {},
			OnNewLeader: func(identity string) {
				klog.FromContext(ctx).V(1).Info("There is a new leader", "leader", identity)
			},
		},
	})
	if err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		elector.Run(klog.NewContext(holding, upstreamLogger(ctx)))
	}()
	select {
	case <-ctx.Done():
	case <-ended:
	case leadership := <-elected:
		e.runLead(ctx, leadership)
	}
	stopRenewing()
	<-ended
	e.release(ctx)
	return nil
}

// runLead calls lead until leadership or ctx is done.
func (e *election) runLead(ctx, leadership context.Context) {
	logger := klog.FromContext(ctx)
	leading, stop := context.WithCancel(klog.NewContext(leadership, logger))
	defer stop()
	defer context.AfterFunc(ctx, stop)()
	logger.V(1).Info("This replica leads", "identity", e.config.Identity)
	e.lead(leading)
	if ctx.Err() == nil && leadership.Err() != nil {
		logger.Info("This replica lost leadership: it could not renew the lease in time", "identity", e.config.Identity)
	} else {
		logger.V(1).Info("This replica stops leading", "identity", e.config.Identity)
	}
}

// release releases the Lease if this replica still holds it, so that no replica has to
// wait until it expires.
func (e *election) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	record, _, err := e.lock.Get(ctx)
	if err != nil || record.HolderIdentity != e.config.Identity {
		return
	}
	now := metav1.Now()
	err = e.lock.Update(ctx, resourcelock.LeaderElectionRecord{
		LeaderTransitions:    record.LeaderTransitions,
		LeaseDurationSeconds: 1,
		AcquireTime:          now,
		RenewTime:            now,
	})
	if err != nil {
		klog.FromContext(ctx).V(1).Info("The lease was not released and has to expire", "err", err)
	}
}
