// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kmsapi "k8s.io/kms/apis/v2"
	"k8s.io/kms/pkg/service"

	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// kms is a KMS plugin: a service on a unix socket that encrypts annex's keys with its own
// keys.
type kms struct {
	socket string
	keyID  atomic.Pointer[string]
	calls  atomic.Int64
}

var _ service.Service = &kms{}

// newKMS returns a plugin that is not started.
func newKMS(t *testing.T) *kms {
	t.Helper()
	// Paths of sockets must be short.
	dir, err := os.MkdirTemp("", "kms-")
	expect.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	k := &kms{socket: filepath.Join(dir, "kms.sock")}
	k.use("key-1")
	return k
}

// use changes the key of the plugin.
func (k *kms) use(keyID string) { k.keyID.Store(&keyID) }

func (k *kms) run(t *testing.T) {
	t.Helper()
	listener, err := net.Listen("unix", k.socket)
	expect.NoError(t, err)
	server := grpc.NewServer()
	kmsapi.RegisterKeyManagementServiceServer(server, service.NewGRPCService(k.socket, time.Second, k))
	go server.Serve(listener)
	t.Cleanup(server.Stop)
}

func startKMS(t *testing.T) *kms {
	t.Helper()
	k := newKMS(t)
	k.run(t)
	return k
}

// provider is the YAML of the plugin.
func (k *kms) provider(name string) string {
	return fmt.Sprintf("{kms: {apiVersion: v2, name: %s, endpoint: 'unix://%s', timeout: 3s}}", name, k.socket)
}

func aead(keyID string) (cipher.AEAD, error) {
	key := sha256.Sum256([]byte("of the test: " + keyID))
	block, err := aes.NewCipher(key[:])
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// Encrypt encrypts a key of annex.
func (k *kms) Encrypt(_ context.Context, _ string, data []byte) (*service.EncryptResponse, error) {
	k.calls.Add(1)
	keyID := *k.keyID.Load()
	sealer, err := aead(keyID)
	if err != nil {
		return nil, err
	}
	nonce := make([]byte, sealer.NonceSize())
	if _, err := rand.Read(nonce); err != nil {
		return nil, err
	}
	return &service.EncryptResponse{Ciphertext: sealer.Seal(nonce, nonce, data, nil), KeyID: keyID}, nil
}

// Decrypt decrypts a key of annex.
func (k *kms) Decrypt(_ context.Context, _ string, request *service.DecryptRequest) ([]byte, error) {
	opener, err := aead(request.KeyID)
	if err != nil {
		return nil, err
	}
	nonce, sealed := request.Ciphertext[:opener.NonceSize()], request.Ciphertext[opener.NonceSize():]
	return opener.Open(nil, nonce, sealed, nil)
}

// Status reports the key in use.
func (k *kms) Status(context.Context) (*service.StatusResponse, error) {
	return &service.StatusResponse{Version: "v2", Healthz: "ok", KeyID: *k.keyID.Load()}, nil
}

// TestEncryptionKMSKeyRotation changes the key inside the KMS; the configuration is the same.
func TestEncryptionKMSKeyRotation(t *testing.T) {
	t.Parallel()
	plugin := startKMS(t)
	crd := newCRD(t, anySchema)
	flag := "--encryption-provider-config=" + writeFile(t, "encryption.yaml", encryptionConfig(encryptedResources(crd.Spec.Group), plugin.provider("vault")))
	s := createEncryptedObjects(t, startAnnex(t, flag).installCRD(t, crd))
	for key, value := range s.values(t) {
		if !bytes.Contains(value, []byte("key-1")) {
			t.Errorf("%s is not encrypted with the first key: %.80q", key, value)
		}
	}
	plugin.use("key-2")
	// annex checks the key at its start, and once a minute.
	s.annex = s.annex.restart(t, flag)
	s.mustRead(t, "with another key in the KMS")
	s.rewrite(t)
	for key, value := range s.values(t) {
		if !bytes.Contains(value, []byte("key-2")) || bytes.Contains(value, []byte("key-1")) {
			t.Errorf("%s is not encrypted with the second key: %.80q", key, value)
		}
	}
	s.mustRead(t, "written again")
}

// TestEncryptionKMSUnavailable starts annex before the plugin.
func TestEncryptionKMSUnavailable(t *testing.T) {
	t.Parallel()
	plugin := newKMS(t)
	dataDir := t.TempDir()
	file := writeFile(t, "encryption.yaml", encryptionConfig("secrets", plugin.provider("vault")))
	p := startProcess(t, dataDir, "--encryption-provider-config="+file)
	a := servingAt(t, dataDir)
	poll.UntilDone(t, "only the plugin fails readiness", func() (bool, string) {
		ready, plugins, live := a.get(t, "/readyz"), a.get(t, "/readyz/kms-providers"), a.get(t, "/livez")
		done := ready.Code == http.StatusInternalServerError && plugins.Code == http.StatusInternalServerError && live.Code == http.StatusOK &&
			bytes.Count(ready.Body, []byte("[-]")) == 1
		return done, fmt.Sprint(ready, plugins, live)
	})
	poll.UntilDone(t, "the default namespace is there", func() (bool, string) {
		got := a.get(t, "/api/v1/namespaces/default")
		return got.Code == http.StatusOK, got.String()
	})
	_, err := a.Kube.CoreV1().Secrets("default").Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}}, metav1.CreateOptions{})
	wantError(t, err, "transformer")
	a.createConfigMap(t, "default", "c", "text")

	plugin.run(t)
	clientsOf(t, p, dataDir) // ready
	a.createSecret(t, "default", "s", secretText)
	if stored := etcdValue(t, a.etcd(t), "/annex/secrets/default/s"); !bytes.HasPrefix(stored, []byte("k8s:enc:kms:v2:vault:")) {
		t.Errorf("etcd holds %.40q", stored)
	}
	terminate(t, p)
}
