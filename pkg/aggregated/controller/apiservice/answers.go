// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiservice

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// answerInterval is how often the main cluster is asked who answers for a version
// until annex does, which takes it milliseconds after it called it available.
const answerInterval = 200 * time.Millisecond

// answers remembers for which versions annex was seen to answer the main cluster's
// requests. That an APIService is available does not say so: the part of
// kube-apiserver that finds that out is not the part that sends requests, and until
// that has taken in a takeover, what somebody makes lands in the main cluster.
type answers struct {
	mu   sync.Mutex
	seen map[schema.GroupVersion]bool
}

func (a *answers) has(version schema.GroupVersion) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.seen[version]
}

func (a *answers) set(version schema.GroupVersion, seen bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if seen {
		a.seen[version] = true
	} else {
		delete(a.seen, version)
	}
}

// answer makes sure that what is called available is answered by annex, and
// returns how the version stands and when to come again.
func (r *reconciler) answer(ctx context.Context, version schema.GroupVersion, stands standing) (standing, time.Duration) {
	if !stands.published {
		r.answers.set(version, false)
		return stands, 0
	}
	if r.answers.has(version) {
		return stands, 0
	}
	asking, cancel := context.WithTimeout(ctx, proofTimeout)
	defer cancel()
	publication := publication{service: r.service}
	switch by, err := r.answeredBy(asking, version); {
	case err != nil:
		return notPublished(reasonUnavailable, fmt.Sprintf("The main cluster does not reach annex: %v", err)), proofInterval
	case by == "":
		return notPublished(reasonUnavailable, "The main cluster still answers for it itself: it has not taken in the APIService yet"), answerInterval
	case by != publication.publishedBy():
		return notPublished(reasonUnavailable, fmt.Sprintf("Another annex answers, the one behind Service %s", by)), proofInterval
	}
	r.answers.set(version, true)
	return stands, 0
}
