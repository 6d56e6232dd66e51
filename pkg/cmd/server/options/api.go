// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"

	genericoptions "k8s.io/apiserver/pkg/server/options"

	"github.com/annex-dev/annex/pkg/apiserver"
)

// API configures the served versions and the lifetime of events.
type API struct {
	*genericoptions.APIEnablementOptions

	EventTTL time.Duration
}

// NewAPI returns the defaults: all versions, one hour.
func NewAPI() *API {
	return &API{APIEnablementOptions: genericoptions.NewAPIEnablementOptions(), EventTTL: time.Hour}
}

// AddFlags adds flags with upstream's names and meaning.
func (o *API) AddFlags(fs *pflag.FlagSet) {
	o.APIEnablementOptions.AddFlags(fs)
	fs.DurationVar(&o.EventTTL, "event-ttl", o.EventTTL, "Amount of time to retain events.")
}

// Validate checks the flags.
func (o *API) Validate() []error {
	errs := named("--runtime-config", o.APIEnablementOptions.Validate(apiserver.GroupRegistries()...))
	if o.EventTTL <= 0 {
		errs = append(errs, fmt.Errorf("--event-ttl must be positive"))
	}
	return errs
}
