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

// generation is one configuration in force, or about to be.
type generation struct {
	jwt       authenticator.Token
	anonymous authenticator.Request // nil where nobody may be

	issuers sets.Set[string]
	// checks say which issuers were not reached yet.
	checks []func() error
	// end stops asking the issuers for keys.
	end context.CancelFunc
}

// newGeneration starts to ask the issuers for their keys, until ctx is done or the
// generation is ended.
func (s *Structured) newGeneration(ctx context.Context, config *apiserver.AuthenticationConfiguration) (*generation, error) {
	ctx, end := context.WithCancel(ctx)
	g := &generation{anonymous: s.anonymous(config), issuers: sets.New[string](), end: end}
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
	// An issuer that recognises its token and refuses it has the last word.
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

// reached is nil when every issuer was.
func (g *generation) reached() error {
	var errs []error
	for _, check := range g.checks {
		errs = append(errs, check())
	}
	return errors.Join(errs...)
}
