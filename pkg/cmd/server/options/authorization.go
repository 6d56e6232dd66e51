// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/pflag"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/authorization/path"
	"k8s.io/apiserver/pkg/authorization/union"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"github.com/annex-dev/annex/pkg/aggregated/maincluster"
	"github.com/annex-dev/annex/pkg/standalone/authorization"
)

// Authorization says who may act beside the group system:masters: alone by modes or
// by a configuration, behind a main cluster whomever that allows.
type Authorization struct {
	Modes          []string
	ConfigFile     string
	WebhookFile    string
	WebhookVersion string

	flags *pflag.FlagSet // tells which of them were given
}

// The flags that a configuration takes the place of, and that a main cluster leaves
// nothing to do for.
var (
	modeFlags = []string{"authorization-mode", "authorization-webhook-config-file", "authorization-webhook-version"}
	// These say how answers are remembered, those of a main cluster too.
	webhookCacheFlags = []string{"authorization-webhook-cache-authorized-ttl", "authorization-webhook-cache-unauthorized-ttl"}
)

// NewAuthorization returns the default: roles and bindings.
func NewAuthorization() *Authorization {
	return &Authorization{Modes: []string{authorization.ModeRBAC}, WebhookVersion: "v1"}
}

// AddFlags adds flags with upstream's names and meaning, those of reviews too: they
// mean the same of a webhook and of a main cluster.
func (o *Authorization) AddFlags(fs *pflag.FlagSet, reviews *maincluster.AuthorizationOptions) {
	o.flags = fs
	fs.StringSliceVar(&o.Modes, "authorization-mode", o.Modes,
		"Who is asked, in this order, whether a caller may do something: RBAC (roles and bindings), Webhook, AlwaysAllow, AlwaysDeny. "+
			"The first that allows or denies decides; what nobody allows is refused. The group system:masters may do everything.")
	fs.StringVar(&o.ConfigFile, "authorization-config", o.ConfigFile,
		"If set, the file with an AuthorizationConfiguration, in place of --authorization-mode and --authorization-webhook-…. It is followed when it changes.")
	fs.StringVar(&o.WebhookFile, "authorization-webhook-config-file", o.WebhookFile,
		"The kubeconfig of the webhook that the mode Webhook asks, with a SubjectAccessReview.")
	fs.StringVar(&o.WebhookVersion, "authorization-webhook-version", o.WebhookVersion,
		"The version of the SubjectAccessReviews that the webhook gets: v1 or v1beta1.")
	fs.DurationVar(&reviews.AllowCacheTTL, "authorization-webhook-cache-authorized-ttl", reviews.AllowCacheTTL,
		"How long it is remembered that the webhook, or the main cluster, allowed something.")
	fs.DurationVar(&reviews.DenyCacheTTL, "authorization-webhook-cache-unauthorized-ttl", reviews.DenyCacheTTL,
		"How long it is remembered that the webhook, or the main cluster, did not allow something.")
}

// Validate checks the flags; files are not read.
func (o *Authorization) Validate() []error {
	errs := named("--authorization-mode", authorization.ValidateModes(o.Modes))
	if o.ConfigFile != "" {
		return append(errs, o.refuse("cannot be combined with --authorization-config: say it in that file", append(modeFlags, webhookCacheFlags...)...)...)
	}
	asked := slices.Contains(o.Modes, authorization.ModeWebhook)
	switch {
	case asked && o.WebhookFile == "":
		errs = append(errs, errors.New("--authorization-mode=Webhook needs --authorization-webhook-config-file"))
	case !asked:
		errs = append(errs, o.refuse("needs --authorization-mode=Webhook", "authorization-webhook-config-file", "authorization-webhook-version")...)
	}
	if !slices.Contains([]string{"v1", "v1beta1"}, o.WebhookVersion) {
		errs = append(errs, fmt.Errorf("--authorization-webhook-version %q must be v1 or v1beta1", o.WebhookVersion))
	}
	return errs
}

// refuse returns an error for each of the flags that was given.
func (o *Authorization) refuse(why string, names ...string) []error {
	var errs []error
	for _, name := range names {
		if o.flags != nil && o.flags.Changed(name) {
			errs = append(errs, fmt.Errorf("--%s %s", name, why))
		}
	}
	return errs
}

// ApplyTo makes generic authorize requests by rbac and whatever else is configured.
// What is returned has to run for as long as generic serves.
func (o *Authorization) ApplyTo(generic *genericapiserver.Config, rbac authorization.RuleAuthorizer, reviews maincluster.AuthorizationOptions) (*authorization.Authorizer, error) {
	rights, err := authorization.New(authorization.Config{
		Modes: o.Modes,
		File:  o.ConfigFile,
		Webhook: authorization.Webhook{
			KubeconfigFile: o.WebhookFile,
			Version:        o.WebhookVersion,
			AllowTTL:       reviews.AllowCacheTTL,
			DenyTTL:        reviews.DenyCacheTTL,
		},
		RBAC:      rbac,
		OpenPaths: openPaths,
		ServerID:  generic.APIServerID,
	})
	switch {
	case err != nil && o.ConfigFile != "":
		return nil, fmt.Errorf("--authorization-config: %w", err)
	case err != nil:
		return nil, fmt.Errorf("--authorization-webhook-config-file: %w", err)
	}
	generic.Authorization.Authorizer, generic.RuleResolver = rights, rights
	return rights, nil
}

// ApplyDelegatedTo makes generic delegate authorization to a main cluster.
func (o *Authorization) ApplyDelegatedTo(generic *genericapiserver.Config, delegated authorizer.Authorizer) error {
	open, err := path.NewAuthorizer(openPaths)
	if err != nil {
		return fmt.Errorf("authorize the health endpoints: %w", err)
	}
	generic.Authorization.Authorizer, err = union.New(
		union.NamedAuthorizer{AuthorizerName: "PrivilegedGroup", Authorizer: authorizerfactory.NewPrivilegedGroups(user.SystemPrivilegedGroup)},
		union.NamedAuthorizer{AuthorizerName: "HealthEndpoints", Authorizer: open},
		union.NamedAuthorizer{AuthorizerName: "MainCluster", Authorizer: delegated},
	)
	if err != nil {
		return fmt.Errorf("combine authorizers: %w", err)
	}
	return nil
}
