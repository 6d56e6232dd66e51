// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"context"
	"sync/atomic"
)

// Exemption says of the write that is made next, with the context that it came with,
// whether limits apply to it.
type Exemption struct{ exempt atomic.Bool }

type exemptionKey struct{}

// WithExemption returns a context for writes, and what says of each of them whether
// limits apply. At first they do.
func WithExemption(ctx context.Context) (context.Context, *Exemption) {
	pass := &Exemption{}
	return context.WithValue(ctx, exemptionKey{}, pass), pass
}

// Set has the next write not be refused, however much it adds.
func (p *Exemption) Set(unlimited bool) { p.exempt.Store(unlimited) }

func isExempt(ctx context.Context) bool {
	pass, ok := ctx.Value(exemptionKey{}).(*Exemption)
	return ok && pass.exempt.Load()
}
