// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceaccount

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"slices"

	jose "gopkg.in/go-jose/go-jose.v2"
	"k8s.io/client-go/util/keyutil"
)

// minRSABits is NIST's minimum since 2014.
const minRSABits = 2048

// Keys are the public keys that verify tokens.
type Keys struct {
	// published is in the order of the flags, without duplicates.
	published []jose.JSONWebKey
	byID      map[string]*jose.JSONWebKey
}

// NewKeys returns a set of public keys without duplicates.
func NewKeys(public ...crypto.PublicKey) (*Keys, error) {
	keys := &Keys{byID: map[string]*jose.JSONWebKey{}}
	for _, key := range public {
		web, err := newWebKey(key, key)
		if err != nil {
			return nil, err
		}
		if _, known := keys.byID[web.KeyID]; !known {
			keys.byID[web.KeyID] = web
			keys.published = append(keys.published, *web)
		}
	}
	if len(keys.published) == 0 {
		return nil, errors.New("there is no key to verify tokens with")
	}
	return keys, nil
}

// candidates are the keys that may have signed a token whose header names the key id,
// or no key.
func (k *Keys) candidates(id string) []*jose.JSONWebKey {
	if id != "" {
		if key := k.byID[id]; key != nil {
			return []*jose.JSONWebKey{key}
		}
		return nil
	}
	all := make([]*jose.JSONWebKey, len(k.published))
	for i := range k.published {
		all[i] = &k.published[i]
	}
	return all
}

// algorithms returns the algorithms of all keys, sorted.
func (k *Keys) algorithms() []string {
	var all []string
	for i := range k.published {
		all = append(all, k.published[i].Algorithm)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// newWebKey encodes a private or public key for JOSE. Its ID is a hash of the public
// key, as in Kubernetes, so that two servers with one key use the same ID.
func newWebKey(key any, public crypto.PublicKey) (*jose.JSONWebKey, error) {
	algorithm, err := algorithmOf(public)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return nil, fmt.Errorf("encode the public key: %w", err)
	}
	hash := sha256.Sum256(der)
	return &jose.JSONWebKey{
		Key:       key,
		KeyID:     base64.RawURLEncoding.EncodeToString(hash[:]),
		Algorithm: string(algorithm),
		Use:       "sig",
	}, nil
}

// algorithmOf is the only algorithm that a key is used with. A token cannot choose.
func algorithmOf(public crypto.PublicKey) (jose.SignatureAlgorithm, error) {
	switch key := public.(type) {
	case *rsa.PublicKey:
		if key.N.BitLen() < minRSABits {
			return "", fmt.Errorf("an RSA key of %d bits is too short, it needs %d", key.N.BitLen(), minRSABits)
		}
		return jose.RS256, nil
	case *ecdsa.PublicKey:
		switch key.Curve {
		case elliptic.P256():
			return jose.ES256, nil
		case elliptic.P384():
			return jose.ES384, nil
		case elliptic.P521():
			return jose.ES512, nil
		}
		return "", fmt.Errorf("the curve %s is not supported, P-256, P-384 and P-521 are", key.Params().Name)
	default:
		return "", fmt.Errorf("a key of type %T is not supported, RSA and ECDSA are", public)
	}
}

// LoadSigningKey reads a private RSA or ECDSA key in PEM.
func LoadSigningKey(path string) (crypto.Signer, error) {
	read, err := keyutil.PrivateKeyFromFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the key that signs tokens: %w", err)
	}
	key, ok := read.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("%s: a key of type %T cannot sign", path, read)
	}
	if _, err := algorithmOf(key.Public()); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return key, nil
}

// LoadPublicKeys reads the RSA and ECDSA keys of a file in PEM, including the keys of
// certificates and the public halves of private keys. It rejects unknown blocks: if it
// skipped a key, the tokens of that key would be rejected.
func LoadPublicKeys(path string) ([]crypto.PublicKey, error) {
	rest, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read keys that verify tokens: %w", err)
	}
	var keys []crypto.PublicKey
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type == "EC PARAMETERS" {
			// openssl writes the name of the curve before a key.
			continue
		}
		key, err := parsePublicKey(block)
		if err == nil {
			_, err = algorithmOf(key)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: key %d: %w", path, len(keys)+1, err)
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("%s does not contain a key in PEM", path)
	}
	return keys, nil
}

func parsePublicKey(block *pem.Block) (crypto.PublicKey, error) {
	switch block.Type {
	case keyutil.PublicKeyBlockType:
		return x509.ParsePKIXPublicKey(block.Bytes)
	case "RSA PUBLIC KEY":
		return x509.ParsePKCS1PublicKey(block.Bytes)
	case "CERTIFICATE":
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		return certificate.PublicKey, nil
	}
	private, err := keyutil.ParsePrivateKeyPEM(pem.EncodeToMemory(block))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", block.Type, err)
	}
	signer, ok := private.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("a key of type %T is not supported, RSA and ECDSA are", private)
	}
	return signer.Public(), nil
}
