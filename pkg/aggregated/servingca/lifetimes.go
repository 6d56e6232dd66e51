// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package servingca

import (
	"fmt"
	"time"
)

const day = 24 * time.Hour

// Lifetimes has the lifetimes of certificates.
type Lifetimes struct {
	// CA is the lifetime of a CA. The next one is created when a third of it is left.
	CA time.Duration
	// Certificate is the lifetime of a serving certificate. The next one is signed when
	// a third of it is left.
	Certificate time.Duration
	// Propagation is the time for which all APIServices must have had a bundle before annex
	// serves a certificate that only this bundle verifies: by then each server of the
	// main cluster has read it.
	Propagation time.Duration
}

// DefaultLifetimes leave eight months for a rotation of the CA, which takes minutes,
// and a month for the renewal of a certificate.
func DefaultLifetimes() Lifetimes {
	return Lifetimes{CA: 730 * day, Certificate: 90 * day, Propagation: 5 * time.Minute}
}

// Validate checks that one rotation ends before the next one begins.
func (l Lifetimes) Validate() error {
	if l.Certificate <= 0 || l.Propagation <= 0 {
		return fmt.Errorf("the life of a serving certificate (%s) and the propagation time (%s) must be greater than 0", l.Certificate, l.Propagation)
	}
	if least := 3 * (l.Certificate + 2*l.Propagation); l.CA < least {
		return fmt.Errorf("the serving CA must live for at least %s, which is three times a certificate's life and two propagation times; it is %s", least, l.CA)
	}
	return nil
}

// overlap is the time for which a CA stays in the bundle after it stopped signing: the longest
// lifetime of a certificate that a replica signed just before it read the next CA.
func (l Lifetimes) overlap() time.Duration { return l.Certificate + l.Propagation }

// interval is the time between two checks of the state, besides those after changes.
func (l Lifetimes) interval() time.Duration {
	return min(time.Minute, l.Propagation/4, l.Certificate/10)
}
