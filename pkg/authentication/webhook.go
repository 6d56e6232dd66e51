// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package authentication

import (
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/token/cache"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/plugin/pkg/authenticator/token/webhook"

	"github.com/annex-dev/annex/pkg/configfile"
)

// WebhookOptions configure the webhook for tokens that annex does not issue.
type WebhookOptions struct {
	// ConfigFile is the webhook's kubeconfig.
	ConfigFile string
	// Version is the API version of the TokenReviews.
	Version string
	// A response is cached for CacheTTL.
	CacheTTL time.Duration
}

// questionTimeout bounds one request, as upstream's timeout does.
const questionTimeout = 30 * time.Second

// NewWebhook creates the client. It sends no request.
func NewWebhook(o WebhookOptions, audiences authenticator.Audiences) (authenticator.Token, error) {
	config, err := configfile.LoadKubeconfig(o.ConfigFile)
	if err != nil {
		return nil, err
	}
	config.Timeout = questionTimeout
	reviews, err := webhook.New(config, o.Version, audiences, *genericoptions.DefaultAuthWebhookRetryBackoff())
	if err != nil {
		return nil, err
	}
	// Errors are not cached: the next request retries.
	return cache.New(reviews, false, o.CacheTTL, o.CacheTTL), nil
}
