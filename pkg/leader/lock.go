// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package leader

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
)

// logInterval is how often an unreachable Lease is logged as an error.
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
	attempt, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	record, raw, err := l.Interface.Get(attempt)
	l.note(ctx, err)
	return record, raw, err
}

// Create makes the Lease.
func (l *quietLock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	attempt, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	err := l.Interface.Create(attempt, record)
	l.note(ctx, err)
	return err
}

// Update writes the Lease.
func (l *quietLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	attempt, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	err := l.Interface.Update(attempt, record)
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
