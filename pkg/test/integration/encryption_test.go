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
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	kmsapi "k8s.io/kms/apis/v2"
	"k8s.io/kms/pkg/service"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/clients"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
	"github.com/annex-dev/annex/pkg/test/testserver"
)

// secretText must not be in etcd in plain text.
const secretText = "plain-secret-text"

// provider is the YAML of a provider with keys, newest first.
func provider(kind string, names ...string) string {
	var keys []string
	for _, name := range names {
		secret := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte(name[:1]), 32))
		keys = append(keys, fmt.Sprintf("{name: %s, secret: %s}", name, secret))
	}
	return fmt.Sprintf("{%s: {keys: [%s]}}", kind, strings.Join(keys, ", "))
}

// encryptionConfig is a configuration with one rule.
func encryptionConfig(resources string, providers ...string) []byte {
	return fmt.Appendf(nil, `
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [%s]
  providers: [%s]
`, resources, strings.Join(providers, ", "))
}

// encryptedObjects are a Secret, a Store and a custom resource of one server, with
// secretText.
type encryptedObjects struct {
	*resource
	uids map[string]types.UID
}

// createEncryptedObjects creates the objects.
func createEncryptedObjects(t *testing.T, widgets *resource) *encryptedObjects {
	t.Helper()
	s := &encryptedObjects{resource: widgets, uids: map[string]types.UID{}}
	s.uids["secret"] = s.annex.createSecret(t, s.namespace, "s", secretText).UID
	s.uids["widget"] = s.create(t, "v1", "w", "spec: {text: "+secretText+"}").GetUID()
	s.uids["store"] = s.annex.newStore(t, secretText).UID
	// From then on annex does not write it.
	expect.Eventually(t, s.annex.Stores(), secretText, "the Store has a status", func(store *hostingv1alpha1.Store) bool {
		return len(store.Status.Conditions) > 0
	})
	return s
}

// read returns a problem of reading the objects.
func (s *encryptedObjects) read(t *testing.T) (problem string) {
	t.Helper()
	secret, err := s.annex.Kube.CoreV1().Secrets(s.namespace).Get(t.Context(), "s", metav1.GetOptions{})
	if err != nil || string(secret.Data["k"]) != secretText || secret.UID != s.uids["secret"] {
		return fmt.Sprintf("the secret is %v, %v", secret, err)
	}
	widget, err := s.in("v1").Get(t.Context(), "w", metav1.GetOptions{})
	if err != nil || field(widget, "spec", "text") != secretText || widget.GetUID() != s.uids["widget"] {
		return fmt.Sprintf("the custom resource is %v, %v", widget, err)
	}
	store, err := s.annex.Stores().Get(t.Context(), secretText, metav1.GetOptions{})
	if err != nil || store.UID != s.uids["store"] {
		return fmt.Sprintf("the Store is %v, %v", store, err)
	}
	return ""
}

// mustRead is read that has to succeed.
func (s *encryptedObjects) mustRead(t *testing.T, when string) {
	t.Helper()
	if problem := s.read(t); problem != "" {
		t.Errorf("%s: %s", when, problem)
	}
}

// rewrite updates all objects of these resources without changes, as `kubectl replace`.
func (s *encryptedObjects) rewrite(t *testing.T) {
	t.Helper()
	for _, resource := range []schema.GroupVersionResource{
		corev1.SchemeGroupVersion.WithResource("secrets"), s.gvr("v1"), hostingv1alpha1.SchemeGroupVersion.WithResource("stores"),
	} {
		poll.UntilNoError(t, "writing all "+resource.Resource+" again", func() error {
			all, err := s.annex.Dynamic.Resource(resource).List(t.Context(), metav1.ListOptions{})
			if err != nil {
				return err
			}
			for _, object := range all.Items {
				_, err := s.annex.Dynamic.Resource(resource).Namespace(object.GetNamespace()).Update(t.Context(), &object, metav1.UpdateOptions{})
				if err != nil {
					return err // annex writes the status of Stores
				}
			}
			return nil
		})
	}
}

