// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincopy

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// answers simulates the answers of an API server. Times count from the start.
type answers struct {
	// delay is the server's latency.
	delay func() time.Duration
	// From cutOff on it has no etcd, from frozen on it does nothing, and from stalled on annex does nothing.
	cutOff, frozen, stalled period
}

type period struct{ from, to time.Duration }

// end returns when what would be at a time is done, if it waits for the end of the period.
func (p period) end(at time.Duration) time.Duration {
	if at >= p.from && at < p.to {
		return p.to
	}
	return at
}

// run returns when a problem is noticed, 0 if there is none for a minute.
func (s answers) run() (time.Duration, error) {
	zero := time.Now()
	l := newLiveness(zero)
	type event struct {
		at time.Duration
		answer
	}
	var pending []event
	for now := askInterval; now < time.Minute; now += askInterval {
		if s.stalled.end(now) > now {
			continue
		}
		left := pending[:0]
		for _, e := range pending {
			if e.at > now {
				left = append(left, e)
				continue
			}
			l.add(e.answer)
		}
		pending = left
		if err := l.problem(zero.Add(now)); err != nil {
			return now, err
		}
		for _, q := range []question{fromEtcd, fromMemory} {
			at := s.frozen.end(now + s.delay())
			if q == fromEtcd {
				at = s.cutOff.end(at)
			}
			pending = append(pending, event{at, answer{question: q, began: zero.Add(now), took: at - now}})
		}
	}
	return 0, nil
}

func TestLiveness(t *testing.T) {
	t.Parallel()
	const at, ms = 20 * time.Second, time.Millisecond
	after := func(d time.Duration) period { return period{at, at + d} }
	constant := func(d time.Duration) func() time.Duration { return func() time.Duration { return d } }
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same each time
	noisy := func() time.Duration { return time.Duration(random.ExpFloat64() * float64(300*ms)) }
	for name, tc := range map[string]struct {
		answers
		// within is the latest time of an error, 0 if there must be none.
		within time.Duration
	}{
		"fast":                     {answers{delay: constant(5 * ms)}, 0},
		"slow":                     {answers{delay: constant(900 * ms)}, 0},
		"very slow":                {answers{delay: constant(2500 * ms)}, 0},
		"no answers":               {answers{delay: constant(time.Hour)}, maxLimit},
		"of any speed":             {answers{delay: noisy}, 0},
		"fast, cut off":            {answers{delay: constant(5 * ms), cutOff: after(time.Second)}, at + 800*ms},
		"slow, cut off":            {answers{delay: constant(900 * ms), cutOff: after(time.Second)}, at + time.Second},
		"very slow, cut off":       {answers{delay: constant(2500 * ms), cutOff: after(time.Second)}, at + time.Second},
		"fast, frozen":             {answers{delay: constant(5 * ms), frozen: after(time.Second)}, at + 800*ms},
		"slow, frozen for a while": {answers{delay: constant(400 * ms), frozen: after(time.Second)}, 0},
		"slow, frozen":             {answers{delay: constant(400 * ms), frozen: after(10 * time.Second)}, at + maxLimit},
		"annex stalled":            {answers{delay: constant(5 * ms), stalled: after(650 * ms)}, at + 700*ms},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found, err := tc.run()
			if (found == 0) != (tc.within == 0) || found > tc.within {
				t.Errorf("noticed after %s (%v), want within %s", found, err, tc.within)
			}
		})
	}
}

func TestLivenessErrors(t *testing.T) {
	t.Parallel()
	failed := errors.New("etcdserver: no leader")
	for name, tc := range map[string]struct {
		answer
		want error
	}{
		"error from etcd":    {answer{question: fromEtcd, err: failed}, failed},
		"error without etcd": {answer{question: fromMemory, err: failed}, nil},
		"busy":               {answer{question: fromEtcd, err: apierrors.NewTooManyRequestsError("later")}, nil},
		"another connection": {answer{question: fromEtcd, err: errOtherConnection}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := time.Now()
			l := newLiveness(now)
			l.add(tc.answer)
			if err := l.problem(now); !errors.Is(err, tc.want) {
				t.Errorf("error %v, want %v", err, tc.want)
			}
		})
	}
}
