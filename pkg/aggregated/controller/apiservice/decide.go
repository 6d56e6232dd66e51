// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiservice

import (
	"fmt"

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

// standing is how a group version stands in the main cluster.
type standing struct {
	published       bool
	reason, message string
}

func notPublished(reason, message string) standing {
	return standing{reason: reason, message: message}
}

// write is what is to be done to an APIService.
type write int

const (
	// leave it as it is.
	leave write = iota
	// create it.
	create
	// mend is to put right one that is annex's.
	mend
	// takeOver is to make annex's one that is the main cluster's.
	takeOver
)

// verdict is what is to be done about one group version.
type verdict struct {
	write write
	// apiService is what is to be written.
	apiService *apiService
	// standing is how it stands before that.
	standing standing
	// ours: the APIService is annex's already.
	ours bool
	// inherited marks a standing that is all groups', and not this one's.
	inherited bool
}

// decide says what is to be done about a version that annex serves.
func decide(v *view, name string, p publication, g gateState) verdict {
	version := schema.GroupVersion{Group: v.group, Version: name}
	current := v.apiServices[name]
	wanted := p.desired(version, current)
	v.nameResources(wanted, name)
	if p.ownerOf(current) == annex {
		kept := verdict{standing: availability(current), ours: true}
		if g.proven && differs(current, wanted) {
			kept.write, kept.apiService = mend, wanted
		}
		return kept
	}
	if why, is := v.blocked(p, version); is {
		return verdict{standing: why}
	}
	if !v.answers(name) {
		return verdict{standing: notPublished(reasonNotServed, fmt.Sprintf("No CustomResourceDefinition of %s is established in annex yet", version))}
	}
	if !g.open() {
		return verdict{standing: g.why, inherited: true}
	}
	made := verdict{write: create, apiService: wanted, standing: notPublished(reasonUnavailable, notCheckedMessage)}
	if current != nil {
		made.write = takeOver
	}
	return made
}

// decideHosting says the same about annex's own group, which waits for nothing.
func decideHosting(current *apiService, p publication) verdict {
	wanted := p.desired(hostingVersion, current)
	switch p.ownerOf(current) {
	case nobody:
		return verdict{write: create, apiService: wanted, standing: notPublished(reasonUnavailable, notCheckedMessage)}
	case annex:
		if differs(current, wanted) {
			return verdict{write: mend, apiService: wanted, standing: availability(current), ours: true}
		}
		return verdict{standing: availability(current), ours: true}
	case foreign:
		return verdict{standing: notPublished(reasonForeignAPIService, foreignMessage(p, current))}
	default:
		return verdict{standing: notPublished(reasonGroupInMain, fmt.Sprintf(
			"The main cluster serves %s itself, so annex cannot be reached through it: is there a CustomResourceDefinition of that group?", hostingVersion))}
	}
}

// availability is what the main cluster says of an APIService that is annex's, in
// its own words.
func availability(current *apiService) standing {
	available := apiregistrationhelper.GetAPIServiceConditionByType(current, apiregistrationv1.Available)
	switch {
	case available == nil || current.Spec.Service == nil || available.Reason == reasonLocal:
		// What leads to no Service, or did until just now, is called available
		// without a look at annex.
		return notPublished(reasonUnavailable, notCheckedMessage)
	case available.Status == apiregistrationv1.ConditionTrue:
		return standing{published: true, reason: reasonPublished, message: "The main cluster sends requests to annex"}
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
