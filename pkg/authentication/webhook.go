// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package authentication

import (
	"fmt"
	"os"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/token/cache"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	webhookutil "k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/apiserver/plugin/pkg/authenticator/token/webhook"
	restclient "k8s.io/client-go/rest"

	"github.com/annex-dev/annex/pkg/configfile"
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
	content, err := os.ReadFile(o.ConfigFile)
	if err != nil {
		return nil, fmt.Errorf("read how to reach it: %w", err)
	}
	config, err := webhookutil.LoadKubeconfig(o.ConfigFile, nil)
	if err == nil {
		err = checkVerified(config)
	}
	if err != nil {
		return nil, configfile.Explain(o.ConfigFile, content, err)
	}
	reviews, err := webhook.New(config, o.Version, audiences, *genericoptions.DefaultAuthWebhookRetryBackoff())
	if err != nil {
		return nil, err
	}
	// Errors are not cached: the next request finds out whether it is back.
	return cache.New(reviews, false, o.CacheTTL, o.CacheTTL), nil
}

// checkVerified refuses to send tokens to somebody who does not prove who it is.
func checkVerified(config *restclient.Config) error {
	clusters := field.NewPath("clusters")
	switch {
	case !strings.HasPrefix(config.Host, "https://"):
		return field.Invalid(clusters.Child("cluster", "server"), config.Host, "must be an https URL")
	case config.Insecure:
		return field.Forbidden(clusters.Child("cluster", "insecure-skip-tls-verify"), "tokens are sent to nobody who is not verified")
	}
	return nil
}