// values are the values of the objects in etcd.
func (s *encryptedObjects) values(t *testing.T) map[string][]byte {
	t.Helper()
	annexEtcd, values := s.annex.etcd(t), map[string][]byte{}
	for _, key := range []string{"/annex/secrets/" + s.namespace + "/s", s.key("w"), "/annex/hosting.annex.dev/stores/" + secretText} {
		values[key] = etcdValue(t, annexEtcd, key)
	}
	return values
}

// expectStoredPrefix fails unless all values in etcd have a prefix.
func (s *encryptedObjects) expectStoredPrefix(t *testing.T, prefix string) {
	t.Helper()
	for key, value := range s.values(t) {
		if !bytes.HasPrefix(value, []byte(prefix)) || prefix != "" && bytes.Contains(value, []byte(secretText)) {
			t.Errorf("etcd holds under %s: %.60q, want it to begin with %q", key, value, prefix)
		}
	}
}

// encryptedResources are the resources of encryptedObjects.
func encryptedResources(group string) string {
	return "secrets, stores.hosting.annex.dev, widgets." + group
}

// TestEncryptionProviders writes with each provider, and reads before and after a restart.
func TestEncryptionProviders(t *testing.T) {
	t.Parallel()
	plugin := startKMS(t)
	t.Cleanup(func() { // after the tests below
		if plugin.calls.Load() == 0 && !t.Failed() {
			t.Error("the KMS plugin was not called")
		}
	})
	tests := map[string]struct{ provider, prefix string }{
		"secretbox": {provider("secretbox", "first"), "k8s:enc:secretbox:v1:first:"},
		"aescbc":    {provider("aescbc", "first"), "k8s:enc:aescbc:v1:first:"},
		"aesgcm":    {provider("aesgcm", "first"), "k8s:enc:aesgcm:v1:first:"},
		"kms":       {plugin.provider("vault"), "k8s:enc:kms:v2:vault:"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			crd := newCRD(t, anySchema)
			flag := "--encryption-provider-config=" + writeFile(t, "encryption.yaml", encryptionConfig(encryptedResources(crd.Spec.Group), test.provider, "{identity: {}}"))
			s := createEncryptedObjects(t, startAnnex(t, flag).installCRD(t, crd))
			s.expectStoredPrefix(t, test.prefix)
			config := s.annex.createConfigMap(t, s.namespace, "c", secretText)
			if stored := etcdValue(t, s.annex.etcd(t), "/annex/configmaps/"+s.namespace+"/c"); !bytes.Contains(stored, []byte(config.Data["k"])) {
				t.Errorf("a resource that is not listed is stored as %q", stored)
			}
			s.mustRead(t, "written")
			s.waitForExactUsage(t) // the status counts encrypted bytes
			s.annex = s.annex.restart(t, flag)
			s.mustRead(t, "after a restart")
			s.annex.get(t, "/readyz/kms-providers").Expect(t, http.StatusOK, "health of the encryption")
		})
	}
}

