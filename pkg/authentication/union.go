// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package authentication authenticates callers. Each method is an authenticator of its
// own; union.go has their order. Behind a main cluster only client certificates of
// annex's own authority and the delegated authenticator are configured.
package authentication

import (
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/request/websocket"
	tokenunion "k8s.io/apiserver/pkg/authentication/token/union"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
)

// Config holds an authenticator for each method. Nil fields are off.
type Config struct {
	// Audiences are the audiences of annex.
	Audiences authenticator.Audiences

	// FrontProxy configures which proxies are trusted, and which headers.
	FrontProxy *authenticatorfactory.RequestHeaderConfig
	// ClientCA verifies client certificates with the content of its bundle.
	ClientCA dynamiccertificates.CAContentProvider
	// StaticTokens authenticates the tokens of a file, for any audience.
	StaticTokens authenticator.Token
	// ServiceAccounts authenticates the tokens that annex signs. It checks audiences
	// itself.
	ServiceAccounts authenticator.Token
	// BootstrapTokens authenticates those in Secrets, for any audience.
	BootstrapTokens authenticator.Token
	// Structured authenticates the JWTs of other issuers, and anonymous requests, for
	// any audience besides those that its configuration requires.
	Structured *Structured
	// Webhook delegates to a webhook. It checks audiences itself.
	Webhook authenticator.Token
	// Delegated delegates to another cluster.
	Delegated authenticator.Request
}

// New combines the authenticators in kube-apiserver's order: those without network
// requests come first. The first that accepts a caller decides. If none does, and none
// returned an error, the caller is anonymous if the configuration allows that, and
// otherwise rejected.
func (c Config) New() authenticator.Request {
	var requests []authenticator.Request
	if c.FrontProxy != nil {
		requests = append(requests, authenticator.WrapAudienceAgnosticRequest(c.Audiences, c.frontProxy()))
	}
	if c.ClientCA != nil {
		requests = append(requests, &certificates{ca: c.ClientCA})
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

// KnowsTokens reports whether there is an authenticator of bearer tokens, besides the
// delegated one.
func (c Config) KnowsTokens() bool { return len(c.tokens()) > 0 }

// tokens are tried in this order. There is no cache around them: tokens of a deleted
// service account are rejected at once.
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
	// After the service accounts: an unknown key ID makes these fetch the keys of their
	// issuer again.
	if c.Structured.hasFile() {
		tokens = append(tokens, authenticator.WrapAudienceAgnosticToken(c.Audiences, c.Structured))
	}
	if c.Webhook != nil {
		tokens = append(tokens, c.Webhook)
	}
	return tokens
}

// frontProxy accepts the headers only with a client certificate of the proxy.
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
