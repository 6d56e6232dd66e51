// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiservice

import (
	"testing"
	"time"
)

var epoch = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

func TestGate(t *testing.T) {
	t.Parallel()
	yes := status{published: true, reason: reasonPublished}
	no := notPublished(reasonWaitingForAnnex, "no")
	foreigner := notPublished(reasonForeignAPIService, "b/annex")

	type step struct {
		after   time.Duration
		saw     status
		open    bool
		proven  bool
		changed bool
		again   time.Duration
		reason  string
	}
	for name, steps := range map[string][]step{
		"settles": {
			{0, no, false, false, true, 0, reasonWaitingForAnnex},
			{time.Second, no, false, false, false, 0, reasonWaitingForAnnex},
			{2 * time.Second, yes, false, true, true, 5 * time.Second, reasonWaitingForAnnex},
			{4 * time.Second, yes, false, true, false, 3 * time.Second, reasonWaitingForAnnex},
			{7 * time.Second, yes, true, true, true, 0, ""},
			{8 * time.Second, yes, true, true, false, 0, ""},
		},
		"begins anew when it does not last": {
			{0, yes, false, true, true, 5 * time.Second, reasonWaitingForAnnex},
			{4 * time.Second, no, false, false, true, 0, reasonWaitingForAnnex},
			{5 * time.Second, yes, false, true, true, 5 * time.Second, reasonWaitingForAnnex},
			{9 * time.Second, yes, false, true, false, time.Second, reasonWaitingForAnnex},
			{10 * time.Second, yes, true, true, true, 0, ""},
		},
		"settles once": {
			{0, yes, false, true, true, 5 * time.Second, reasonWaitingForAnnex},
			{5 * time.Second, yes, true, true, true, 0, ""},
			{6 * time.Second, no, false, false, true, 0, reasonWaitingForAnnex},
			{7 * time.Second, yes, true, true, true, 0, ""},
		},
		"says who is in the way": {
			{0, foreigner, false, false, true, 0, reasonForeignAPIService},
			{time.Second, foreigner, false, false, false, 0, reasonForeignAPIService},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGate(5 * time.Second)
			for i, s := range steps {
				changed, again := g.observe(s.saw, []byte("CA"), epoch.Add(s.after))
				state := g.get()
				if state.open() != s.open || state.proven != s.proven || changed != s.changed || again != s.again || state.why.reason != s.reason {
					t.Errorf("step %d: %+v, changed %t, again %s; want %+v", i, state, changed, again, s)
				}
			}
		})
	}
}

func TestGateIsForTheCertificatesItWasProvenWith(t *testing.T) {
	t.Parallel()
	g := newGate(time.Second)
	g.observe(status{published: true}, []byte("CA"), epoch)
	g.observe(status{published: true}, []byte("CA"), epoch.Add(time.Second))
	if state := g.get().with([]byte("CA")); !state.open() {
		t.Errorf("not open: %+v", state)
	}
	if state := g.get().with([]byte("new CA")); state.proven || state.why.reason != reasonWaitingForAnnex {
		t.Errorf("proven with certificates that the main cluster has not seen: %+v", state)
	}
	if changed, _ := g.observe(status{published: true}, []byte("new CA"), epoch.Add(time.Second)); !changed || !g.get().with([]byte("new CA")).open() {
		t.Error("not open with the certificates it is proven with")
	}
}
