// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package options holds the flags of `annex serve`, one file for each concern
// with its defaults, flags and checks. Names and meaning are upstream's where
// upstream has the flag.
package options

import (
	"fmt"
	"sync"
	"time"

	"github.com/spf13/pflag"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	utilcompatibility "k8s.io/apiserver/pkg/util/compatibility"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	cliflag "k8s.io/component-base/cli/flag"
	basecompatibility "k8s.io/component-base/compatibility"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/utils/ptr"

	"github.com/annex-dev/annex/pkg/version"
)

// Options are the flags of `annex serve` before they are completed.
type Options struct {
	Data           *Data
	Main           *Main
	Leader         *Leader
	Draining       *Draining
	Etcd           *Etcd
	Serving        *Serving
	Authentication *Authentication
	Tokens         *Tokens
	Authorization  *Authorization
	Admission      *Admission
	Audit          *Audit
	Features       *Features
	API            *API
	Generic        *genericoptions.ServerRunOptions
	Traces         *Traces
	Logs           *logsapi.LoggingConfiguration

	// flags are made once, so that /flagz shows what was parsed.
	flags *cliflag.NamedFlagSets
}

// New returns the defaults.
func New() *Options {
	registerGlobals()
	serving, generic := NewServing(), newGeneric()
	return &Options{
		Data:           NewData(),
		Main:           NewMain(),
		Leader:         NewLeader(),
		Draining:       NewDraining(generic, serving),
		Etcd:           NewEtcd(),
		Serving:        serving,
		Authentication: NewAuthentication(),
		Tokens:         NewTokens(),
		Authorization:  NewAuthorization(),
		Admission:      NewAdmission(),
		Audit:          NewAudit(),
		Features:       NewFeatures(),
		API:            NewAPI(),
		Generic:        generic,
		Traces:         NewTraces(),
		Logs:           logsapi.NewLoggingConfiguration(),
	}
}

// watchDrainPeriod is how long open watches may take to end when annex stops.
// Without one upstream waits for them as for any request: a minute.
const watchDrainPeriod = 5 * time.Second

func newGeneric() *genericoptions.ServerRunOptions {
	generic := genericoptions.NewServerRunOptions()
	generic.ShutdownWatchTerminationGracePeriod = watchDrainPeriod
	return generic
}

// registerGlobals fills upstream's registries, of which a process has one each.
var registerGlobals = sync.OnceFunc(func() {
	registerVersion()
	utilruntime.Must(logsapi.AddFeatureGates(utilfeature.DefaultMutableFeatureGate))
})

// registerVersion puts annex's idea of the Kubernetes version in place of the
// one that upstream's init derived from the binary's.
func registerVersion() {
	registry := utilcompatibility.DefaultComponentGlobalsRegistry
	registry.Reset()
	utilruntime.Must(registry.Register(basecompatibility.DefaultKubeComponent, version.NewEffectiveVersion(), utilfeature.DefaultMutableFeatureGate))
}

// Flags returns all flags, grouped as --help shows them.
func (o *Options) Flags() cliflag.NamedFlagSets {
	if o.flags == nil {
		o.flags = ptr.To(o.newFlags())
	}
	return *o.flags
}

func (o *Options) newFlags() cliflag.NamedFlagSets {
	var sets cliflag.NamedFlagSets
	o.Data.AddFlags(sets.FlagSet("annex"))
	o.Main.AddFlags(sets.FlagSet("main cluster"))
	o.Leader.AddFlags(sets.FlagSet("high availability"))
	o.Serving.AddFlags(sets.FlagSet("secure serving"))
	o.Etcd.AddFlags(sets.FlagSet("etcd"))
	o.Authentication.AddFlags(sets.FlagSet("authentication"))
	o.Tokens.AddFlags(sets.FlagSet("authentication"))
	o.Authorization.AddFlags(sets.FlagSet("authorization"), &o.Main.Reviews)
	o.Admission.AddFlags(sets.FlagSet("admission"))
	o.API.AddFlags(sets.FlagSet("API enablement"))
	o.Audit.AddFlags(sets.FlagSet("auditing"))
	o.Features.AddFlags(sets.FlagSet("features"))
	o.Traces.AddFlags(sets.FlagSet("traces"))
	o.Generic.AddUniversalFlags(sets.FlagSet("generic"))
	o.Draining.AddFlags(sets.FlagSet("high availability"), sets.FlagSet("generic"), sets.FlagSet("secure serving"))
	logsapi.AddFlags(o.Logs, sets.FlagSet("logs"))
	return sets
}

