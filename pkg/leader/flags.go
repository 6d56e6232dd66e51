// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package leader

import "github.com/spf13/pflag"

// AddFlags adds the flags of a timing, named as in upstream's components. What describes
// the leader's work: "runs the controllers".
func (t *Timing) AddFlags(fs *pflag.FlagSet, what string) {
	fs.DurationVar(&t.LeaseDuration, "leader-elect-lease-duration", t.LeaseDuration,
		"How long other replicas wait for a leader that keeps silent before one of them "+what+". Whole seconds.")
	fs.DurationVar(&t.RenewDeadline, "leader-elect-renew-deadline", t.RenewDeadline,
		"How long the leader tries to renew its lease before it stops leading.")
	fs.DurationVar(&t.RetryPeriod, "leader-elect-retry-period", t.RetryPeriod,
		"The time between two attempts to get or renew the lease.")
}
