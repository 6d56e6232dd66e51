// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceaccount

import (
	"crypto"
	"errors"
	"fmt"
	"time"

	jose "gopkg.in/go-jose/go-jose.v2"
	"gopkg.in/go-jose/go-jose.v2/jwt"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	apiserviceaccount "k8s.io/apiserver/pkg/authentication/serviceaccount"
	tokenjwt "k8s.io/apiserver/pkg/authentication/token/jwt"
)

// Issuer signs tokens as one issuer with one key.
type Issuer struct {
	name   string
	signer jose.Signer
}

// NewIssuer returns an issuer of the given name.
func NewIssuer(name string, key crypto.Signer) (*Issuer, error) {
	web, err := newWebKey(key, key.Public())
	if err != nil {
		return nil, err
	}
	// With a web key the signer adds the key's ID to each token.
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.SignatureAlgorithm(web.Algorithm), Key: web}, nil)
	if err != nil {
		return nil, fmt.Errorf("prepare to sign tokens: %w", err)
	}
	return &Issuer{name: name, signer: signer}, nil
}

// TokenConfig configures TokenRequests.
type TokenConfig struct {
	Issuer *Issuer
	// Audiences are used for a token whose request names none.
	Audiences []string
	// MaxLifetime limits the requested lifetime, unless it is 0.
	MaxLifetime time.Duration
}

// Grant is the content of a token.
type Grant struct {
	// ServiceAccount is the subject of the token.
	ServiceAccount *corev1.ServiceAccount
	// The token is bound to Secret, if any: it is invalid without it.
	Secret    *corev1.Secret
	Audiences []string
	// IssuedAt and Expires are rounded down to seconds.
	IssuedAt, Expires time.Time
}

// Token is a signed token.
type Token struct {
	// Signed is the encoded token.
	Signed string
	// CredentialID identifies the token in audit logs.
	CredentialID string
}

// Issue signs a token.
func (i *Issuer) Issue(grant Grant) (Token, error) {
	if grant.ServiceAccount.UID == "" {
		return Token{}, errors.New("a service account without a UID cannot have a token")
	}
	issuedAt, id := jwt.NewNumericDate(grant.IssuedAt), string(uuid.NewUUID())
	payload := claims{
		Claims: jwt.Claims{
			Issuer:    i.name,
			Subject:   apiserviceaccount.MakeUsername(grant.ServiceAccount.Namespace, grant.ServiceAccount.Name),
			Audience:  grant.Audiences,
			IssuedAt:  issuedAt,
			NotBefore: issuedAt,
			Expiry:    jwt.NewNumericDate(grant.Expires),
			ID:        id,
		},
		Kubernetes: &kubernetesClaims{
			Namespace:      grant.ServiceAccount.Namespace,
			ServiceAccount: reference{Name: grant.ServiceAccount.Name, UID: string(grant.ServiceAccount.UID)},
		},
	}
	if grant.Secret != nil {
		payload.Kubernetes.Secret = &reference{Name: grant.Secret.Name, UID: string(grant.Secret.UID)}
	}
	signed, err := jwt.Signed(i.signer).Claims(payload).CompactSerialize()
	if err != nil {
		return Token{}, fmt.Errorf("sign a token: %w", err)
	}
	return Token{Signed: signed, CredentialID: tokenjwt.CredentialIDForJTI(id)}, nil
}
