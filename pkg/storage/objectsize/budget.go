// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package objectsize

import (
	"context"
	"time"

	"golang.org/x/sync/semaphore"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// HeavyBytes is the size from which an object counts as large: one that takes so
// much memory that not every request which may run at the same time may have one.
const HeavyBytes = 1 << 20

// retrySeconds is when a client that found no room may try again.
const retrySeconds = 2

// Budget is how many bytes of large objects are worked on at the same time. A
// write takes several times the size of its object while it lasts, so this is
// what bounds the memory of writes. Objects below HeavyBytes take nothing of it:
// flow control bounds how many of them there are.
type Budget struct {
	bytes   int64
	timeout time.Duration
	parts   *semaphore.Weighted
}

// NewBudget returns a budget of so many bytes. A write waits for its part until
// timeout.
func NewBudget(bytes int64, timeout time.Duration) *Budget {
	registerMetrics()
	return &Budget{bytes: bytes, timeout: timeout, parts: semaphore.NewWeighted(bytes)}
}

type partKey struct{}

// Acquire waits for a part of the budget as large as the object. Within the
// context that it returns nothing more is taken: nobody who holds a part ever
// waits for another. The part is given back by release.
func (b *Budget) Acquire(ctx context.Context, objectBytes int64) (_ context.Context, release func(), err error) {
	if objectBytes < HeavyBytes || ctx.Value(partKey{}) != nil {
		return ctx, func() {}, nil
	}
	// What is larger than all of it goes alone.
	part := min(objectBytes, b.bytes)
	if err := b.wait(ctx, part); err != nil {
		return ctx, nil, err
	}
	held.Add(float64(part))
	return context.WithValue(ctx, partKey{}, part), func() {
		held.Add(-float64(part))
		b.parts.Release(part)
	}, nil
}

func (b *Budget) wait(ctx context.Context, part int64) error {
	waiting.Inc()
	defer waiting.Dec()
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	if b.parts.Acquire(ctx, part) != nil {
		return apierrors.NewTooManyRequests("other large objects are being written, try again later", retrySeconds)
	}
	return nil
}
