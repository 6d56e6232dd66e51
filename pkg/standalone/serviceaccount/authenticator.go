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
	"strings"
	"sync/atomic"

	jose "gopkg.in/go-jose/go-jose.v2"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	apiserviceaccount "k8s.io/apiserver/pkg/authentication/serviceaccount"
	tokenjwt "k8s.io/apiserver/pkg/authentication/token/jwt"
	"k8s.io/apiserver/pkg/authentication/user"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
)

// verifiedTokens bounds the memory for tokens whose signature was verified. One
// takes about 1 KiB.
const verifiedTokens = 4096

// AuthenticatorConfig holds what an authenticator depends on.
type AuthenticatorConfig struct {
	// Issuers are in whose name tokens may be.
	Issuers []string
	// Keys are what they may be signed with.
	Keys *Keys
	// Audiences are who the server is, for requests that do not say for whom they ask.
	Audiences authenticator.Audiences
	// ServiceAccounts and Secrets are asked on each request.
	ServiceAccounts corev1listers.ServiceAccountLister
	Secrets         corev1listers.SecretLister
	// Live is asked where these do not have what a token names: they may be behind.
	// It must not log in with a token of a service account.
	Live corev1client.CoreV1Interface
	// Clock is the real one when it is nil.
	Clock clock.PassiveClock
}

// tokenAuthenticator recognises the tokens of service accounts.
type tokenAuthenticator struct {
	issuers   sets.Set[string]
	keys      *Keys
	audiences authenticator.Audiences
	bearers   boundObjectValidator
	clock     clock.PassiveClock

	// verified has what tokens say whose signature was found good, by their hash:
	// that takes most of the time, and never changes. All else is looked up each
	// time, so that what is revoked is refused at once.
	verified *lru.Cache
}

// verified is what a token with a good signature says.
type verified struct {
	claims
	user user.Info
	// revoked is why the token is not good any more, once that is known for ever: a
	// program that goes on with it must not cost a read of the store each time.
	revoked atomic.Pointer[error]
}

// NewAuthenticator returns what recognises the tokens of service accounts. It must
// not be cached: it caches by itself what may be.
func NewAuthenticator(config AuthenticatorConfig) authenticator.Token {
	a := &tokenAuthenticator{
		issuers:   sets.New(config.Issuers...),
		keys:      config.Keys,
		audiences: config.Audiences,
		bearers:   boundObjectValidator{serviceAccounts: config.ServiceAccounts, secrets: config.Secrets, live: config.Live},
		clock:     config.Clock,
		verified:  lru.New(verifiedTokens),
	}
	if a.clock == nil {
		a.clock = clock.RealClock{}
	}
	return a
}

// AuthenticateToken returns whose token it is. A token of somebody else's is none of
// its business and no error; one in annex's name that is not good is an error.
func (a *tokenAuthenticator) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	if strings.Count(token, ".") != 2 {
		return nil, false, nil
	}
	hash := sha256.Sum256([]byte(token))
	content, err := a.read(token, hash)
	if content == nil || err != nil {
		return nil, false, err
	}
	if err := content.validateTime(a.clock.Now()); err != nil {
		a.verified.Remove(hash)
		return nil, false, err
	}
	requested, ok := authenticator.AudiencesFrom(ctx)
	if !ok {
		requested = a.audiences
	}
	audiences := authenticator.Audiences(content.Audience).Intersect(requested)
	if len(audiences) == 0 {
		return nil, false, fmt.Errorf("the token is for the audiences %q, not for %q", []string(content.Audience), []string(requested))
	}
	if revoked := content.revoked.Load(); revoked != nil {
		return nil, false, *revoked
	}
	if err := a.bearers.validate(ctx, content.Kubernetes); err != nil {
		if isFinal(err) {
			content.revoked.Store(&err)
		}
		return nil, false, err
	}
	return &authenticator.Response{User: content.user, Audiences: audiences}, true, nil
}

// read returns what a token says, once its signature and its claims are found good,
// or nil where it is not in the name of an issuer of ours.
func (a *tokenAuthenticator) read(token string, hash [sha256.Size]byte) (*verified, error) {
	if known, ok := a.verified.Get(hash); ok {
		return known.(*verified), nil
	}
	if !a.issuers.Has(claimedIssuer(token)) {
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
	// What was read before the signature was verified could have been something else.
	if !a.issuers.Has(content.Issuer) {
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

// verify returns the payload of a token that one of the keys signed, with the
// algorithm of that key.
func (a *tokenAuthenticator) verify(token string) ([]byte, error) {
	parsed, err := jose.ParseSigned(token)
	if err != nil {
		return nil, fmt.Errorf("read a token: %w", err)
	}
	if len(parsed.Signatures) != 1 {
		return nil, fmt.Errorf("the token has %d signatures, not one", len(parsed.Signatures))
	}
	header := parsed.Signatures[0].Header
	candidates := a.keys.candidates(header.KeyID)
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

// claimedIssuer is the issuer that a token names, whoever made it, or "" where it
// is no JWT.
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