type completedOptions struct {
	Options
}

// CompletedOptions are options whose defaults are filled in. Only Complete
// makes them, so the compiler keeps uncompleted ones from being served.
type CompletedOptions struct {
	*completedOptions
}

// Complete fills in what depends on other flags. It opens nothing.
func (o *Options) Complete() (CompletedOptions, error) {
	// Feature gates and the emulated version take effect here, once, before
	// anything reads them.
	if err := o.Generic.ComponentGlobalsRegistry.Set(); err != nil {
		return CompletedOptions{}, fmt.Errorf("--feature-gates, --emulated-version: %w", err)
	}
	// The metrics tell what is on now, not what comes to be on.
	utilfeature.DefaultMutableFeatureGate.AddMetrics()
	if err := version.AssertEmulated(o.Generic.ComponentGlobalsRegistry.EffectiveVersionFor(o.Generic.ComponentName)); err != nil {
		return CompletedOptions{}, err
	}
	if err := o.Data.Complete(); err != nil {
		return CompletedOptions{}, err
	}
	o.Etcd.Complete()
	if o.Main.Enabled() {
		o.Draining.useMainCluster(!o.Etcd.Embedded())
	}
	if o.Generic.AdvertiseAddress == nil && !o.Serving.BindAddress.IsUnspecified() {
		// Upstream looks for a routed interface when it is told to bind to
		// loopback, and fails on a machine without a network.
		o.Generic.AdvertiseAddress = o.Serving.BindAddress
	}
	if err := o.Generic.DefaultAdvertiseAddress(o.Serving.SecureServingOptions); err != nil {
		return CompletedOptions{}, fmt.Errorf("--advertise-address, --bind-address: %w", err)
	}
	return CompletedOptions{&completedOptions{*o}}, nil
}

// standaloneFlags configure what a main cluster does where there is one.
var standaloneFlags = []struct {
	reason string
	flags  []string
}{
	{"the main cluster authenticates callers", []string{
		"authentication-config", "authentication-token-webhook-config-file", "requestheader-client-ca-file",
		"service-account-issuer", "service-account-signing-key-file", "service-account-key-file", "service-account-jwks-uri",
		"service-account-max-token-expiration", "api-audiences", "enable-bootstrap-token-auth",
	}},
	{"the main cluster authorizes callers", append(modeFlags, "authorization-config")},
	{"the main cluster collects garbage", []string{"enable-garbage-collector"}},
}

// refuseStandaloneFlags returns an error for each such flag that was given.
func (o *Options) refuseStandaloneFlags() []error {
	if o.flags == nil {
		return nil
	}
	var errs []error
	for _, group := range standaloneFlags {
		for _, set := range o.flags.FlagSets {
			for _, name := range group.flags {
				if set.Changed(name) {
					errs = append(errs, fmt.Errorf("--%s is for a standalone annex: %s", name, group.reason))
				}
			}
		}
	}
	return errs
}

// Validate checks all flags and returns all that is wrong with them.
func (o CompletedOptions) Validate() error {
	var errs []error
	errs = append(errs, o.Data.Validate()...)
	errs = append(errs, o.Main.Validate(o.Serving.OwnCertificate())...)
	errs = append(errs, o.Leader.Validate()...)
	errs = append(errs, o.Draining.Validate()...)
	errs = append(errs, o.Serving.Validate()...)
	errs = append(errs, o.Etcd.Validate()...)
	errs = append(errs, o.Authentication.Validate()...)
	errs = append(errs, o.Tokens.Validate()...)
	errs = append(errs, o.Authorization.Validate()...)
	if o.Main.Enabled() {
		errs = append(errs, o.refuseStandaloneFlags()...)
	}
	errs = append(errs, o.Admission.Validate()...)
	errs = append(errs, o.API.Validate()...)
	errs = append(errs, o.Audit.Validate()...)
	errs = append(errs, o.Features.Validate()...)
	errs = append(errs, named("--tracing-config-file", o.Traces.Validate())...)
	errs = append(errs, o.Generic.Validate()...)
	return utilerrors.NewAggregate(errs)
}

// hide keeps flags out of --help that upstream adds and annex refuses or has
// no use for.
func hide(fs *pflag.FlagSet, names ...string) {
	for _, name := range names {
		fs.Lookup(name).Hidden = true
	}
}

// named puts the flags that are at fault before errors of upstream's that do not
// name them.
func named(flags string, errs []error) []error {
	for i, err := range errs {
		errs[i] = fmt.Errorf("%s: %w", flags, err)
	}
	return errs
}
