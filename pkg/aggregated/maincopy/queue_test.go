// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincopy

import (
	"context"
	"errors"
	"testing"

	"github.com/annex-dev/annex/pkg/test/expect"
)

// TestQueue: a key is handled once at a time, again after a change meanwhile, and again after an
// error.
func TestQueue(t *testing.T) {
	t.Parallel()
	q, a := newQueue(), key{"default", "a"}
	q.add(a)
	q.add(a)
	got, err := q.get(t.Context())
	expect.NoError(t, err)
	expect.Equal(t, "default/a", got.String())
	q.add(a) // while it is handled
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := q.get(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("a key was handled twice at a time: %v", err)
	}
	q.done(a, nil)
	_, err = q.get(t.Context())
	expect.NoError(t, err)
	q.done(a, errors.New("failed once"))
	expect.Error(t, q.idle(ended, 10), "default/a", "failed once")

	_, err = q.get(t.Context()) // when the retry is due
	expect.NoError(t, err)
	q.done(a, nil)
	expect.NoError(t, q.idle(t.Context(), 0))
	expect.NoError(t, q.problem())
}
