// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package servingca

import (
	"fmt"
	"time"
)

const day = 24 * time.Hour

// Lifetimes say how long things last.
type Lifetimes struct {
	// CA is the life of a CA. The next one is made when a third of it is left.
	CA time.Duration
	// Certificate is the life of a serving certificate. The next one is made when
	// a third of it is left.
	Certificate time.Duration
	// Propagation is how long all APIServices must have carried a bundle before
	// annex serves with what only that bundle verifies: each server of the main
	// cluster has read it by then.
	Propagation time.Duration
}

// DefaultLifetimes leave eight months for a rotation of the CA that takes
// minutes, and a month for the renewal of a certificate.
func DefaultLifetimes() Lifetimes {
	return Lifetimes{CA: 730 * day, Certificate: 90 * day, Propagation: 5 * time.Minute}
}

// Validate makes sure that one rotation is over before the next one begins.
func (l Lifetimes) Validate() error {
	if l.Certificate <= 0 || l.Propagation <= 0 {
		return fmt.Errorf("the life of a serving certificate (%s) and the propagation time (%s) must be greater than 0", l.Certificate, l.Propagation)
	}
	if least := 3 * (l.Certificate + 2*l.Propagation); l.CA < least {
		return fmt.Errorf("the serving CA must live for at least %s, which is three times a certificate's life and two propagation times; it is %s", least, l.CA)
	}
	return nil
}

// overlap is how long a CA that signs no more stays in the bundle: as long as a
// certificate can live that a replica signed just before it heard of the next CA.
func (l Lifetimes) overlap() time.Duration { return l.Certificate + l.Propagation }

// interval is how often to look, beside being told of changes.
func (l Lifetimes) interval() time.Duration {
	return min(time.Minute, l.Propagation/4, l.Certificate/10)
}
