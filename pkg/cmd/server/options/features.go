// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"fmt"

	"github.com/spf13/pflag"

	genericapiserver "k8s.io/apiserver/pkg/server"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
)

// Features configures features of the generic server.
type Features struct {
	*genericoptions.FeatureOptions
	// AllMetricBuckets serves the buckets of all histograms.
	AllMetricBuckets bool
}

// NewFeatures returns the defaults: profiling, priority and fairness.
func NewFeatures() *Features { return &Features{FeatureOptions: genericoptions.NewFeatureOptions()} }

// AddFlags adds upstream's feature flags.
func (o *Features) AddFlags(fs *pflag.FlagSet) {
	o.FeatureOptions.AddFlags(fs)
	fs.Lookup("enable-priority-and-fairness").Usage = "If true, requests are queued according to FlowSchemas and PriorityLevelConfigurations. " +
		"If false, requests beyond --max-requests-inflight and --max-mutating-requests-inflight are refused."
	hide(fs, "debug-socket-path")
	fs.BoolVar(&o.AllMetricBuckets, "all-metric-buckets", o.AllMetricBuckets, "Serve the buckets of all histograms at /metrics. "+
		"If false, most of upstream's have only their sum and count, which is a third of the series.")
}

// Validate checks the flags.
func (o *Features) Validate() []error {
	errs := o.FeatureOptions.Validate()
	if o.DebugSocketPath != "" {
		errs = append(errs, fmt.Errorf("--debug-socket-path is not supported: it would serve profiles without authentication; use /debug/pprof"))
	}
	return errs
}

// ApplyTo applies the features. The client and informers are for the cluster with the
// FlowSchemas: annex or the main cluster.
func (o *Features) ApplyTo(generic *genericapiserver.Config, kubeClient kubernetes.Interface, sharedInformers informers.SharedInformerFactory) error {
	if err := o.FeatureOptions.ApplyTo(generic, kubeClient, sharedInformers); err != nil {
		return fmt.Errorf("--enable-priority-and-fairness, --max-requests-inflight, --max-mutating-requests-inflight: %w", err)
	}
	return nil
}
