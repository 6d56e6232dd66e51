// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincluster

import (
	"fmt"
	"time"

	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
)

// AuthorizationOptions tune SubjectAccessReviews.
type AuthorizationOptions struct {
	// AllowCacheTTL and DenyCacheTTL are how long responses are cached.
	AllowCacheTTL, DenyCacheTTL time.Duration
	// QPS and Burst limit the reviews; those above the limit wait.
	QPS   float32
	Burst int
	// Timeout bounds one review.
	Timeout time.Duration
}

// DefaultAuthorizationOptions are upstream's for aggregated servers.
func DefaultAuthorizationOptions() AuthorizationOptions {
	upstream := genericoptions.NewDelegatingAuthorizationOptions()
	return AuthorizationOptions{
		AllowCacheTTL: upstream.AllowCacheTTL,
		DenyCacheTTL:  upstream.DenyCacheTTL,
		QPS:           reviewQPS,
		Burst:         reviewBurst,
		Timeout:       upstream.ClientTimeout,
	}
}

// Authorizer delegates authorization to the main cluster by SubjectAccessReviews.
func (c *Cluster) Authorizer(o AuthorizationOptions) (authorizer.Authorizer, error) {
	config := restclient.CopyConfig(c.Config)
	config.Timeout = o.Timeout
	limitReviews(config, o.QPS, o.Burst)
	config.Wrap(newReviewTransport)
	mainReviews, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("create a client for SubjectAccessReviews: %w", err)
	}
	delegating, err := authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: mainReviews.AuthorizationV1(),
		AllowCacheTTL:             o.AllowCacheTTL,
		DenyCacheTTL:              o.DenyCacheTTL,
		WebhookRetryBackoff:       genericoptions.DefaultAuthWebhookRetryBackoff(),
	}.New()
	if err != nil {
		return nil, fmt.Errorf("create the delegating authorizer: %w", err)
	}
	return markingAuthorizer(delegating), nil
}
