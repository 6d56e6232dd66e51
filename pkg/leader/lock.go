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

// complainEvery is how often a Lease that cannot be reached is an error in the log.
const complainEvery = time.Minute

// quietLock says in annex's words, and rarely, what goes wrong with a Lease.
// Upstream logs an error at each attempt, that is every two seconds and in every
// replica while the main cluster is away. It is used by one goroutine at a time.
type quietLock struct {
	resourcelock.Interface
	logger klog.Logger
	// timeout bounds a single attempt, so that one that hangs leaves time for more.
	timeout       time.Duration
	now           func() time.Time
	failingSince  time.Time
	lastComplaint time.Time
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

// note complains about what has been wrong for a while: single failures, and
// those of a server that starts, get over themselves.
func (l *quietLock) note(ctx context.Context, err error) {
	expected := apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err)
	now := l.now()
	switch {
	case err == nil || expected:
		l.failingSince = time.Time{}
	case ctx.Err() != nil: // a stop
	case l.failingSince.IsZero():
		l.failingSince = now
	case now.Sub(l.failingSince) > DefaultRenewDeadline && now.Sub(l.lastComplaint) >= complainEvery:
		l.lastComplaint = now
		l.logger.Error(err, "The lease that decides which replica runs the controllers cannot be reached, trying again",
			"since", l.failingSince)
	}
}

// upstreamLogger is what client-go's election may say: nothing, unless somebody
// looks closely.
func upstreamLogger(ctx context.Context) klog.Logger {
	if logger := klog.FromContext(ctx).V(4); logger.Enabled() {
		return logger
	}
	return klog.Logger{}
}
