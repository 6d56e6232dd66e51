// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/freeport"
	"github.com/annex-dev/annex/pkg/test/poll"
	"github.com/annex-dev/annex/pkg/test/process"
)

// TestRefusesToStart starts annex with invalid configurations. It must exit, with code 1
// and one line that names what to change.
func TestRefusesToStart(t *testing.T) {
	t.Parallel()
	running := sharedServer(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	expect.NoError(t, err)
	t.Cleanup(func() { taken.Close() }) // the tests below run after this function
	_, takenPort, err := net.SplitHostPort(taken.Addr().String())
	expect.NoError(t, err)
	web := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(web.Close)
	down := "http://" + freeport.Refusing(t)
	tooOld := startOldEtcd(t)
	expired := writePair(t, time.Now().Add(-time.Hour))
	valid := writePair(t, time.Now().Add(time.Hour))
	file := func(content string) string { return writeFile(t, content) }
	notADir, junk := file("x"), file("{{{")
	authorizers := file("apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:\n- {type: RBAC, name: rbac}\n- {type: ABAC, name: abac}\n")
	foreign := t.TempDir()
	expect.NoError(t, os.WriteFile(filepath.Join(foreign, "thesis.txt"), []byte("years of work"), 0o600))

	tests := map[string]struct {
		flags []string
		// names are the words that the line must contain.
		names []string
	}{
		"data dir is a file":           {flags: []string{"--data-dir=" + notADir}, names: []string{"--data-dir", notADir}},
		"data dir is empty":            {flags: []string{"--data-dir="}, names: []string{"--data-dir"}},
		"data dir cannot be created":   {flags: []string{"--data-dir=/proc/annex"}, names: []string{"--data-dir", "/proc/annex"}},
		"data dir is foreign":          {flags: []string{"--data-dir=" + foreign}, names: []string{"--data-dir", foreign, "thesis.txt"}},
		"data dir is in use":           {flags: []string{"--data-dir=" + running.dataDir}, names: []string{"--data-dir", running.dataDir, "in use"}},
		"port in use":                  {flags: []string{"--secure-port=" + takenPort}, names: []string{"--secure-port", takenPort, "in use"}},
		"port out of range":            {flags: []string{"--secure-port=70000"}, names: []string{"--secure-port"}},
		"address of another machine":   {flags: []string{"--bind-address=192.0.2.1"}, names: []string{"--bind-address", "192.0.2.1"}},
		"unknown flag":                 {flags: []string{"--no-such-flag"}, names: []string{"--no-such-flag"}},
		"invalid flag value":           {flags: []string{"--secure-port=many"}, names: []string{"--secure-port", "many"}},
		"argument":                     {flags: []string{"now"}, names: []string{"now"}},
		"unknown feature gate":         {flags: []string{"--feature-gates=NoSuchGate=true"}, names: []string{"feature", "NoSuchGate"}},
		"unknown admission plugin":     {flags: []string{"--enable-admission-plugins=NoSuchPlugin"}, names: []string{"enable-admission-plugins", "NoSuchPlugin"}},
		"emulation of an old version":  {flags: []string{"--emulated-version=1.20"}, names: []string{"1.20"}},
		"emulation of a newer version": {flags: []string{"--emulated-version=9.9"}, names: []string{"9.9"}},
		"certificate without key":      {flags: []string{"--tls-cert-file=" + valid.cert}, names: []string{"--tls-private-key-file"}},
		"certificate is missing":       {flags: []string{"--tls-cert-file=/nowhere.crt", "--tls-private-key-file=/nowhere.key"}, names: []string{"--tls-cert-file", "/nowhere.crt"}},
		"certificate has expired":      {flags: []string{"--tls-cert-file=" + expired.cert, "--tls-private-key-file=" + expired.key}, names: []string{"--tls-cert-file", expired.cert, "expired"}},
		"certificate of another key":   {flags: []string{"--tls-cert-file=" + valid.cert, "--tls-private-key-file=" + expired.key}, names: []string{"--tls-private-key-file", expired.key}},
		"certificate is junk":          {flags: []string{"--tls-cert-file=" + junk, "--tls-private-key-file=" + valid.key}, names: []string{"--tls-cert-file", junk}},
		"client CA is missing":         {flags: []string{"--client-ca-file=/nowhere.crt"}, names: []string{"--client-ca-file", "/nowhere.crt"}},
		"client CA is junk":            {flags: []string{"--client-ca-file=" + junk}, names: []string{"--client-ca-file", junk}},
		"tokens are not there":         {flags: []string{"--token-auth-file=/nowhere.csv"}, names: []string{"--token-auth-file", "/nowhere.csv"}},
		"tokens are junk":              {flags: []string{"--token-auth-file=" + file("only-a-token\n")}, names: []string{"--token-auth-file"}},
		"audit policy is missing":      {flags: []string{"--audit-policy-file=/nowhere.yaml", "--audit-log-path=-"}, names: []string{"audit", "/nowhere.yaml"}},
		"encryption config is junk":    {flags: []string{"--encryption-provider-config=" + junk}, names: []string{"--encryption-provider-config", junk}},
		"admission config is junk":     {flags: []string{"--admission-control-config-file=" + junk}, names: []string{"--admission-control-config-file"}},
		"authorizer is unknown":        {flags: []string{"--authorization-config=" + authorizers}, names: []string{"--authorization-config: " + authorizers + ":5: authorizers[1].type", "ABAC"}},
		"modes beside authorizers":     {flags: []string{"--authorization-mode=RBAC", "--authorization-config=" + authorizers}, names: []string{"--authorization-mode", "--authorization-config"}},
		"tracing config is missing":    {flags: []string{"--tracing-config-file=/nowhere.yaml"}, names: []string{"tracing-config-file", "/nowhere.yaml"}},
		"etcd is down":                 {flags: []string{"--etcd-servers=" + down}, names: []string{"--etcd-servers", down, "refused"}},
		"etcd is too old":              {flags: []string{"--etcd-servers=" + tooOld}, names: []string{"--etcd-servers", tooOld, "3.4.0", "too old"}},
		"etcd is a web server":         {flags: []string{"--etcd-servers=" + web.URL}, names: []string{"--etcd-servers", web.URL}},
		"etcd is not a URL":            {flags: []string{"--etcd-servers=::"}, names: []string{"--etcd-servers"}},
		"etcd CA is missing":           {flags: []string{"--etcd-servers=https://127.0.0.1:1", "--etcd-cafile=/nowhere.crt"}, names: []string{"--etcd-cafile", "/nowhere.crt"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before := snapshot(t, foreign)
			flags := append([]string{"serve", "--data-dir=" + filepath.Join(t.TempDir(), "data"), "--secure-port=0"}, test.flags...)
			refuses(t, exec.Command(programs.annex, flags...), test.names...)
			if diff := cmp.Diff(before, snapshot(t, foreign)); diff != "" {
				t.Errorf("the foreign folder changed:\n%s", diff)
			}
		})
	}
	t.Cleanup(func() {
		if code, err := running.Wait(canceled(t)); err == nil {
			t.Errorf("the annex that uses the data directory exited with code %d", code)
		}
	})
}

// TestRefusesADamagedDataDir starts annex on its own data directory with files that are replaced,
// expired, damaged or missing.
func TestRefusesADamagedDataDir(t *testing.T) {
	t.Parallel()
	dataDir := filepath.Join(t.TempDir(), "data")
	s := startServerIn(t, dataDir)
	s.kubectl.run(t, "create", "configmap", "kept", "-n", "default")
	stop(t, s.Annex)

	foreign := writePair(t, time.Now().Add(time.Hour))
	certificate, err := os.ReadFile(foreign.cert)
	expect.NoError(t, err)
	key, err := os.ReadFile(foreign.key)
	expect.NoError(t, err)
	expiredCA := writePair(t, time.Now().Add(-time.Hour))
	old, err := os.ReadFile(expiredCA.cert)
	expect.NoError(t, err)
	oldKey, err := os.ReadFile(expiredCA.key)
	expect.NoError(t, err)
	tests := map[string]map[string][]byte{ // by the file in the message: replaced files, nil to remove one
		"pki/serving.pem": {"pki/serving.pem": append(certificate, key...)},
		"pki/admin.pem":   {"pki/admin.pem": []byte("junk")},
		"pki/ca.key":      {"pki/ca.key": key},
		"pki/ca.crt":      {"pki/ca.crt": nil},
		"ca.crt":          {"pki/ca.crt": old, "pki/ca.key": oldKey},
		"annex-data.json": {"annex-data.json": []byte("junk")},
		"etcd":            {"etcd/member/snap/db": []byte("junk")},
	}
	// Sequential, because they share the folder.
	for blamed, replacements := range tests {
		t.Run(strings.ReplaceAll(blamed, "/", "-"), func(t *testing.T) {
			for name, content := range replacements {
				restore := replace(t, filepath.Join(dataDir, name), content)
				defer restore()
			}
			before := snapshot(t, dataDir)
			refuses(t, exec.Command(programs.annex, "serve", "--data-dir="+dataDir, "--secure-port=0"), "--data-dir", blamed)
			if diff := cmp.Diff(before, snapshot(t, dataDir)); diff != "" {
				t.Errorf("the data directory changed:\n%s", diff)
			}
		})
	}

	// With all files restored annex starts.
	again := startServerIn(t, dataDir)
	again.kubectl.run(t, "get", "configmap", "kept", "-n", "default")
}

// TestRefusesAnUnreadableDataDir runs annex as a user without access to the data directory.
func TestRefusesAnUnreadableDataDir(t *testing.T) {
	t.Parallel()
	home, err := os.MkdirTemp("", "annex-e2e-")
	expect.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(home) })
	dataDir := filepath.Join(home, "data")
	expect.NoError(t, os.Mkdir(dataDir, 0o700))
	command := exec.Command(programs.annex, "serve", "--data-dir="+dataDir, "--secure-port=0")
	if os.Geteuid() == 0 {
		// root can read everything, so run as another user.
		const unprivileged = 65534
		command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: unprivileged, Gid: unprivileged}}
		command.Path = filepath.Join(home, "annex")
		copyProgram(t, programs.annex, command.Path)
		expect.NoError(t, os.Chmod(home, 0o755))
		command.Dir = home
	} else {
		expect.NoError(t, os.Chmod(dataDir, 0))
	}
	refuses(t, command, "--data-dir", dataDir, "permission denied")
}

