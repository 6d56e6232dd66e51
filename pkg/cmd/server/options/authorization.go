// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/pflag"

	genericapiserver "k8s.io/apiserver/pkg/server"

	"github.com/annex-dev/annex/pkg/aggregated/maincluster"
	"github.com/annex-dev/annex/pkg/standalone/authorization"
)

// Authorization configures authorization: standalone by modes or a configuration file,
// aggregated by the main cluster. The group system:masters is always allowed.
type Authorization struct {
	Modes          []string
	ConfigFile     string
	WebhookFile    string
	WebhookVersion string
}

// Flags that --authorization-config or a main cluster replaces.
var (
	modeFlags = []string{"authorization-mode", "authorization-webhook-config-file", "authorization-webhook-version"}
	// These apply to a main cluster, too.
	webhookCacheFlags = []string{"authorization-webhook-cache-authorized-ttl", "authorization-webhook-cache-unauthorized-ttl"}
)

// NewAuthorization returns the default: RBAC.
func NewAuthorization() *Authorization {
	return &Authorization{Modes: []string{authorization.ModeRBAC}, WebhookVersion: "v1"}
}

// AddFlags adds flags with upstream's names and meaning. The flags of reviews apply to a webhook
// and to a main cluster.
func (o *Authorization) AddFlags(fs *pflag.FlagSet, reviews *maincluster.ReviewOptions) {
	fs.StringSliceVar(&o.Modes, "authorization-mode", o.Modes,
		"Ordered list of authorizers: RBAC, Webhook, AlwaysAllow, AlwaysDeny. "+
			"The first that allows or denies decides; without a decision the request is denied. The group system:masters is always allowed.")
	fs.StringVar(&o.ConfigFile, "authorization-config", o.ConfigFile,
		"File with an AuthorizationConfiguration, instead of --authorization-mode and --authorization-webhook-…. It is reloaded when it changes.")
	fs.StringVar(&o.WebhookFile, "authorization-webhook-config-file", o.WebhookFile,
		"Kubeconfig of the webhook of the mode Webhook.")
	fs.StringVar(&o.WebhookVersion, "authorization-webhook-version", o.WebhookVersion,
		"The version of the SubjectAccessReviews sent to the webhook: v1 or v1beta1.")
	fs.DurationVar(&reviews.AllowCacheTTL, "authorization-webhook-cache-authorized-ttl", reviews.AllowCacheTTL,
		"How long allowing responses of the webhook or the main cluster are cached.")
	fs.DurationVar(&reviews.DenyCacheTTL, "authorization-webhook-cache-unauthorized-ttl", reviews.DenyCacheTTL,
		"How long denying responses of the webhook or the main cluster are cached.")
}

// Validate checks the flags. It does not read files.
func (o *Authorization) Validate(isSet func(flag string) bool) []error {
	errs := named("--authorization-mode", authorization.ValidateModes(o.Modes))
	if o.ConfigFile != "" {
		return append(errs, refuse(isSet, "cannot be combined with --authorization-config: set it in that file", slices.Concat(modeFlags, webhookCacheFlags)...)...)
	}
	asked := slices.Contains(o.Modes, authorization.ModeWebhook)
	switch {
	case asked && o.WebhookFile == "":
		errs = append(errs, errors.New("--authorization-mode=Webhook needs --authorization-webhook-config-file"))
	case !asked:
		errs = append(errs, refuse(isSet, "needs --authorization-mode=Webhook", "authorization-webhook-config-file", "authorization-webhook-version")...)
	}
	return append(errs, validateVersion("--authorization-webhook-version", o.WebhookVersion)...)
}

// ApplyTo makes generic authorize requests with the configured modes. The returned
// authorizer has to run as long as generic serves.
func (o *Authorization) ApplyTo(generic *genericapiserver.Config, rbac authorization.RuleAuthorizer, reviews maincluster.ReviewOptions) (*authorization.Authorizer, error) {
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
		OpenPaths: OpenPaths,
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
