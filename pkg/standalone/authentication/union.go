// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package authentication recognises callers where annex stands alone. Each way to
// log in is an authenticator of its own; this package puts them in order.
package authentication

import (
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/request/websocket"
	"k8s.io/apiserver/pkg/authentication/request/x509"
	tokenunion "k8s.io/apiserver/pkg/authentication/token/union"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
)

// Config is every way to log in. What is nil is off.
type Config struct {
	// Audiences are the names that annex has to issuers of tokens.
	Audiences authenticator.Audiences

	// FrontProxy says whose headers are believed, and which.
	FrontProxy *authenticatorfactory.RequestHeaderConfig
	// ClientCA are the authorities whose client certificates log in.
	ClientCA dynamiccertificates.CAContentProvider
	// StaticTokens knows the tokens of a file. They are good for any audience.
	StaticTokens authenticator.Token
	// ServiceAccounts knows the tokens that annex signs. It minds audiences itself.
	ServiceAccounts authenticator.Token
	// BootstrapTokens knows those in Secrets. They are good for any audience.
	BootstrapTokens authenticator.Token
	// Structured knows the JWTs of other issuers, and who may stay anonymous. They are
	// good for any audience, beside those that the configuration asks for.
	Structured *Structured
	// Webhook asks somebody else about tokens. It minds audiences itself.
	Webhook authenticator.Token
	// Delegated delegates to another cluster.
	Delegated authenticator.Request
}

// New puts the authenticators in kube-apiserver's order: what is decided without
// asking anybody comes first. The first that recognises a caller decides. Where none
// does, and none found fault with what the caller showed, the caller is anonymous
// where the configuration allows that, and otherwise refused.
func (c Config) New() authenticator.Request {
	var requests []authenticator.Request
	if c.FrontProxy != nil {
		requests = append(requests, authenticator.WrapAudienceAgnosticRequest(c.Audiences, c.frontProxy()))
	}
	if c.ClientCA != nil {
		requests = append(requests, x509.NewDynamic(c.ClientCA.VerifyOptions, x509.CommonNameUserConversion))
	}
	if tokens := c.tokens(); len(tokens) > 0 {
		known := tokenunion.New(tokens...)
		requests = append(requests, bearertoken.New(known), websocket.NewProtocolAuthenticator(known))
	}
	if c.Delegated != nil {
		requests = append(requests, c.Delegated)
	}
	known := group.NewAuthenticatedGroupAdder(union.New(requests...))
	if c.Structured == nil {
		return known
	}
	return union.NewFailOnError(known, authenticator.RequestFunc(c.Structured.AuthenticateAnonymous))
}

// KnowsTokens is false where no bearer token logs in but the main cluster's.
func (c Config) KnowsTokens() bool { return len(c.tokens()) > 0 }

// tokens are asked in this order. There is no cache around them: a service account
// that is gone is gone at once.
func (c Config) tokens() []authenticator.Token {
	var tokens []authenticator.Token
	if c.StaticTokens != nil {
		tokens = append(tokens, authenticator.WrapAudienceAgnosticToken(c.Audiences, c.StaticTokens))
	}
	if c.ServiceAccounts != nil {
		tokens = append(tokens, c.ServiceAccounts)
	}
	if c.BootstrapTokens != nil {
		tokens = append(tokens, authenticator.WrapAudienceAgnosticToken(c.Audiences, c.BootstrapTokens))
	}
	// After the service accounts: a key that they do not know may send these to their
	// issuer, to look for a new one.
	if c.Structured.hasFile() {
		tokens = append(tokens, authenticator.WrapAudienceAgnosticToken(c.Audiences, c.Structured))
	}
	if c.Webhook != nil {
		tokens = append(tokens, c.Webhook)
	}
	return tokens
}

// frontProxy believes nobody who does not prove to be the proxy.
func (c Config) frontProxy() authenticator.Request {
	return headerrequest.NewDynamicVerifyOptionsSecure(
		c.FrontProxy.CAContentProvider.VerifyOptions,
		c.FrontProxy.AllowedClientNames,
		c.FrontProxy.UsernameHeaders,
		c.FrontProxy.UIDHeaders,
		c.FrontProxy.GroupHeaders,
		c.FrontProxy.ExtraHeaderPrefixes,
	)
}
