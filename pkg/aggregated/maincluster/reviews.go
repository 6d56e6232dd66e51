// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincluster

import (
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/lru"
)

const (
	// reviewQPS and reviewBurst are the limits of upstream's aggregated servers.
	reviewQPS, reviewBurst = 200, 400
	// reviewTimeout bounds one review, as it does there.
	reviewTimeout = 10 * time.Second
)

// ReviewOptions tune TokenReviews and SubjectAccessReviews.
type ReviewOptions struct {
	// TokenCacheTTL, AllowCacheTTL and DenyCacheTTL bound the caching of responses.
	TokenCacheTTL, AllowCacheTTL, DenyCacheTTL time.Duration
	// QPS and Burst limit SubjectAccessReviews; those above the limit wait.
	QPS   float32
	Burst int
}

// DefaultReviewOptions are upstream's for aggregated servers.
func DefaultReviewOptions() ReviewOptions {
	tokens, access := genericoptions.NewDelegatingAuthenticationOptions(), genericoptions.NewDelegatingAuthorizationOptions()
	return ReviewOptions{
		TokenCacheTTL: tokens.CacheTTL, AllowCacheTTL: access.AllowCacheTTL, DenyCacheTTL: access.DenyCacheTTL, QPS: reviewQPS, Burst: reviewBurst,
	}
}

// reviewConfig limits the reviews of a client. Reviews of tokens that were valid before
// have a separate limit: a flood of others does not delay them.
func (c *Cluster) reviewConfig(qps float32, burst int) *restclient.Config {
	config := restclient.CopyConfig(c.Config)
	config.Timeout = reviewTimeout
	config.RateLimiter = reviewLimiter{
		RateLimiter: flowcontrol.NewTokenBucketRateLimiter(qps, burst),
		known:       flowcontrol.NewTokenBucketRateLimiter(qps, burst),
	}
	config.Wrap(newReviewTransport)
	return config
}

type reviewLimiter struct {
	flowcontrol.RateLimiter
	known flowcontrol.RateLimiter
}

// knownKey is the context key of a known token: the rate limiter gets only the context.
type knownKey struct{}

// Wait implements flowcontrol.RateLimiter. A review whose turn would come too late is
// one that was not answered.
func (l reviewLimiter) Wait(ctx context.Context) error {
	limiter := l.RateLimiter
	if ctx.Value(knownKey{}) != nil {
		limiter = l.known
	}
	if err := limiter.Wait(ctx); err != nil {
		return fmt.Errorf("%w: %w", errUnavailable, err)
	}
	return nil
}

// maxKnownTokens bounds the number of tokens that are remembered as valid.
const maxKnownTokens = 10000

// tokenReviews records which tokens were valid.
type tokenReviews struct {
	authenticationclient.AuthenticationV1Interface
	known *lru.Cache // by the SHA-256 of the token
}

func newTokenReviews(inner authenticationclient.AuthenticationV1Interface) tokenReviews {
	return tokenReviews{inner, lru.New(maxKnownTokens)}
}

// TokenReviews implements the client.
func (t tokenReviews) TokenReviews() authenticationclient.TokenReviewInterface {
	return knownTokenReviews{t.AuthenticationV1Interface.TokenReviews(), t.known}
}

type knownTokenReviews struct {
	authenticationclient.TokenReviewInterface
	known *lru.Cache
}

// Create implements the client.
func (t knownTokenReviews) Create(ctx context.Context, review *authenticationv1.TokenReview, options metav1.CreateOptions) (*authenticationv1.TokenReview, error) {
	token := sha256.Sum256([]byte(review.Spec.Token))
	if _, known := t.known.Get(token); known {
		ctx = context.WithValue(ctx, knownKey{}, true)
	}
	answer, err := t.TokenReviewInterface.Create(ctx, review, options)
	switch {
	case err != nil:
	case answer.Status.Authenticated:
		t.known.Add(token, nil)
	default:
		t.known.Remove(token)
	}
	return answer, err
}