// TestEncryptionWildcards encrypts everything except resources of an earlier rule. CRDs,
// APIServices, watches and leases still work.
func TestEncryptionWildcards(t *testing.T) {
	t.Parallel()
	config := fmt.Appendf(nil, `
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- {resources: [configmaps], providers: [{identity: {}}]}
- {resources: ['*.hosting.annex.dev'], providers: [%s]}
- {resources: ['*.'], providers: [%s]}
- {resources: ['*.*'], providers: [%s]}
`, provider("secretbox", "annexes"), provider("aesgcm", "cores"), provider("aescbc", "others"))
	widgets := startAnnex(t, "--encryption-provider-config="+writeFile(t, "encryption.yaml", config)).installCRD(t, newCRD(t, anySchema))
	events := widgets.watch(t, "v1", metav1.ListOptions{})
	s := createEncryptedObjects(t, widgets)
	if event := nextEvent(t, events); event.Type != watch.Added || !strings.Contains(describe(event), "w") {
		t.Errorf("the watch received %s", describe(event))
	}
	s.mustRead(t, "written")
	s.annex.createConfigMap(t, s.namespace, "c", secretText)
	found, err := s.annex.etcd(t).Get(t.Context(), "/annex/", clientv3.WithPrefix())
	expect.NoError(t, err)
	kinds := map[string]int{}
	for _, kv := range found.Kvs {
		key, want := string(kv.Key), "k8s:enc:aescbc:v1:others:"
		switch {
		case strings.HasPrefix(key, "/annex/configmaps/"):
			want = ""
		case strings.HasPrefix(key, "/annex/hosting.annex.dev/"):
			want = "k8s:enc:secretbox:v1:annexes:"
		case regexp.MustCompile(`^/annex/(namespaces|secrets|serviceaccounts|events)/`).MatchString(key):
			want = "k8s:enc:aesgcm:v1:cores:"
		case strings.HasPrefix(key, "/annex/masterleases"), strings.HasPrefix(key, "/annex/_annex/store"), key == "compact_rev_key":
			continue
		}
		kinds[strings.Split(key, "/")[2]]++
		if !bytes.HasPrefix(kv.Value, []byte(want)) || want != "" && bytes.Contains(kv.Value, []byte(secretText)) {
			t.Errorf("etcd holds under %s: %.40q, want it to begin with %q", key, kv.Value, want)
		}
	}
	for _, kind := range []string{"apiextensions.k8s.io", "apiregistration.k8s.io", "hosting.annex.dev", "namespaces", "secrets", s.group} {
		if kinds[kind] == 0 {
			t.Errorf("etcd has no %s, only %v", kind, kinds)
		}
	}
	s.waitForExactUsage(t)
	s.annex.deleteNamespace(t, s.namespace)
	s.annex.waitForNamespaceDeleted(t, s.namespace)
}

// TestEncryptionRotation replaces a key while annex serves, in the steps of the
// documentation, then moves to a KMS and back to plain text.
func TestEncryptionRotation(t *testing.T) {
	t.Parallel()
	plugin := startKMS(t)
	crd := newCRD(t, anySchema)
	resources := encryptedResources(crd.Spec.Group)
	file := writeFile(t, "encryption.yaml", encryptionConfig(resources, "{identity: {}}"))
	flag := "--encryption-provider-config=" + file
	s := createEncryptedObjects(t, startAnnex(t, flag).installCRD(t, crd))
	for key, value := range s.values(t) {
		if bytes.HasPrefix(value, []byte("k8s:enc:")) {
			t.Errorf("before, etcd holds under %s: %q", key, value)
		}
	}
	steps := []struct {
		what      string
		providers []string
		written   string // the prefix of what is written with these
	}{
		{"plain text is encrypted", []string{provider("secretbox", "old"), "{identity: {}}"}, "k8s:enc:secretbox:v1:old:"},
		{"plain text is no longer read", []string{provider("secretbox", "old")}, "k8s:enc:secretbox:v1:old:"},
		{"every replica knows the new key", []string{provider("secretbox", "old", "new")}, "k8s:enc:secretbox:v1:old:"},
		{"the new key is used", []string{provider("secretbox", "new", "old")}, "k8s:enc:secretbox:v1:new:"},
		{"the old key is gone", []string{provider("secretbox", "new")}, "k8s:enc:secretbox:v1:new:"},
		{"to a KMS", []string{plugin.provider("vault"), provider("secretbox", "new")}, "k8s:enc:kms:v2:vault:"},
		{"back to plain text", []string{"{identity: {}}", plugin.provider("vault")}, ""},
	}
	for _, step := range steps {
		mustWrite(t, file, encryptionConfig(resources, step.providers...))
		poll.UntilDone(t, step.what, func() (bool, string) {
			// A new value shows which file is in force.
			s.annex.createSecret(t, s.namespace, "probe", secretText)
			stored := etcdValue(t, s.annex.etcd(t), "/annex/secrets/"+s.namespace+"/probe")
			if err := s.annex.Kube.CoreV1().Secrets(s.namespace).Delete(t.Context(), "probe", metav1.DeleteOptions{}); err != nil {
				return false, err.Error()
			}
			done := bytes.HasPrefix(stored, []byte(step.written)) && (step.written != "" || !bytes.HasPrefix(stored, []byte("k8s:enc:")))
			return done, fmt.Sprintf("etcd holds %.40q", stored)
		})
		s.mustRead(t, step.what+", before a rewrite")
		s.rewrite(t)
		s.expectStoredPrefix(t, step.written)
		s.mustRead(t, step.what)
	}
	s.annex = s.annex.restart(t)
	s.mustRead(t, "after a start without encryption")
}

