// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package authentication

import (
	"fmt"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/token/cache"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	webhookutil "k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/apiserver/plugin/pkg/authenticator/token/webhook"
)

// WebhookOptions say who is asked about tokens that annex does not know.
type WebhookOptions struct {
	// ConfigFile is a kubeconfig that leads to it.
	ConfigFile string
	// Version is that of the TokenReviews it gets.
	Version string
	// CacheTTL is how long an answer holds.
	CacheTTL time.Duration
}

// NewWebhook makes the client; nobody is asked yet.
func NewWebhook(o WebhookOptions, audiences authenticator.Audiences) (authenticator.Token, error) {
	config, err := webhookutil.LoadKubeconfig(o.ConfigFile, nil)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.ConfigFile, err)
	}
	reviews, err := webhook.New(config, o.Version, audiences, *genericoptions.DefaultAuthWebhookRetryBackoff())
	if err != nil {
		return nil, err
	}
	// Errors are not cached: the next request finds out whether it is back.
	return cache.New(reviews, false, o.CacheTTL, o.CacheTTL), nil
}
