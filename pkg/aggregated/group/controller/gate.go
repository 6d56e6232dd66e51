// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"sync"
	"time"

	"github.com/annex-dev/annex/pkg/aggregated/group"
)

// gate holds back the groups of definitions until annex's own group has proven that the
// main cluster reaches this annex. It lives for one leadership.
type gate struct {
	mu    sync.Mutex
	state group.Gate
	// caBundle is the bundle that it was proven with.
	caBundle string
	// since is the last time at which annex's own group became proven.
	since time.Time
}

// get returns the state, which is closed if the certificates differ from the proven ones.
func (g *gate) get(caBundle []byte) group.Gate {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.state.Proven && g.caBundle != string(caBundle) {
		return group.Gate{Settled: g.state.Settled, Why: group.No(group.ReasonWaitingForAnnex,
			"The certificates that annex is verified with have changed, which the main cluster has not checked yet")}
	}
	return g.state
}

// observe updates the gate with the status of annex's own group. It returns whether the
// other groups are affected, and when to observe again while the gate settles.
func (g *gate) observe(proof group.Status, caBundle []byte, now time.Time) (changed bool, again time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	before, bundle := g.state, g.caBundle
	if !proof.IsTrue() {
		g.state.Proven, g.state.Why = false, proof
		return g.state != before, 0
	}
	if !g.state.Proven {
		g.state.Proven, g.since = true, now
	}
	g.caBundle = string(caBundle)
	if !g.state.Settled {
		again = max(DefaultSettlePeriod-now.Sub(g.since), 0)
		g.state.Settled = again == 0
	}
	g.state.Why = group.Status{}
	if !g.state.Settled {
		g.state.Why = group.No(group.ReasonWaitingForAnnex, "The main cluster reaches annex; annex waits whether that lasts before it publishes more")
	}
	return g.state != before || g.caBundle != bundle, again
}
