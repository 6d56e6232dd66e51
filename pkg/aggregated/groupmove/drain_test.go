// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package groupmove

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/annex-dev/annex/pkg/storage/move"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// TestBoundedFreeze: writes wait for a bounded time. A drain that takes longer is tried again, and one that fails is not.
func TestBoundedFreeze(t *testing.T) {
	t.Parallel()
	broken := errors.New("the watch was lost")
	for name, test := range map[string]struct {
		drains []time.Duration // how long each drain takes
		fails  error
		want   error
		frozen time.Duration
	}{
		"in time":              {drains: []time.Duration{9 * time.Second}, frozen: 9 * time.Second},
		"never in time":        {drains: []time.Duration{time.Hour}, want: errDrainTimeout, frozen: drainTimeout},
		"broken":               {drains: []time.Duration{time.Second}, fails: broken, want: broken, frozen: time.Second},
		"the slowest decides":  {drains: []time.Duration{time.Second, 11 * time.Second}, want: errDrainTimeout, frozen: drainTimeout},
		"one of two is broken": {drains: []time.Duration{time.Second, time.Hour}, fails: broken, want: broken, frozen: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				var drains []func(context.Context) error
				for i, takes := range test.drains {
					drains = append(drains, func(ctx context.Context) error {
						select {
						case <-time.After(takes):
							if i == 0 {
								return test.fails
							}
							return nil
						case <-ctx.Done():
							return ctx.Err()
						}
					})
				}
				err := drainAll(t.Context(), func(context.Context) error { return nil }, drains)
				if !errors.Is(err, test.want) || test.fails != nil && errors.Is(err, errDrainTimeout) {
					t.Errorf("error %v, want %v", err, test.want)
				}
				expect.Equal(t, test.frozen, time.Since(began), "writes wait for")
			})
		})
	}
}

// TestUntilEqual goes on while objects differ, so that a Rollback does not fail because the copy lags on a slow cluster.
func TestUntilEqual(t *testing.T) {
	t.Parallel()
	different, other := &move.DifferentError{Objects: []string{"a"}, Count: 1}, errors.New("no response")
	for name, test := range map[string]struct {
		results  []error
		canceled bool
		want     error
	}{
		"equal":              {[]error{nil}, false, nil},
		"different at first": {[]error{different, fmt.Errorf("widgets: %w", different), nil}, false, nil},
		"an error":           {[]error{different, other}, false, other},
		"canceled meanwhile": {[]error{different}, true, context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			calls, reported := 0, []error{}
			err := untilEqual(ctx, func(context.Context) error {
				if calls++; test.canceled {
					cancel()
				}
				return test.results[calls-1]
			}, func(err error) { reported = append(reported, err) })
			if !errors.Is(err, test.want) || calls != len(test.results) || reported[len(reported)-1] != nil {
				t.Errorf("error %v after %d calls, reported %v", err, calls, reported)
			}
		})
	}
}