func mustWrite(t *testing.T, path string, content []byte) {
	t.Helper()
	// As editors and mounted ConfigMaps do.
	expect.NoError(t, os.WriteFile(path+".new", content, 0o600))
	expect.NoError(t, os.Rename(path+".new", path))
}

// TestEncryptionMissingKey starts annex without the key of stored objects: reads return an
// error, and no object is lost.
func TestEncryptionMissingKey(t *testing.T) {
	t.Parallel()
	crd := newCRD(t, anySchema)
	resources := encryptedResources(crd.Spec.Group)
	file := writeFile(t, "encryption.yaml", encryptionConfig(resources, provider("secretbox", "lost"), "{identity: {}}"))
	flag := "--encryption-provider-config=" + file
	s := createEncryptedObjects(t, startAnnex(t, flag).installCRD(t, crd))
	before := s.values(t)
	s.annex.Stop(t)
	dataDir := s.annex.DataDir

	for name, config := range map[string][]byte{
		"another key":   encryptionConfig(resources, provider("secretbox", "other")),
		"no encryption": nil,
	} {
		flags := []string{}
		if config != nil {
			flags = append(flags, "--encryption-provider-config="+writeFile(t, "encryption.yaml", config))
		}
		p := startProcess(t, dataDir, flags...)
		s.annex = servingAt(t, dataDir)
		for _, path := range []string{
			"/api/v1/namespaces/" + s.namespace + "/secrets/s", "/api/v1/secrets", s.path("v1"), s.path("v1") + "/w", "/apis/hosting.annex.dev/v1alpha1/stores/" + secretText,
		} {
			poll.UntilDone(t, name+": "+path+" cannot be read", func() (bool, string) {
				got := s.annex.get(t, path)
				return got.Code == http.StatusInternalServerError && bytes.Contains(got.Body, []byte("cannot be read")), got.String()
			})
			if strings.HasSuffix(path, "/s") || strings.HasSuffix(path, "/w") {
				if got := s.annex.request(t, http.MethodDelete, path, ""); got.Code < 400 {
					t.Errorf("%s: deleting %s: %s", name, path, got)
				}
			}
		}
		s.annex.get(t, "/readyz").Expect(t, http.StatusInternalServerError, "%s: it is ready", name)
		s.annex.get(t, "/api/v1/namespaces/"+s.namespace).Expect(t, http.StatusOK, "%s: what is not encrypted", name)
		after := s.values(t)
		for key, value := range before {
			// annex may have written the status of the Store before it stopped.
			written := strings.HasSuffix(key, secretText) && bytes.HasPrefix(after[key], []byte("k8s:enc:secretbox:v1:lost:"))
			if !written && !bytes.Equal(after[key], value) {
				t.Errorf("%s: %s changed to %.40q", name, key, after[key])
			}
		}
		p.Kill()
	}
	s.annex = newAnnex(t, testserver.StartIn(t, dataDir, flag))
	s.mustRead(t, "with the key again")
}

// servingAt returns clients of a server that listens and may not be ready.
func servingAt(t *testing.T, dataDir string) *annex {
	t.Helper()
	var config *restclient.Config
	kubeconfig := filepath.Join(dataDir, "admin.kubeconfig")
	poll.UntilDone(t, "annex listens", func() (bool, string) {
		var err error
		if config, err = clientcmd.BuildConfigFromFlags("", kubeconfig); err != nil {
			return false, err.Error()
		}
		annexHTTP, err := restclient.HTTPClientFor(config)
		if err != nil {
			return false, err.Error()
		}
		got, err := clients.Send(t.Context(), annexHTTP, http.MethodGet, config.Host+"/version", "")
		return err == nil && got.Code == http.StatusOK, fmt.Sprint(got, err)
	})
	config.QPS = -1
	return newAnnex(t, &testserver.Server{URL: config.Host, DataDir: dataDir, Kubeconfig: kubeconfig, AnnexConfig: config})
}

