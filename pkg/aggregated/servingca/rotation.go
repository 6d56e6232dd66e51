// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package servingca

import (
	"fmt"
	"time"

	"github.com/annex-dev/annex/pkg/pki"
)

// step says what a state needs, for the log. The empty one is nothing.
type step string

const (
	stepDropPrevious step = "The previous serving CA left the bundle: no certificate of it can be in use"
	stepAddNext      step = "The next serving CA joined the bundle"
	stepCarried      step = "Every APIService carries the next serving CA"
	stepNotCarried   step = "An APIService lost the next serving CA"
	stepPromote      step = "Serving certificates are signed by the next CA from now on"
	stepReplace      step = "The serving CA had expired and was replaced; requests fail until the APIServices carry the new one"
)

// newState is for when there is nothing yet.
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

// advance returns the state that follows, and why, or the same state when there
// is nothing to do. carried says whether every APIService that leads to annex
// carries all of the state's bundle.
func advance(s *State, carried bool, now time.Time, l Lifetimes) (*State, step, error) {
	if len(s.Previous) > 0 && !now.Before(s.PreviousUntil) {
		next := *s
		next.Previous, next.PreviousUntil = nil, time.Time{}
		return &next, stepDropPrevious, nil
	}
	if s.Next == nil {
		return begin(s, now, l)
	}
	return finish(s, carried, now, l)
}

// begin decides whether it is time for a next CA.
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
	// It is as good in the past as the CA before it, for a replica or a main
	// cluster whose clock is behind.
	made, err := newCA(s.Signing.Certificate().NotBefore, now, l)
	if err != nil {
		return s, "", err
	}
	next := *s
	next.Next, next.CarriedSince, next.Rotate = made, time.Time{}, false
	return &next, stepAddNext, nil
}

// finish decides whether the next CA can sign.
func finish(s *State, carried bool, now time.Time, l Lifetimes) (*State, step, error) {
	if !now.Before(s.Next.Certificate().NotAfter) {
		replaced, err := newState(now, l)
		return replaced, stepReplace, err
	}
	// An APIService that cannot be put right must not take the others with it
	// when the CA expires: those that carry the bundle go on.
	overdue := !now.Before(s.Signing.Certificate().NotAfter.Add(-l.Propagation))
	waited := carried && !s.CarriedSince.IsZero() && now.Sub(s.CarriedSince) >= l.Propagation
	next := *s
	switch {
	case overdue || waited:
		next.Signing, next.Next, next.CarriedSince = s.Next, nil, time.Time{}
		next.Previous = append(next.Previous[:len(next.Previous):len(next.Previous)], s.Signing.Certificate())
		next.PreviousUntil = now.Add(l.overlap())
		return &next, stepPromote, nil
	case carried && s.CarriedSince.IsZero():
		next.CarriedSince = now
		return &next, stepCarried, nil
	case !carried && !s.CarriedSince.IsZero():
		next.CarriedSince = time.Time{}
		return &next, stepNotCarried, nil
	}
	return s, "", nil
}
