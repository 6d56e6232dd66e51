// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincopy

import (
	"context"
	"errors"
	"fmt"
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

// TestProblem: the same failures make the same text, however many they are.
func TestProblem(t *testing.T) {
	t.Parallel()
	q := newQueue()
	for i := range 100 {
		for _, failed := range []string{"denied", "changed", "gone", "forbidden", "refused"} {
			if failed == "denied" || i == 0 {
				q.done(key{"default", fmt.Sprintf("%s-%02d", failed, i)}, errors.New(failed))
			}
		}
	}
	for range 10 {
		expect.Equal(t, `write default/changed-00 in the main cluster: changed
write default/denied-00 and 99 more in the main cluster: denied
write default/forbidden-00 in the main cluster: forbidden
and 2 more errors`, q.problem().Error())
	}
}
