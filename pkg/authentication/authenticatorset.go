// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package authentication

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	tokenunion "k8s.io/apiserver/pkg/authentication/token/union"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/apiserver/plugin/pkg/authenticator/token/oidc"
)

// authenticatorSet are the authenticators of one configuration, current or pending.
type authenticatorSet struct {
	jwt       authenticator.Token
	anonymous authenticator.Request // nil if off

	issuers sets.Set[string]
	// checks return an error for issuers that were not reached yet.
	checks []func() error
	// cancel stops fetching the issuers' keys.
	cancel context.CancelFunc
}

// newAuthenticatorSet starts fetching the issuers' keys, until ctx is done or the set
// is canceled.
func (s *Structured) newAuthenticatorSet(ctx context.Context, config *apiserver.AuthenticationConfiguration) (*authenticatorSet, error) {
	ctx, end := context.WithCancel(ctx)
	g := &authenticatorSet{anonymous: s.anonymous(config), issuers: sets.New[string](), cancel: end}
	var all []authenticator.Token
	for _, jwt := range config.JWT {
		issuer, err := s.newIssuer(ctx, jwt)
		if err != nil {
			end()
			return nil, fmt.Errorf("issuer %s: %w", jwt.Issuer.URL, err)
		}
		all = append(all, issuer)
		g.checks = append(g.checks, issuer.HealthCheck)
		g.issuers.Insert(jwt.Issuer.URL)
	}
	// The issuer of a token decides, also with an error.
	g.jwt = tokenunion.NewFailOnError(all...)
	return g, nil
}

func (s *Structured) newIssuer(ctx context.Context, jwt apiserver.JWTAuthenticator) (oidc.AuthenticatorTokenWithHealthCheck, error) {
	options := oidc.Options{
		JWTAuthenticator:     jwt,
		SupportedSigningAlgs: oidc.AllValidSigningAlgorithms(),
		DisallowedIssuers:    s.options.OwnIssuers,
		APIServerID:          s.options.APIServerID,
	}
	if bundle := jwt.Issuer.CertificateAuthority; bundle != "" {
		authorities, err := dynamiccertificates.NewStaticCAContent("oidc-authenticator", []byte(bundle))
		if err != nil {
			return nil, err
		}
		options.CAContentProvider = authorities
	}
	return oidc.New(ctx, options)
}

// checkIssuers returns nil when every issuer was reached.
func (g *authenticatorSet) checkIssuers() error {
	var errs []error
	for _, check := range g.checks {
		errs = append(errs, check())
	}
	return errors.Join(errs...)
}
