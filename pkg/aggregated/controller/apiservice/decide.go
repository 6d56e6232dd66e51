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
)

// notCheckedMessage is said between an APIService being written and the main
// cluster's first look at what is behind it.
const notCheckedMessage = "The main cluster has not checked yet whether it reaches annex"

// reasonLocal is why the main cluster calls an APIService available that leads to
// no Service.
const reasonLocal = "Local"

// status is how a group version stands in the main cluster.
type status struct {
	published       bool
	reason, message string
}

func notPublished(reason, message string) status {
	return status{reason: reason, message: message}
}

// operation is what is to be done to an APIService.
type operation int

const (
	// keep it as it is.
	keep operation = iota
	// create it.
	create
	// update is to put right one that is annex's.
	update
	// takeOver is to make annex's one that is the main cluster's.
	takeOver
)

// action is what is to be done about one group version.
type action struct {
	operation operation
	// apiService is what is to be written.
	apiService *apiService
	// status is how it stands before that.
	status status
	// ours: the APIService is annex's already.
	ours bool
	// inherited marks a standing that is all groups', and not this one's.
	inherited bool
}

// decide says what is to be done about a version that annex serves.
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

// decideHosting says the same about annex's own group, which waits for nothing.
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

// availability is what the main cluster says of an APIService that is annex's, in
// its own words.
func availability(current *apiService) status {
	available := apiregistrationhelper.GetAPIServiceConditionByType(current, apiregistrationv1.Available)
	switch {
	case available == nil || current.Spec.Service == nil || available.Reason == reasonLocal:
		// What leads to no Service, or did until just now, is called available
		// without a look at annex.
		return notPublished(reasonUnavailable, notCheckedMessage)
	case available.Status == apiregistrationv1.ConditionTrue:
		return status{published: true, reason: reasonPublished, message: "The main cluster sends requests to annex"}
	default:
		return notPublished(reasonUnavailable, fmt.Sprintf("The main cluster does not reach annex: %s: %s", available.Reason, available.Message))
	}
}

// isUnavailable reports whether the main cluster has looked and not reached annex.
func isUnavailable(current *apiService) bool {
	if current == nil || current.Spec.Service == nil {
		return false
	}
	available := apiregistrationhelper.GetAPIServiceConditionByType(current, apiregistrationv1.Available)
	return available != nil && available.Status == apiregistrationv1.ConditionFalse
}

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
