// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincopy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

const (
	// askInterval is the time between questions. They do not wait for earlier answers: the fastest answer of a
	// slow API server counts.
	askInterval = 100 * time.Millisecond
	// cutOff is less than the second after which an API server that has lost its etcd for a moment tries
	// to connect again (google.golang.org/grpc/backoff).
	cutOff = 600 * time.Millisecond
	// The time limit for answers from etcd is limitFactor times the 90th percentile of the first measuredAnswers,
	// within minLimit and maxLimit. maxLimit is less than the 5 s that requests wait during a switch.
	measuredAnswers = 10
	limitFactor     = 7
	minLimit        = 700 * time.Millisecond
	maxLimit        = 3 * time.Second
)

// liveness decides by the answers of an API server whether it reads from its etcd. A slow server answers all
// questions late. A server that is cut off from etcd answers only fromEtcd late.
type liveness struct {
	// stored and served are the times of the last questions that were answered from etcd, and from memory.
	stored, served time.Time
	// checked is the time of the last call of problem.
	checked time.Time
	took    []time.Duration
	// limit is the time limit for answers from etcd. It is maxLimit until the measurement ends.
	limit  time.Duration
	failed error
}

func newLiveness(now time.Time) *liveness {
	return &liveness{stored: now, served: now, checked: now, limit: maxLimit}
}

// add adds an answer, and reports whether it was the last one of the measurement.
func (l *liveness) add(a answer) bool {
	switch {
	case a.err == nil && a.question == fromMemory:
		l.served = later(l.served, a.began)
	case a.err == nil:
		l.stored = later(l.stored, a.began)
		return l.measure(a.took)
	case a.question == fromEtcd && !isNoAnswer(a.err):
		l.failed = cmp.Or(l.failed, a.err)
	}
	return false
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

var errNotAsked = errors.New("annex has not asked it")

// isNoAnswer reports whether an error proves nothing about etcd.
func isNoAnswer(err error) bool {
	return errors.Is(err, errOtherConnection) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) ||
		apierrors.IsTooManyRequests(err)
}

func (l *liveness) measure(took time.Duration) bool {
	if len(l.took) == measuredAnswers {
		return false
	}
	l.took = append(l.took, took)
	if len(l.took) < measuredAnswers {
		return false
	}
	slices.Sort(l.took)
	l.limit = min(max(minLimit, limitFactor*l.took[measuredAnswers*9/10-1]), maxLimit)
	return true
}

// problem returns why the silence of the watch may no longer mean that nothing has changed.
func (l *liveness) problem(now time.Time) error {
	unchecked := now.Sub(l.checked)
	l.checked = now
	switch {
	case l.failed != nil:
		return l.failed
	case unchecked >= cutOff:
		return fmt.Errorf("%w for %s", errNotAsked, unchecked.Round(time.Millisecond))
	case l.served.Sub(l.stored) >= cutOff:
		return fmt.Errorf("it responds, but has read nothing from etcd for %s", now.Sub(l.stored).Round(time.Millisecond))
	case now.Sub(l.stored) >= l.limit:
		return fmt.Errorf("it has not responded for %s", now.Sub(l.stored).Round(time.Millisecond))
	}
	return nil
}
