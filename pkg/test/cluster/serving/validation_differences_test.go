// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package serving

import (
	"regexp"
	"sync/atomic"
)

// difference is a difference that is meant.
type difference struct {
	// cases is a regular expression of the names of all cases that differ.
	cases  string
	reason string
	found  atomic.Bool
}

// differences are those that stay. Every case whose name matches has to differ.
var differences = []difference{
	{
		cases:  `.*/create/wrong kind`,
		reason: "the message names the internal type, and annex has none",
	},
	{
		cases:  `.*WebhookConfiguration/.*clientConfig\.service\.(name|namespace) (removed|empty)`,
		reason: "Kubernetes confuses the two names in its messages",
	},
	{
		cases:  `TokenRequest/create/bound to a (pod|node)`,
		reason: "annex has no Pods and Nodes",
	},
	{
		cases:  `TokenReview/create/status`,
		reason: "kube-apiserver returns the status that an unauthenticated review came with",
	},
}

func differenceOf(name string) *difference {
	for i := range differences {
		if regexp.MustCompile("^" + differences[i].cases + "$").MatchString(name) {
			return &differences[i]
		}
	}
	return nil
}
