// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"fmt"

	"github.com/spf13/pflag"

	genericapiserver "k8s.io/apiserver/pkg/server"
	genericoptions "k8s.io/apiserver/pkg/server/options"

	"github.com/annex-dev/annex/pkg/maincluster"
)

// Features switches parts of the generic server.
type Features struct {
	*genericoptions.FeatureOptions
}

// NewFeatures returns the defaults: profiling for those who may, and, alone, a
// plain limit on requests in flight instead of priority and fairness.
func NewFeatures() *Features {
	upstream := genericoptions.NewFeatureOptions()
	upstream.EnablePriorityAndFairness = false
	return &Features{upstream}
}

// AddFlags adds upstream's feature flags.
func (o *Features) AddFlags(fs *pflag.FlagSet) {
	o.FeatureOptions.AddFlags(fs)
	hide(fs, "debug-socket-path", "enable-priority-and-fairness")
}

// Validate refuses what annex does not serve; behindMain says that another
// cluster has the FlowSchemas.
func (o *Features) Validate(behindMain bool) []error {
	errs := o.FeatureOptions.Validate()
	if o.DebugSocketPath != "" {
		errs = append(errs, fmt.Errorf("--debug-socket-path is not supported: it would serve profiles without a login; use /debug/pprof"))
	}
	if o.EnablePriorityAndFairness && !behindMain {
		errs = append(errs, fmt.Errorf("--enable-priority-and-fairness is not supported: annex alone does not serve FlowSchemas; use --max-requests-inflight and --max-mutating-requests-inflight"))
	}
	return errs
}

// ApplyTo applies the switches. Priority and fairness follow the FlowSchemas of
// main; without a main cluster upstream needs neither client nor informers.
func (o *Features) ApplyTo(generic *genericapiserver.Config, main *maincluster.Cluster) error {
	if main == nil {
		return o.FeatureOptions.ApplyTo(generic, nil, nil)
	}
	return o.FeatureOptions.ApplyTo(generic, main.Kube, main.Informers)
}
