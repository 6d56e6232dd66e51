// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincluster

import (
	"fmt"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/authorization/path"
	"k8s.io/apiserver/pkg/authorization/union"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
)

// Authorizer allows the group system:masters all requests, all users the open paths, and delegates the rest to the main
// cluster by SubjectAccessReviews.
func (c *Cluster) Authorizer(o ReviewOptions, openPaths []string) (authorizer.Authorizer, error) {
	open, err := path.NewAuthorizer(openPaths)
	if err != nil {
		return nil, fmt.Errorf("authorize the open paths: %w", err)
	}
	mainReviews, err := authorizationclient.NewForConfig(c.reviewConfig(o.QPS, o.Burst))
	if err != nil {
		return nil, fmt.Errorf("create a client for SubjectAccessReviews: %w", err)
	}
	delegating, err := authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: mainReviews,
		AllowCacheTTL:             o.AllowCacheTTL,
		DenyCacheTTL:              o.DenyCacheTTL,
		WebhookRetryBackoff:       genericoptions.DefaultAuthWebhookRetryBackoff(),
	}.New()
	if err != nil {
		return nil, fmt.Errorf("create the delegating authorizer: %w", err)
	}
	all, err := union.New(
		union.NamedAuthorizer{AuthorizerName: "PrivilegedGroup", Authorizer: authorizerfactory.NewPrivilegedGroups(user.SystemPrivilegedGroup)},
		union.NamedAuthorizer{AuthorizerName: "HealthEndpoints", Authorizer: open},
		union.NamedAuthorizer{AuthorizerName: "MainCluster", Authorizer: markingAuthorizer(delegating)},
	)
	if err != nil {
		return nil, fmt.Errorf("combine authorizers: %w", err)
	}
	return all, nil
}