// refuses runs annex, which must exit as TestRefusesToStart describes.
func refuses(t *testing.T, command *exec.Cmd, names ...string) {
	t.Helper()
	annex, err := process.StartCommand(command)
	expect.NoError(t, err)
	defer annex.Kill()
	ctx, cancel := context.WithTimeout(t.Context(), poll.Timeout)
	defer cancel()
	code, err := annex.Wait(ctx)
	expect.NoError(t, err)
	line := annex.Stderr()
	if code != 1 {
		t.Errorf("the exit code is %d: %s", code, line)
	}
	if strings.Count(line, "\n") != 1 || !strings.HasSuffix(line, "\n") {
		t.Errorf("stderr is not one line:\n%s", line)
	}
	for _, name := range names {
		if !strings.Contains(line, name) {
			t.Errorf("stderr does not name %q: %s", name, line)
		}
	}
}

// snapshot describes every file below a folder, except the lock, which a refused annex may have
// held briefly.
func snapshot(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.Name() == "lock" {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		description := info.Mode().String()
		if info.Mode().IsRegular() {
			description += " " + info.ModTime().String() + " " + big.NewInt(info.Size()).String()
		}
		found[path] = description
		return nil
	})
	expect.NoError(t, err)
	return found
}

// replace writes a file, or renames it if content is nil, and returns a function that undoes
// this.
func replace(t *testing.T, path string, content []byte) func() {
	t.Helper()
	away := filepath.Join(t.TempDir(), "away")
	expect.NoError(t, os.Rename(path, away))
	if content != nil {
		expect.NoError(t, os.WriteFile(path, content, 0o600))
	}
	return func() {
		expect.Succeeds(t, os.Rename(away, path))
	}
}

