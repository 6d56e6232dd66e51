// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"fmt"

	"github.com/spf13/pflag"

	"github.com/annex-dev/annex/pkg/leader"
)

// Leader configures the leader election of the controllers.
type Leader struct {
	leader.Timing
}

// NewLeader returns upstream's defaults.
func NewLeader() *Leader { return &Leader{leader.DefaultTiming()} }

// AddFlags adds flags with the names of upstream's components.
func (o *Leader) AddFlags(fs *pflag.FlagSet) { o.Timing.AddFlags(fs, "runs the controllers") }

// Validate checks the flags.
func (o *Leader) Validate() []error {
	if err := o.Timing.Validate(); err != nil {
		return []error{fmt.Errorf("--leader-elect-lease-duration, --leader-elect-renew-deadline, --leader-elect-retry-period: %w", err)}
	}
	return nil
}
