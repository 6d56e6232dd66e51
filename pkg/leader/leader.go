// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package leader elects one of several replicas with a Lease.
//
// It is client-go's leader election with two differences. A replica that loses the Lease
// does not exit: it continues to serve and becomes a candidate again. And the Lease is
// released only once everything that it guards has stopped, so that leaders never overlap.
package leader

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/pflag"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/util/retry"
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
const releaseTimeout = 5 * time.Second

// Timing configures how fast leadership changes.
type Timing struct {
	// LeaseDuration is the time that others wait for a leader that does not renew.
	LeaseDuration time.Duration
	// RenewDeadline is the time in which a leader tries to renew before it stops leading.
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
	// Labels are added to the Lease by the leader.
	Labels map[string]string
	// OnOther is called, if it is set, when another replica begins to lead.
	OnOther func()
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
			Labels:     config.Labels,
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
				if e.config.OnOther != nil && identity != "" && identity != e.config.Identity {
					e.config.OnOther()
				}
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
// wait until it expires. A renewal that was under way when the election ended can still
// arrive, so it is repeated after a conflict.
func (e *election) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		record, _, err := e.lock.Get(ctx)
		if err != nil || record.HolderIdentity != e.config.Identity {
			return err
		}
		now := metav1.Now()
		return e.lock.Update(ctx, resourcelock.LeaderElectionRecord{
			LeaderTransitions:    record.LeaderTransitions,
			LeaseDurationSeconds: 1,
			AcquireTime:          now,
			RenewTime:            now,
		})
	})
	if err != nil {
		klog.FromContext(ctx).V(1).Info("The lease was not released and has to expire", "err", err)
	}
}

// AddFlags adds the flags of a timing, named as in upstream's components. What describes
// the leader's work: "runs the controllers".
func (t *Timing) AddFlags(fs *pflag.FlagSet, what string) {
	fs.DurationVar(&t.LeaseDuration, "leader-elect-lease-duration", t.LeaseDuration,
		"How long other replicas wait for a leader that keeps silent before one of them "+what+". Whole seconds.")
	fs.DurationVar(&t.RenewDeadline, "leader-elect-renew-deadline", t.RenewDeadline,
		"How long the leader tries to renew its lease before it stops leading.")
	fs.DurationVar(&t.RetryPeriod, "leader-elect-retry-period", t.RetryPeriod,
		"The time between two attempts to get or renew the lease.")
}

// logInterval is the time between errors about an unreachable Lease in the log.
const logInterval = time.Minute

// quietLock limits the log messages about an unreachable Lease. Upstream logs an error at
// each attempt: every two seconds in every replica while the main cluster is unavailable.
// It is used by one goroutine at a time.
type quietLock struct {
	resourcelock.Interface
	logger klog.Logger
	// timeout bounds a single attempt, so that one that hangs leaves time for more.
	timeout      time.Duration
	now          func() time.Time
	failingSince time.Time
	lastLogged   time.Time
}

// Get reads the Lease.
func (l *quietLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	var record *resourcelock.LeaderElectionRecord
	var raw []byte
	err := l.try(ctx, func(ctx context.Context) (err error) {
		record, raw, err = l.Interface.Get(ctx)
		return err
	})
	return record, raw, err
}

// Create makes the Lease.
func (l *quietLock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.try(ctx, func(ctx context.Context) error { return l.Interface.Create(ctx, record) })
}

// Update writes the Lease.
func (l *quietLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.try(ctx, func(ctx context.Context) error { return l.Interface.Update(ctx, record) })
}

func (l *quietLock) try(ctx context.Context, request func(context.Context) error) error {
	attempt, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	err := request(attempt)
	l.note(ctx, err)
	return err
}

// note logs a failure that has lasted a while: single failures, and those while the server
// starts, are transient.
func (l *quietLock) note(ctx context.Context, err error) {
	expected := apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err)
	now := l.now()
	switch {
	case err == nil || expected:
		l.failingSince = time.Time{}
	case ctx.Err() != nil: // stopping
	case l.failingSince.IsZero():
		l.failingSince = now
	case now.Sub(l.failingSince) > DefaultRenewDeadline && now.Sub(l.lastLogged) >= logInterval:
		l.lastLogged = now
		l.logger.Error(err, "The leader election lease cannot be reached, will retry",
			"since", l.failingSince)
	}
}

// upstreamLogger is the logger of client-go's election, which logs only at verbosity 4.
func upstreamLogger(ctx context.Context) klog.Logger {
	if logger := klog.FromContext(ctx).V(4); logger.Enabled() {
		return logger
	}
	return klog.Logger{}
}
