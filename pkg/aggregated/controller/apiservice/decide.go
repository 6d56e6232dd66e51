// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiservice

import (
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	apiregistrationhelper "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"
)

// Reasons of the condition Published.
const (
	reasonPublished         = "Published"
	reasonWaitingForAnnex   = "WaitingForAnnex"
	reasonForeignAPIService = "ForeignAPIService"
	reasonGroupInMain       = "GroupInMain"
	reasonUnavailable       = "Unavailable"
	reasonNotServed         = "NotServed"
	reasonWriteFailed       = "WriteFailed"
	reasonDataReplaced      = "DataReplaced"
	reasonReverted          = "RouteReverted"
)

// notCheckedMessage applies from the write of an APIService to the main cluster's first
// availability check.
const notCheckedMessage = "The main cluster has not checked yet whether it reaches annex"

// reasonLocal is the reason for which the main cluster reports APIServices without a
// Service as available.
const reasonLocal = "Local"

// status is the state of a group version in the main cluster.
type status struct {
	published       bool
	reason, message string
}

func notPublished(reason, message string) status {
	return status{reason: reason, message: message}
}

// operation is the write that an APIService needs.
type operation int

const (
	keep operation = iota
	create
	// update restores an APIService of annex.
	update
	// takeOver turns an APIService of the main cluster into one of annex.
	takeOver
)

// action is the write that a group version needs, and its present state.
type action struct {
	operation operation
	// apiService is the object to write.
	apiService *apiService
	// status is the state before the write.
	status status
	// ours reports whether the APIService belongs to annex already.
	ours bool
	// inherited marks a status that applies to all groups.
	inherited bool
}

// decide returns the action for a version that annex serves.
func decide(v *view, name string, p template, g gateState) action {
	version := schema.GroupVersion{Group: v.group, Version: name}
	current := v.apiServices[name]
	wanted := p.desired(version, current)
	v.nameResources(wanted, name)
	if p.ownerOf(current) == annex {
		kept := action{status: availability(current), ours: true}
		if g.proven && differs(current, wanted) {
			kept.operation, kept.apiService = update, wanted
		}
		return kept
	}
	if why, is := v.blocked(p, version); is {
		return action{status: why}
	}
	if !v.isServed(name) {
		return action{status: notPublished(reasonNotServed, fmt.Sprintf("No CustomResourceDefinition of %s is established in annex yet", version))}
	}
	if !g.open() {
		return action{status: g.why, inherited: true}
	}
	made := action{operation: create, apiService: wanted, status: notPublished(reasonUnavailable, notCheckedMessage)}
	if current != nil {
		made.operation = takeOver
	}
	return made
}

// decideHosting returns the action for annex's own group, which has no preconditions.
func decideHosting(current *apiService, p template) action {
	wanted := p.desired(hostingVersion, current)
	switch p.ownerOf(current) {
	case none:
		return action{operation: create, apiService: wanted, status: notPublished(reasonUnavailable, notCheckedMessage)}
	case annex:
		if differs(current, wanted) {
			return action{operation: update, apiService: wanted, status: availability(current), ours: true}
		}
		return action{status: availability(current), ours: true}
	case foreign:
		return action{status: notPublished(reasonForeignAPIService, foreignMessage(p, current))}
	default:
		return action{status: notPublished(reasonGroupInMain, fmt.Sprintf(
			"The main cluster serves %s itself, so annex cannot be reached through it: is there a CustomResourceDefinition of that group?", hostingVersion))}
	}
}

// availability is the main cluster's condition Available of an APIService of annex.
func availability(current *apiService) status {
	available := apiregistrationhelper.GetAPIServiceConditionByType(current, apiregistrationv1.Available)
	switch {
	case available == nil || current.Spec.Service == nil || available.Reason == reasonLocal:
		// APIServices that have no Service, or had none until now, are reported as
		// available without a check.
		return notPublished(reasonUnavailable, notCheckedMessage)
	case available.Status == apiregistrationv1.ConditionTrue:
		return status{published: true, reason: reasonPublished, message: "The main cluster sends requests to annex"}
	default:
		return notPublished(reasonUnavailable, fmt.Sprintf("The main cluster does not reach annex: %s: %s", available.Reason, available.Message))
	}
}

// isUnavailable reports whether the main cluster's check of annex failed.
func isUnavailable(current *apiService) bool {
	if current == nil || current.Spec.Service == nil {
		return false
	}
	available := apiregistrationhelper.GetAPIServiceConditionByType(current, apiregistrationv1.Available)
	return available != nil && available.Status == apiregistrationv1.ConditionFalse
}

// gate holds back the groups of definitions until annex's own group has proven that the
// main cluster reaches this annex. It lives for one leadership.
type gate struct {
	settlePeriod time.Duration

	mu    sync.Mutex
	state gateState
	// since is when annex's own group was last proven.
	since time.Time
}

// gateState is a snapshot of the gate.
type gateState struct {
	// proven reports whether the main cluster reaches this annex. If so, APIServices of
	// annex are restored.
	proven bool
	// settled reports whether it did so for the settle period once during this
	// leadership.
	settled bool
	// caBundle is the bundle that it was proven with.
	caBundle string
	// why is the reason for which the gate is closed.
	why status
}

// open reports whether APIServices may be created or taken over.
func (s gateState) open() bool { return s.proven && s.settled }

// with closes the gate if the certificates differ from the proven ones.
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

// observe updates the gate with the status of annex's own group. It returns whether the
// other groups are affected, and when to observe again while the gate settles.
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
