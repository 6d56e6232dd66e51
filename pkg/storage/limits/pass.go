// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"context"
	"sync/atomic"
)

// Pass says of the write that is made next, with the context that it came with,
// whether limits apply to it.
type Pass struct{ unlimited atomic.Bool }

type passKey struct{}

// WithPass returns a context for writes, and what says of each of them whether
// limits apply. At first they do.
func WithPass(ctx context.Context) (context.Context, *Pass) {
	pass := &Pass{}
	return context.WithValue(ctx, passKey{}, pass), pass
}

// SetUnlimited has the next write not be refused, however much it adds.
func (p *Pass) SetUnlimited(unlimited bool) { p.unlimited.Store(unlimited) }

func isUnlimited(ctx context.Context) bool {
	pass, ok := ctx.Value(passKey{}).(*Pass)
	return ok && pass.unlimited.Load()
}
