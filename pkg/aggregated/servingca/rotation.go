// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package servingca

import (
	"fmt"
	"time"

	"github.com/annex-dev/annex/pkg/pki"
)

// step is a log message about a change of state; the empty one means no change.
type step string

const (
	stepDropPrevious   step = "The previous serving CA left the bundle: no certificate of it can be in use"
	stepAddNext        step = "The next serving CA joined the bundle"
	stepDistributed    step = "Every APIService has the next serving CA"
	stepNotDistributed step = "An APIService lost the next serving CA"
	stepPromote        step = "The next CA signs serving certificates"
	stepReplace        step = "The serving CA had expired and was replaced; requests fail until the APIServices have the new one"
)

func newState(now time.Time, l Lifetimes) (*State, error) {
	signing, err := newCA(now.Add(-time.Hour), now, l)
	if err != nil {
		return nil, err
	}
	return &State{Signing: signing}, nil
}

func newCA(notBefore, now time.Time, l Lifetimes) (*pki.Authority, error) {
	made, err := pki.NewAuthority(fmt.Sprintf("annex-serving-ca@%d", now.UnixMilli()), notBefore, now.Add(l.CA))
	if err != nil {
		return nil, fmt.Errorf("create a serving CA: %w", err)
	}
	return made, nil
}

// advance returns the next state and its step, or the same state if no step is due.
// distributed reports whether every APIService of annex has the whole bundle of the state.
func advance(s *State, distributed bool, now time.Time, l Lifetimes) (*State, step, error) {
	if len(s.Previous) > 0 && !now.Before(s.PreviousUntil) {
		next := *s
		next.Previous, next.PreviousUntil = nil, time.Time{}
		return &next, stepDropPrevious, nil
	}
	if s.Next == nil {
		return begin(s, now, l)
	}
	return finish(s, distributed, now, l)
}

func begin(s *State, now time.Time, l Lifetimes) (*State, step, error) {
	expires := s.Signing.Certificate().NotAfter
	switch {
	case !now.Before(expires):
		replaced, err := newState(now, l)
		return replaced, stepReplace, err
	case s.Rotate:
	case len(s.Previous) > 0 || now.Before(expires.Add(-l.CA/3)):
		return s, "", nil
	}
	// It is valid from the same time as the previous CA, for a replica or a main
	// cluster whose clock is behind.
	made, err := newCA(s.Signing.Certificate().NotBefore, now, l)
	if err != nil {
		return s, "", err
	}
	next := *s
	next.Next, next.DistributedSince, next.Rotate = made, time.Time{}, false
	return &next, stepAddNext, nil
}

func finish(s *State, distributed bool, now time.Time, l Lifetimes) (*State, step, error) {
	if !now.Before(s.Next.Certificate().NotAfter) {
		replaced, err := newState(now, l)
		return replaced, stepReplace, err
	}
	// An APIService that cannot be updated must not break the others when the CA
	// expires: those with the bundle keep working.
	overdue := !now.Before(s.Signing.Certificate().NotAfter.Add(-l.Propagation))
	waited := distributed && !s.DistributedSince.IsZero() && now.Sub(s.DistributedSince) >= l.Propagation
	next := *s
	switch {
	case overdue || waited:
		next.Signing, next.Next, next.DistributedSince = s.Next, nil, time.Time{}
		next.Previous = append(next.Previous[:len(next.Previous):len(next.Previous)], s.Signing.Certificate())
		next.PreviousUntil = now.Add(l.overlap())
		return &next, stepPromote, nil
	case distributed && s.DistributedSince.IsZero():
		next.DistributedSince = now
		return &next, stepDistributed, nil
	case !distributed && !s.DistributedSince.IsZero():
		next.DistributedSince = time.Time{}
		return &next, stepNotDistributed, nil
	}
	return s, "", nil
}
