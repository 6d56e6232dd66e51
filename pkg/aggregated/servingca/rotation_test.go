// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package servingca

import (
	"maps"
	"testing"
	"time"

	"github.com/annex-dev/annex/pkg/pki"
	"github.com/annex-dev/annex/pkg/test/expect"
)

func TestAdvance(t *testing.T) {
	t.Parallel()
	const hour = time.Hour
	stable := func(t *testing.T) *State { return mustState(t, epoch) }
	distributedSince := func(at time.Duration) func(*testing.T) *State {
		return func(t *testing.T) *State {
			state := rotating(t)
			state.DistributedSince = epoch.Add(at)
			return state
		}
	}
	promoted := func(t *testing.T) *State {
		state, due, err := advance(distributedSince(202*hour)(t), true, epoch.Add(203*hour), lifetimes)
		if err != nil || due != stepPromote {
			t.Fatalf("advance: %q, %v", due, err)
		}
		return state
	}
	asked := func(state func(*testing.T) *State) func(*testing.T) *State {
		return func(t *testing.T) *State {
			asked := state(t)
			asked.Rotate = true
			return asked
		}
	}
	tests := map[string]struct {
		state       func(*testing.T) *State
		distributed bool
		at          time.Duration
		want        step
	}{
		"new":                                   {stable, true, 199 * hour, ""},
		"a third is left":                       {stable, true, 200 * hour, stepAddNext},
		"nothing is published":                  {stable, false, 200 * hour, stepAddNext},
		"clock is behind":                       {stable, true, -1000 * hour, ""},
		"asked for":                             {asked(stable), true, hour, stepAddNext},
		"asked for while rotating":              {asked(rotating), true, 202 * hour, stepDistributed},
		"asked for again soon":                  {asked(promoted), true, 204 * hour, stepAddNext},
		"expired without replicas":              {stable, true, 300 * hour, stepReplace},
		"next is not distributed yet":           {rotating, false, 202 * hour, ""},
		"next is distributed now":               {rotating, true, 202 * hour, stepDistributed},
		"next is distributed for too short":     {distributedSince(202 * hour), true, 202*hour + 59*time.Minute, ""},
		"next is distributed long enough":       {distributedSince(202 * hour), true, 203 * hour, stepPromote},
		"next was lost":                         {distributedSince(202 * hour), false, 202*hour + 30*time.Minute, stepNotDistributed},
		"next was lost at the last moment":      {distributedSince(202 * hour), false, 203 * hour, stepNotDistributed},
		"next is never distributed, CA lives":   {rotating, false, 298 * hour, ""},
		"next is never distributed, CA expires": {rotating, false, 299 * hour, stepPromote},
		"both expired without replicas":         {rotating, true, 501 * hour, stepReplace},
		"previous may be in use":                {promoted, true, 233*hour + 59*time.Minute, ""},
		"previous cannot be in use":             {promoted, true, 234 * hour, stepDropPrevious},
		"previous before the next rotation":     {promoted, true, 450 * hour, stepDropPrevious},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			state := tt.state(t)
			before := mustSecret(t, state)
			after, due, err := advance(state, tt.distributed, epoch.Add(tt.at), lifetimes)
			expect.NoError(t, err)
			if due != tt.want {
				t.Errorf("the step is %q, want %q", due, tt.want)
			}
			if due == stepAddNext && (after.Rotate || len(after.Certificates()) != len(state.Certificates())+1) {
				t.Errorf("it is still asked for (%t), or something left the bundle: %v", after.Rotate, subjects(after.Certificates()))
			}
			if (after == state) != (due == "") {
				t.Errorf("the state changed: %t, with the step %q", after != state, due)
			}
			if got := mustSecret(t, state); string(got.Data[BundleKey]) != string(before.Data[BundleKey]) {
				t.Error("the state that was given changed")
			}
		})
	}
}

// TestRotationKeepsCertificatesInUse goes through three lifetimes of a CA in steps. At
// each, the current bundle and every earlier one that was read long enough ago must
// verify every certificate that can be in use.
func TestRotationKeepsCertificatesInUse(t *testing.T) {
	t.Parallel()
	state := mustState(t, epoch)
	inUse := map[string]*pki.Pair{} // the last one of each CA
	var steps []step
	published := state // what the APIServices carry, one step of time late
	for now := epoch; now.Before(epoch.Add(3 * lifetimes.CA)); now = now.Add(20 * time.Minute) {
		distributedNow := contained(state.Certificates(), published.Certificates())
		next, due, err := advance(state, distributedNow, now, lifetimes)
		expect.NoError(t, err)
		if due != "" {
			steps = append(steps, due)
		}
		// A replica that has not read this step yet signs with the previous CA.
		for _, signer := range []*State{state, next} {
			pair, err := signer.Signing.Issue(pki.ServingTemplate(nil, "annex.annex-system.svc"), now, lifetimes.Certificate)
			expect.NoError(t, err)
			inUse[pair.Cert.Issuer.CommonName] = pair
		}
		maps.DeleteFunc(inUse, func(_ string, pair *pki.Pair) bool { return now.After(pair.Cert.NotAfter) })
		for _, bundle := range [][]byte{published.Bundle(), next.Bundle()} {
			for issuer, pair := range inUse {
				if err := verify(t, bundle, pair.CertPEM, "annex.annex-system.svc", now); err != nil {
					t.Fatalf("after %s, step %q: a certificate of %s is not verified by %v: %v", now.Sub(epoch), due,
						issuer, subjects(next.Certificates()), err)
				}
			}
		}
		published, state = state, next
	}
	rotation := []step{stepAddNext, stepDistributed, stepPromote, stepDropPrevious}
	if len(steps) < 3*len(rotation) {
		t.Fatalf("only these steps were taken: %q", steps)
	}
	for i, due := range steps {
		if due != rotation[i%len(rotation)] {
			t.Errorf("step %d is %q, want %q", i, due, rotation[i%len(rotation)])
		}
	}
}

func TestLifetimesValidate(t *testing.T) {
	t.Parallel()
	expect.Succeeds(t, DefaultLifetimes().Validate())
	for name, bad := range map[string]Lifetimes{
		"zero":               {},
		"no propagation":     {CA: time.Hour, Certificate: time.Minute},
		"CA lives too short": {CA: 3 * time.Hour, Certificate: time.Hour, Propagation: time.Second},
	} {
		if err := bad.Validate(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
