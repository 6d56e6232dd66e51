// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceaccount

import (
	"crypto"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/util/keyutil"

	"github.com/annex-dev/annex/pkg/test/expect"
)

func mustKeys(t testing.TB, public ...crypto.PublicKey) *Keys {
	t.Helper()
	keys, err := NewKeys(public...)
	expect.NoError(t, err)
	return keys
}

func newRSA(t *testing.T, bits int) *rsa.PrivateKey {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, bits)
	expect.NoError(t, err)
	return key
}

// writePEM writes keys into a file; private ones in openssl's default form.
func writePEM(t *testing.T, keys ...any) string {
	t.Helper()
	var raw []byte
	for _, key := range keys {
		block := &pem.Block{Type: keyutil.PublicKeyBlockType}
		var err error
		if _, isPrivate := key.(crypto.Signer); isPrivate {
			block.Type = keyutil.PrivateKeyBlockType
			block.Bytes, err = x509.MarshalPKCS8PrivateKey(key)
		} else {
			block.Bytes, err = x509.MarshalPKIXPublicKey(key)
		}
		expect.NoError(t, err)
		raw = append(raw, pem.EncodeToMemory(block)...)
	}
	path := filepath.Join(t.TempDir(), "key.pem")
	expect.NoError(t, os.WriteFile(path, raw, 0o600))
	return path
}

// TestEveryKindOfKey signs and verifies with keys that were written to files.
func TestEveryKindOfKey(t *testing.T) {
	t.Parallel()
	for algorithm, key := range map[string]crypto.Signer{
		"RS256": newRSA(t, 2048),
		"ES256": newECDSA(t, elliptic.P256()),
		"ES384": newECDSA(t, elliptic.P384()),
		"ES512": newECDSA(t, elliptic.P521()),
	} {
		t.Run(algorithm, func(t *testing.T) {
			t.Parallel()
			signing, err := LoadSigningKey(writePEM(t, key))
			expect.NoError(t, err)
			verifying, err := LoadPublicKeys(writePEM(t, key.Public()))
			expect.NoError(t, err)
			issuer, err := NewIssuer(issuerName, signing)
			expect.NoError(t, err)
			w := newFixture(t, robot)
			w.authenticator.Keys = mustKeys(t, verifying...)
			expect.Equal(t, []string{algorithm}, w.authenticator.Keys.algorithms(), "algorithms")
			token, err := issuer.Issue(Grant{ServiceAccount: robot, Audiences: []string{"annex"}, IssuedAt: epoch, Expires: epoch.Add(time.Hour)})
			expect.NoError(t, err)
			if _, ok, err := w.authenticator.AuthenticateToken(t.Context(), token.Signed); !ok || err != nil {
				t.Errorf("recognised %t, error %v", ok, err)
			}
		})
	}
}

func TestKeyIDsAreStable(t *testing.T) {
	t.Parallel()
	key := newECDSA(t, elliptic.P256())
	once, again := mustKeys(t, key.Public()), mustKeys(t, key.Public(), key.Public())
	expect.Equal(t, once.published[0].KeyID, again.published[0].KeyID, "the ID of a key changed")
	if len(again.published) != 1 {
		t.Errorf("a key that is there twice is published %d times", len(again.published))
	}
}

func TestLoadPublicKeysOfSeveral(t *testing.T) {
	t.Parallel()
	first, second := newECDSA(t, elliptic.P256()), newRSA(t, 2048)
	loaded, err := LoadPublicKeys(writePEM(t, first, second.Public()))
	expect.NoError(t, err)
	expect.Equal(t, mustKeys(t, public(first, second)...).algorithms(), mustKeys(t, loaded...).algorithms(), "keys")
}

func TestBadKeyFiles(t *testing.T) {
	t.Parallel()
	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	expect.NoError(t, err)
	empty := filepath.Join(t.TempDir(), "empty.pem")
	expect.NoError(t, os.WriteFile(empty, nil, 0o600))
	damaged := filepath.Join(t.TempDir(), "damaged.pem")
	expect.NoError(t, os.WriteFile(damaged, pem.EncodeToMemory(&pem.Block{Type: keyutil.PrivateKeyBlockType, Bytes: []byte("x")}), 0o600))
	absent := filepath.Join(t.TempDir(), "absent.pem")
	private := func(path string) error { _, err := LoadSigningKey(path); return err }
	public := func(path string) error { _, err := LoadPublicKeys(path); return err }
	weak := newRSA(t, 1024)
	for name, test := range map[string]struct {
		load func(string) error
		path string
		want string
	}{
		"signing: absent":    {private, absent, "no such file"},
		"signing: empty":     {private, empty, "does not contain"},
		"signing: public":    {private, writePEM(t, newRSA(t, 2048).Public()), "does not contain"},
		"signing: weak":      {private, writePEM(t, weak), "1024 bits"},
		"signing: Ed25519":   {private, writePEM(t, edwards), "not supported"},
		"signing: curve":     {private, writePEM(t, newECDSA(t, elliptic.P224())), "P-224"},
		"verifying: absent":  {public, absent, "no such file"},
		"verifying: empty":   {public, empty, "does not contain"},
		"verifying: weak":    {public, writePEM(t, newECDSA(t, elliptic.P256()), weak), "key 2"},
		"verifying: Ed25519": {public, writePEM(t, edwards), "not supported"},
		"verifying: damaged": {public, damaged, "key 1: PRIVATE KEY"},
		"verifying: curve":   {public, writePEM(t, newECDSA(t, elliptic.P224())), "P-224"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := test.load(test.path)
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), test.path) {
				t.Errorf("error %v, want one with %q and the path", err, test.want)
			}
		})
	}
}

func TestNoKeys(t *testing.T) {
	t.Parallel()
	if _, err := NewKeys(); err == nil {
		t.Error("no error without a key")
	}
}
