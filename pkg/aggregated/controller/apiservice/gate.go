// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiservice

import (
	"sync"
	"time"
)

// gate keeps the groups of definitions back until annex's own group has shown that
// the main cluster reaches this annex. It knows one term of a leader.
type gate struct {
	settlePeriod time.Duration

	mu    sync.Mutex
	state gateState
	// since is when annex's own group was proven last.
	since time.Time
}

// gateState is what the gate says at one moment.
type gateState struct {
	// proven: the main cluster reaches this annex. What is annex's is put right.
	proven bool
	// settled: it did so for the settle period once in this term.
	settled bool
	// caBundle is what it was proven with.
	caBundle string
	// why the gate is not open.
	why status
}

// open reports whether APIServices may be made that were not annex's before.
func (s gateState) open() bool { return s.proven && s.settled }

// with is the state for certificates that may be others than the proven ones.
func (s gateState) with(caBundle []byte) gateState {
	if s.proven && s.caBundle != string(caBundle) {
		return gateState{settled: s.settled, why: notPublished(reasonWaitingForAnnex, "The certificates that annex is verified with have changed, which the main cluster has not checked yet")}
	}
	return s
}

func newGate(settlePeriod time.Duration) *gate {
	return &gate{settlePeriod: settlePeriod, state: gateState{why: notPublished(reasonWaitingForAnnex, notCheckedMessage)}}
}

func (g *gate) get() gateState {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.state
}

// observe takes in how annex's own group stands with certificates, and returns
// whether that changes anything for the others and, while it is settling, when to
// look again.
func (g *gate) observe(proof status, caBundle []byte, now time.Time) (changed bool, again time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	before := g.state
	if !proof.published {
		g.state.proven, g.state.why = false, proof
		return g.state != before, 0
	}
	if !g.state.proven {
		g.state.proven, g.since = true, now
	}
	g.state.caBundle = string(caBundle)
	if !g.state.settled {
		again = g.settlePeriod - now.Sub(g.since)
		g.state.settled = again <= 0
	}
	g.state.why = status{}
	if !g.state.settled {
		g.state.why = notPublished(reasonWaitingForAnnex, "The main cluster reaches annex; annex waits whether that lasts before it publishes more")
	}
	return g.state != before, max(again, 0)
}
