// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package authentication

import (
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/token/cache"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/plugin/pkg/authenticator/token/webhook"

	"github.com/annex-dev/annex/pkg/configfile/kubeconfig"
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

// questionTimeout is how long a webhook may take to answer, as upstream has it.
const questionTimeout = 30 * time.Second

// NewWebhook makes the client; nobody is asked yet.
func NewWebhook(o WebhookOptions, audiences authenticator.Audiences) (authenticator.Token, error) {
	config, err := kubeconfig.Load(o.ConfigFile)
	if err != nil {
		return nil, err
	}
	config.Timeout = questionTimeout
	reviews, err := webhook.New(config, o.Version, audiences, *genericoptions.DefaultAuthWebhookRetryBackoff())
	if err != nil {
		return nil, err
	}
	// Errors are not cached: the next request finds out whether it is back.
	return cache.New(reviews, false, o.CacheTTL, o.CacheTTL), nil
}