// TestEncryptionReload breaks the file while annex serves. Metrics and stderr are global to
// a process.
func TestEncryptionReload(t *testing.T) {
	t.Parallel()
	file := writeFile(t, "encryption.yaml", encryptionConfig("secrets", provider("secretbox", "old")))
	dataDir := t.TempDir()
	p := startProcess(t, dataDir, "--encryption-provider-config="+file)
	a := clientsOf(t, p, dataDir)
	reloads := func(status string, count int) {
		t.Helper()
		poll.UntilDone(t, fmt.Sprint(count, " reloads: ", status), func() (bool, string) {
			metrics := string(a.get(t, "/metrics", "Accept", "text/plain").Body)
			found := regexp.MustCompile(`(?m)^apiserver_encryption_config_controller_automatic_reloads_total\{.*status="` + status + `".*\} (\d+)$`).FindStringSubmatch(metrics)
			return found != nil && found[1] == fmt.Sprint(count), fmt.Sprint(found)
		})
	}
	n := 0
	written := func(prefix string) {
		t.Helper()
		n++
		a.createSecret(t, "default", fmt.Sprint("s", n), secretText)
		if stored := etcdValue(t, a.etcd(t), fmt.Sprint("/annex/secrets/default/s", n)); !bytes.HasPrefix(stored, []byte(prefix)) {
			t.Errorf("etcd holds %.40q, want it to begin with %s", stored, prefix)
		}
	}
	written("k8s:enc:secretbox:v1:old:")
	mustWrite(t, file, encryptionConfig("secrets", "{secretbox: {keys: [{name: new, secret: c2hvcnQ=}]}}"))
	reloads("failure", 1)
	written("k8s:enc:secretbox:v1:old:")
	// stderr comes through a pipe.
	poll.UntilDone(t, "stderr names the field", func() (bool, string) {
		log := p.Stderr()
		return strings.Contains(log, file+":6: resources[0].providers[0].secretbox.keys[0].secret: "), log
	})
	if log := p.Stderr(); strings.Contains(log, "c2hvcnQ=") {
		t.Errorf("stderr contains the secret: %s", log)
	}
	expect.NoError(t, os.Remove(file))
	reloads("failure", 2)
	written("k8s:enc:secretbox:v1:old:")
	mustWrite(t, file, encryptionConfig("secrets", provider("secretbox", "new", "old")))
	reloads("success", 1)
	written("k8s:enc:secretbox:v1:new:")
	if lines := strings.Count(p.Stderr(), "\n"); lines > 4 {
		t.Errorf("%d lines on stderr: %s", lines, p.Stderr())
	}
	expect.NoError(t, p.Stop(poll.Timeout))
}

// TestEncryptionWithoutReload uses the configuration of the start.
func TestEncryptionWithoutReload(t *testing.T) {
	t.Parallel()
	file := writeFile(t, "encryption.yaml", encryptionConfig("secrets", provider("secretbox", "old")))
	flag := "--encryption-provider-config=" + file
	a := startAnnex(t, flag, "--encryption-provider-config-automatic-reload=false")
	mustWrite(t, file, encryptionConfig("secrets", provider("secretbox", "new", "old")))
	for i, prefix := range []string{"k8s:enc:secretbox:v1:old:", "k8s:enc:secretbox:v1:new:"} {
		name := fmt.Sprint("s", i)
		a.createSecret(t, "default", name, secretText)
		if stored := etcdValue(t, a.etcd(t), "/annex/secrets/default/"+name); !bytes.HasPrefix(stored, []byte(prefix)) {
			t.Errorf("etcd holds %.40q, want it to begin with %s", stored, prefix)
		}
		a = a.restart(t, flag)
	}
}

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
	expect.Error(t, err, "transformer")
	a.createConfigMap(t, "default", "c", "text")

	plugin.run(t)
	clientsOf(t, p, dataDir) // ready
	a.createSecret(t, "default", "s", secretText)
	if stored := etcdValue(t, a.etcd(t), "/annex/secrets/default/s"); !bytes.HasPrefix(stored, []byte("k8s:enc:kms:v2:vault:")) {
		t.Errorf("etcd holds %.40q", stored)
	}
	expect.NoError(t, p.Stop(poll.Timeout))
}
