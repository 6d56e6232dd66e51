// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"fmt"

	"github.com/spf13/pflag"

	"github.com/annex-dev/annex/pkg/leader"
)

// Leader says how fast the controllers move from one replica to another.
type Leader struct {
	leader.Timing
}

// NewLeader returns upstream's defaults.
func NewLeader() *Leader { return &Leader{leader.DefaultTiming()} }

// AddFlags adds the flags, named as upstream's components name theirs.
func (o *Leader) AddFlags(fs *pflag.FlagSet) {
	fs.DurationVar(&o.LeaseDuration, "leader-elect-lease-duration", o.LeaseDuration,
		"How long other replicas wait for a leader that keeps silent before one of them runs the controllers. Whole seconds.")
	fs.DurationVar(&o.RenewDeadline, "leader-elect-renew-deadline", o.RenewDeadline,
		"How long the leader tries to renew its lease before it stops its controllers.")
	fs.DurationVar(&o.RetryPeriod, "leader-elect-retry-period", o.RetryPeriod,
		"The time between two attempts to get or renew the lease.")
}

// Validate checks the flags.
func (o *Leader) Validate() []error {
	if err := o.Timing.Validate(); err != nil {
		return []error{fmt.Errorf("--leader-elect-lease-duration, --leader-elect-renew-deadline, --leader-elect-retry-period: %w", err)}
	}
	return nil
}