func writeFile(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	expect.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

func copyProgram(t *testing.T, from, to string) {
	t.Helper()
	source, err := os.Open(from)
	expect.NoError(t, err)
	defer source.Close()
	target, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	expect.NoError(t, err)
	if _, err := io.Copy(target, source); err != nil {
		t.Fatal(err)
	}
	expect.NoError(t, target.Close())
}

// pair are the paths of a certificate and its key.
type pair struct{ cert, key string }

// writePair writes a self-signed certificate with an expiry time.
func writePair(t *testing.T, until time.Time) pair {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	expect.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "another host"},
		NotBefore:             until.Add(-48 * time.Hour),
		NotAfter:              until,
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	expect.NoError(t, err)
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	expect.NoError(t, err)
	var certPEM, keyPEM bytes.Buffer
	expect.NoError(t, pem.Encode(&certPEM, &pem.Block{Type: "CERTIFICATE", Bytes: certificate}))
	expect.NoError(t, pem.Encode(&keyPEM, &pem.Block{Type: "PRIVATE KEY", Bytes: encoded}))
	return pair{cert: writeFile(t, certPEM.String()), key: writeFile(t, keyPEM.String())}
}

// oldEtcd reports the version of an outdated etcd.
type oldEtcd struct {
	etcdserverpb.UnimplementedMaintenanceServer
}

// Status returns the version.
func (oldEtcd) Status(context.Context, *etcdserverpb.StatusRequest) (*etcdserverpb.StatusResponse, error) {
	return &etcdserverpb.StatusResponse{Version: "3.4.0", Leader: 1}, nil
}

func startOldEtcd(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	expect.NoError(t, err)
	server := grpc.NewServer()
	etcdserverpb.RegisterMaintenanceServer(server, oldEtcd{})
	go server.Serve(listener)
	t.Cleanup(server.Stop)
	return "http://" + listener.Addr().String()
}

// canceled returns a canceled context, for a check without waiting.
func canceled(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	cancel()
	return ctx
}
