// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceaccount

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	jose "gopkg.in/go-jose/go-jose.v2"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	apiserviceaccount "k8s.io/apiserver/pkg/authentication/serviceaccount"
	tokenjwt "k8s.io/apiserver/pkg/authentication/token/jwt"
	"k8s.io/apiserver/pkg/authentication/user"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
)

// verifiedTokens bounds the number of tokens whose signature is cached as verified. One
// takes about 1 KiB.
const verifiedTokens = 4096

// AuthenticatorConfig holds what an authenticator depends on.
type AuthenticatorConfig struct {
	// Issuers are the accepted issuers of tokens.
	Issuers []string
	// Keys verify the signatures.
	Keys *Keys
	// Audiences are the server's, for requests that do not name any.
	Audiences authenticator.Audiences
	// ServiceAccounts and Secrets are read on each request.
	ServiceAccounts corev1listers.ServiceAccountLister
	Secrets         corev1listers.SecretLister
	// Live is read if these listers, which may be behind, lack the object of a token.
	// It must not authenticate with a token of a service account.
	Live corev1client.CoreV1Interface
	// Clock is the real one if nil.
	Clock clock.PassiveClock
}

// tokenAuthenticator authenticates the tokens of service accounts.
type tokenAuthenticator struct {
	AuthenticatorConfig

	// verified caches the claims of tokens with a verified signature, by their hash:
	// verifying takes most of the time, and its result never changes. All else is
	// checked each time, so that a revoked token is rejected at once.
	verified *lru.Cache
}

// verified holds the claims of a token with a verified signature.
type verified struct {
	claims
	user user.Info
	// revoked is the error of a permanently invalid token: a program that keeps using it
	// must not cost a read of the store each time.
	revoked atomic.Pointer[error]
}

// NewAuthenticator returns an authenticator of the tokens of service accounts. It
// caches what may be cached, and must not be wrapped by a cache.
func NewAuthenticator(config AuthenticatorConfig) authenticator.Token {
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	return &tokenAuthenticator{AuthenticatorConfig: config, verified: lru.New(verifiedTokens)}
}

// AuthenticateToken returns the user of a token. A token of another issuer is ignored;
// an invalid one of annex's issuers is an error.
func (a *tokenAuthenticator) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	if strings.Count(token, ".") != 2 {
		return nil, false, nil
	}
	hash := sha256.Sum256([]byte(token))
	content, err := a.read(token, hash)
	if content == nil || err != nil {
		return nil, false, err
	}
	if err := content.validateTime(a.Clock.Now()); err != nil {
		a.verified.Remove(hash)
		return nil, false, err
	}
	requested, ok := authenticator.AudiencesFrom(ctx)
	if !ok {
		requested = a.Audiences
	}
	audiences := authenticator.Audiences(content.Audience).Intersect(requested)
	if len(audiences) == 0 {
		return nil, false, fmt.Errorf("the token is for the audiences %q, not for %q", []string(content.Audience), []string(requested))
	}
	if revoked := content.revoked.Load(); revoked != nil {
		return nil, false, *revoked
	}
	if err := a.validateObjects(ctx, content.Kubernetes); err != nil {
		if isFinal(err) {
			content.revoked.Store(&err)
		}
		return nil, false, err
	}
	return &authenticator.Response{User: content.user, Audiences: audiences}, true, nil
}

// read returns the verified claims of a token, or nil if another issuer issued it.
func (a *tokenAuthenticator) read(token string, hash [sha256.Size]byte) (*verified, error) {
	if known, ok := a.verified.Get(hash); ok {
		return known.(*verified), nil
	}
	if !slices.Contains(a.Issuers, claimedIssuer(token)) {
		return nil, nil
	}
	payload, err := a.verify(token)
	if err != nil {
		return nil, err
	}
	content := &verified{}
	if err := json.Unmarshal(payload, &content.claims); err != nil {
		return nil, fmt.Errorf("read the claims of a token: %w", err)
	}
	// The issuer that was read before the verification may differ.
	if !slices.Contains(a.Issuers, content.Issuer) {
		return nil, fmt.Errorf("the token was issued by %q", content.Issuer)
	}
	if err := content.validate(); err != nil {
		return nil, err
	}
	content.user = (&apiserviceaccount.ServiceAccountInfo{
		Namespace:    content.Kubernetes.Namespace,
		Name:         content.Kubernetes.ServiceAccount.Name,
		UID:          content.Kubernetes.ServiceAccount.UID,
		CredentialID: tokenjwt.CredentialIDForJTI(content.ID),
	}).UserInfo()
	a.verified.Add(hash, content)
	return content, nil
}

// verify returns the payload of a token that one of the keys signed, with the algorithm
// of that key.
func (a *tokenAuthenticator) verify(token string) ([]byte, error) {
	parsed, err := jose.ParseSigned(token)
	if err != nil {
		return nil, fmt.Errorf("read a token: %w", err)
	}
	if len(parsed.Signatures) != 1 {
		return nil, fmt.Errorf("the token has %d signatures, not one", len(parsed.Signatures))
	}
	header := parsed.Signatures[0].Header
	candidates := a.Keys.candidates(header.KeyID)
	if len(candidates) == 0 {
		return nil, fmt.Errorf("the token is signed with the key %.64q, which is unknown", header.KeyID)
	}
	for _, key := range candidates {
		if header.Algorithm != key.Algorithm {
			continue
		}
		if payload, err := parsed.Verify(key); err == nil {
			return payload, nil
		}
	}
	return nil, errors.New("the signature of the token is wrong")
}

// claimedIssuer is the issuer that a token names, before verification, or "" if it is
// no JWT.
func claimedIssuer(token string) string {
	header, rest, _ := strings.Cut(token, ".")
	payload, _, _ := strings.Cut(rest, ".")
	if _, err := base64.RawURLEncoding.DecodeString(header); err != nil {
		return ""
	}
	raw, err := base64.RawURLEncoding.DecodeString(payload)
	if err != nil {
		return ""
	}
	var claimed struct {
		Issuer string `json:"iss"`
	}
	if json.Unmarshal(raw, &claimed) != nil {
		return ""
	}
	return claimed.Issuer
}
