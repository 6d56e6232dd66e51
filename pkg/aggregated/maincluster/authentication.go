// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincluster

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
)

// Authenticator authenticates callers by the headers of the main cluster's front proxy,
// its client certificates and its tokens. Trusted authorities are reloaded while
// generic serves. No caller is anonymous; upstream's options would make each
// unauthenticated one so.
func (c *Cluster) Authenticator(ctx context.Context, generic *genericapiserver.Config, o ReviewOptions) (authenticator.Request, error) {
	clientCA, err := c.authority("main-client-ca", clientCAKey)
	if err != nil {
		return nil, err
	}
	frontProxy, err := c.frontProxy()
	if err != nil {
		return nil, err
	}
	knownClientCA, knownFrontProxy := &preloadedCA{dynamicCA: clientCA}, &preloadedCA{dynamicCA: frontProxy}
	// Both are read once before annex serves: without them the first callers would get
	// 401.
	err = retry(ctx, c.Config.Host, func(ctx context.Context) error {
		if err := frontProxy.RunOnce(ctx); err != nil {
			return fmt.Errorf("read the main cluster's front proxy CA: %w", explain(err))
		}
		trust, err := c.Kube.CoreV1().ConfigMaps(AuthenticationNamespace).Get(ctx, AuthenticationConfigMap, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("read the main cluster's trusted CAs: %w", explain(err))
		}
		return errors.Join(knownFrontProxy.load(trust, requestHeaderCAKey), knownClientCA.load(trust, clientCAKey))
	})
	if err != nil {
		return nil, err
	}
	for _, trusted := range []dynamiccertificates.CAContentProvider{knownClientCA, knownFrontProxy} {
		if err := generic.Authentication.ApplyClientCert(trusted, generic.SecureServing); err != nil {
			return nil, fmt.Errorf("request client certificates: %w", err)
		}
	}
	// Unauthenticated requests can cause TokenReviews: their limit cannot be raised.
	mainReviews, err := c.tokenReviewClient(reviewQPS, reviewBurst)
	if err != nil {
		return nil, err
	}
	config := authenticatorfactory.DelegatingAuthenticatorConfig{
		TokenAccessReviewClient:            mainReviews,
		TokenAccessReviewTimeout:           reviewTimeout,
		WebhookRetryBackoff:                genericoptions.DefaultAuthWebhookRetryBackoff(),
		CacheTTL:                           o.TokenCacheTTL,
		ClientCertificateCAContentProvider: knownClientCA,
		RequestHeaderConfig: &authenticatorfactory.RequestHeaderConfig{
			CAContentProvider:   knownFrontProxy,
			UsernameHeaders:     headerrequest.StringSliceProviderFunc(frontProxy.UsernameHeaders),
			UIDHeaders:          headerrequest.StringSliceProviderFunc(frontProxy.UIDHeaders),
			GroupHeaders:        headerrequest.StringSliceProviderFunc(frontProxy.GroupHeaders),
			ExtraHeaderPrefixes: headerrequest.StringSliceProviderFunc(frontProxy.ExtraHeaderPrefixes),
			AllowedClientNames:  headerrequest.StringSliceProviderFunc(frontProxy.AllowedClientNames),
		},
	}
	generic.Authentication.RequestHeaderConfig = config.RequestHeaderConfig
	delegated, definitions, err := config.New()
	if err != nil {
		return nil, fmt.Errorf("create the delegating authenticator: %w", err)
	}
	generic.OpenAPIConfig.SecurityDefinitions = definitions
	return markingAuthenticator(delegated), nil
}

// authority watches one bundle of certificate authorities in the ConfigMap.
func (c *Cluster) authority(purpose, key string) (*dynamiccertificates.ConfigMapCAController, error) {
	authority, err := dynamiccertificates.NewDynamicCAFromConfigMapController(purpose, AuthenticationNamespace, AuthenticationConfigMap, key, c.Kube)
	if err != nil {
		return nil, fmt.Errorf("watch %s of ConfigMap %s/%s: %w", key, AuthenticationNamespace, AuthenticationConfigMap, err)
	}
	return authority, nil
}

// frontProxy watches which client certificates may set the user in headers, and in
// which.
func (c *Cluster) frontProxy() (*genericoptions.DynamicRequestHeaderController, error) {
	authority, err := c.authority("main-front-proxy", requestHeaderCAKey)
	if err != nil {
		return nil, err
	}
	return &genericoptions.DynamicRequestHeaderController{
		ConfigMapCAController: authority,
		RequestHeaderAuthRequestController: headerrequest.NewRequestHeaderAuthRequestController(
			AuthenticationConfigMap, AuthenticationNamespace, c.Kube,
			"requestheader-username-headers",
			"requestheader-uid-headers",
			"requestheader-group-headers",
			"requestheader-extra-headers-prefix",
			"requestheader-allowed-names",
		),
	}, nil
}

// tokenReviewClient creates a separate client: authentication must not wait behind
// informers.
func (c *Cluster) tokenReviewClient(qps float32, burst int) (authenticationclient.AuthenticationV1Interface, error) {
	mainReviews, err := authenticationclient.NewForConfig(c.reviewConfig(qps, burst))
	if err != nil {
		return nil, fmt.Errorf("create a client for TokenReviews: %w", err)
	}
	return newTokenReviews(mainReviews), nil
}
