// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package options defines the flags of `annex serve`, one file per concern with its
// defaults, flags and validation. Flags that upstream has keep their names and meaning.
package options

import (
	"fmt"
	"path/filepath"
	"slices"
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

	"github.com/annex-dev/annex/pkg/version"
)

// Options are the flags of `annex serve` before they are completed.
type Options struct {
	Data           *Data
	Static         *Static
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

	// flags are created once, so that /flagz shows the parsed values.
	flags *cliflag.NamedFlagSets
}

// New returns the defaults.
func New() *Options {
	registerGlobals()
	serving, generic := NewServing(), newGeneric()
	return &Options{
		Data:           NewData(),
		Static:         NewStatic(),
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

// watchDrainPeriod bounds the end of open watches at shutdown. Upstream's default is to wait
// for them like for any request, one minute.
const watchDrainPeriod = 5 * time.Second

func newGeneric() *genericoptions.ServerRunOptions {
	generic := genericoptions.NewServerRunOptions()
	generic.ShutdownWatchTerminationGracePeriod = watchDrainPeriod
	return generic
}

// registerGlobals fills upstream's process-wide registries.
var registerGlobals = sync.OnceFunc(func() {
	registerVersion()
	utilruntime.Must(logsapi.AddFeatureGates(utilfeature.DefaultMutableFeatureGate))
})

// registerVersion replaces the Kubernetes version that upstream's init derived from the
// binary's.
func registerVersion() {
	registry := utilcompatibility.DefaultComponentGlobalsRegistry
	registry.Reset()
	utilruntime.Must(registry.Register(basecompatibility.DefaultKubeComponent, version.NewEffectiveVersion(), utilfeature.DefaultMutableFeatureGate))
}

// Flags returns all flags, grouped as --help shows them.
func (o *Options) Flags() cliflag.NamedFlagSets {
	if o.flags == nil {
		o.flags = new(o.newFlags())
	}
	return *o.flags
}

func (o *Options) newFlags() cliflag.NamedFlagSets {
	var sets cliflag.NamedFlagSets
	o.Data.AddFlags(sets.FlagSet("annex"))
	o.Static.AddFlags(sets.FlagSet("static objects"))
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

// CompletedOptions are options with all defaults, as returned by Complete.
type CompletedOptions struct {
	*completedOptions
}

// Complete sets defaults that depend on other flags. It opens no files or ports.
func (o *Options) Complete() (CompletedOptions, error) {
	// Feature gates and the emulated version take effect before they are read.
	if err := o.Generic.ComponentGlobalsRegistry.Set(); err != nil {
		return CompletedOptions{}, fmt.Errorf("--feature-gates, --emulated-version: %w", err)
	}
	// The metrics show the gates of this moment.
	utilfeature.DefaultMutableFeatureGate.AddMetrics()
	if err := version.AssertEmulated(o.Generic.ComponentGlobalsRegistry.EffectiveVersionFor(o.Generic.ComponentName)); err != nil {
		return CompletedOptions{}, err
	}
	for flag, dir := range map[string]*string{"--data-dir": &o.Data.Dir, "--static-dir": &o.Static.Dir} {
		if err := makeAbsolute(dir); err != nil {
			return CompletedOptions{}, fmt.Errorf("%s: %w", flag, err)
		}
	}
	o.Etcd.Complete()
	if o.Main.Enabled() {
		o.Draining.useMainCluster(!o.Etcd.Embedded(), o.isSet)
	}
	if o.Generic.AdvertiseAddress == nil && !o.Serving.BindAddress.IsUnspecified() {
		// For loopback, upstream searches a routed interface, and fails without a
		// network.
		o.Generic.AdvertiseAddress = o.Serving.BindAddress
	}
	if err := o.Generic.DefaultAdvertiseAddress(o.Serving.SecureServingOptions); err != nil {
		return CompletedOptions{}, fmt.Errorf("--advertise-address, --bind-address: %w", err)
	}
	return CompletedOptions{&completedOptions{*o}}, nil
}

// makeAbsolute makes a path absolute, because it is shown to users.
func makeAbsolute(path *string) (err error) {
	if *path != "" {
		*path, err = filepath.Abs(*path)
	}
	return err
}

// standaloneFlags configure what a main cluster provides to an aggregated annex.
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

func (o *Options) refuseStandaloneFlags() []error {
	var errs []error
	for _, group := range standaloneFlags {
		errs = append(errs, refuse(o.isSet, "is for a standalone annex: "+group.reason, group.flags...)...)
	}
	return errs
}

func (o *Options) isSet(name string) bool {
	if o.flags == nil {
		return false
	}
	for _, set := range o.flags.FlagSets {
		if set.Changed(name) {
			return true
		}
	}
	return false
}

func refuse(isSet func(flag string) bool, why string, names ...string) []error {
	var errs []error
	for _, name := range names {
		if isSet(name) {
			errs = append(errs, fmt.Errorf("--%s %s", name, why))
		}
	}
	return errs
}

// Validate returns all errors of all flags.
func (o CompletedOptions) Validate() error {
	errs := slices.Concat(
		o.Data.Validate(),
		o.Static.Validate(),
		o.Main.Validate(o.Serving.OwnCertificate()),
		o.Leader.Validate(),
		o.Draining.Validate(),
		o.Serving.Validate(),
		o.Etcd.Validate(),
		o.Authentication.Validate(),
		o.Tokens.Validate(),
		o.Authorization.Validate(o.isSet),
		o.Admission.Validate(),
		o.API.Validate(),
		o.Audit.Validate(),
		o.Features.Validate(),
		named("--tracing-config-file", o.Traces.Validate()),
		o.Generic.Validate(),
	)
	if o.Main.Enabled() {
		errs = append(errs, o.refuseStandaloneFlags()...)
	}
	return utilerrors.NewAggregate(errs)
}

// validateVersion validates the version of the reviews that a webhook gets.
func validateVersion(flag, version string) []error {
	if version != "v1" && version != "v1beta1" {
		return []error{fmt.Errorf("%s %q must be v1 or v1beta1", flag, version)}
	}
	return nil
}

// hide hides flags of upstream's that annex rejects or ignores.
func hide(fs *pflag.FlagSet, names ...string) {
	for _, name := range names {
		fs.Lookup(name).Hidden = true
	}
}

// named prefixes errors of upstream's that do not name the flags.
func named(flags string, errs []error) []error {
	for i, err := range errs {
		errs[i] = fmt.Errorf("%s: %w", flags, err)
	}
	return errs
}
