// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/clientcmd"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/annex-dev/annex/pkg/datadir"
	"github.com/annex-dev/annex/pkg/pki"
	"github.com/annex-dev/annex/pkg/test/expect"
)

const serverURL = "https://127.0.0.1:7443"

// newDataDir returns the data directory of an annex that runs: it has exclusive use of it.
func newDataDir(t *testing.T, wanted pki.Options) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "data")
	dir, err := datadir.Open(path)
	expect.NoError(t, err)
	t.Cleanup(func() { dir.Close() })
	wanted.KubeconfigFile, wanted.ServerURL = dir.AdminKubeconfig(), serverURL
	_, err = pki.Ensure(dir.PKIDir(), wanted)
	expect.NoError(t, err)
	return path
}

func execute(out io.Writer, args ...string) error {
	cmd := NewCommand(out)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(append([]string{}, args...)) // nil would be the arguments of the test
	return cmd.Execute()
}

func TestKubeconfig(t *testing.T) {
	t.Parallel()
	dir := newDataDir(t, pki.Options{ServerName: "annex.example"})
	for name, test := range map[string]struct {
		args   []string
		groups []string
		server string
		ttl    time.Duration
	}{
		"a user for a day":           {nil, nil, serverURL, 24 * time.Hour},
		"two groups, an hour":        {[]string{"--group=a, with a comma", "--group=b", "--ttl=1h"}, []string{"a, with a comma", "b"}, serverURL, time.Hour},
		"an administrator, anywhere": {[]string{"--group=system:masters", "--server=https://annex.example:443"}, []string{"system:masters"}, "https://annex.example:443", 24 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			expect.NoError(t, execute(&out, append(test.args, "--data-dir="+dir, "--user=alice")...))
			config, err := clientcmd.RESTConfigFromKubeConfig(out.Bytes())
			expect.NoError(t, err)
			if config.Host != test.server || config.ServerName != "annex.example" {
				t.Errorf("leads to %s, which proves to be %q", config.Host, config.ServerName)
			}
			leaf := verify(t, config.CertData, config.KeyData, config.CAData)
			if leaf.Subject.CommonName != "alice" || !sets.New(leaf.Subject.Organization...).Equal(sets.New(test.groups...)) {
				t.Errorf("logs in as %s", leaf.Subject)
			}
			if left := time.Until(leaf.NotAfter); left > test.ttl || left < test.ttl-5*time.Minute {
				t.Errorf("is good for %s, want %s", left, test.ttl)
			}
		})
	}
}

// verify returns the certificate if the authority verifies it.
func verify(t *testing.T, certPEM, keyPEM, authority []byte) *x509.Certificate {
	t.Helper()
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	expect.NoError(t, err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	_, err = pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	expect.NoError(t, err)
	return pair.Leaf
}

func TestKubeconfigRefused(t *testing.T) {
	t.Parallel()
	dir := newDataDir(t, pki.Options{})
	expiring := newDataDir(t, pki.Options{CALifetime: time.Hour})
	never := t.TempDir()
	foreign := t.TempDir()
	expect.NoError(t, os.WriteFile(filepath.Join(foreign, "letter.txt"), nil, 0o600))
	lost := newDataDir(t, pki.Options{})
	expect.NoError(t, os.Remove(filepath.Join(lost, "pki", "ca.key")))
	unled := newDataDir(t, pki.Options{})
	expect.NoError(t, os.Remove(filepath.Join(unled, "admin.kubeconfig")))
	in := func(dir string, args ...string) []string { return append(args, "--data-dir="+dir) }
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"no user":                  {in(dir), "--user is required"},
		"user of spaces":           {in(dir, "--user=  "), "--user must not be empty"},
		"user with a space":        {in(dir, "--user= alice"), "begins or ends"},
		"user with a line break":   {in(dir, "--user=alice\nbob"), "cannot be printed"},
		"user of broken UTF-8":     {in(dir, "--user=\xff"), "cannot be printed"},
		"long user":                {in(dir, "--user="+strings.Repeat("a", 254)), "254 bytes"},
		"anonymous":                {in(dir, "--user=system:anonymous"), "system:anonymous"},
		"service account":          {in(dir, "--user=system:serviceaccount:default:x"), "kubectl create token"},
		"group of nothing":         {in(dir, "--user=a", "--group="), "--group must not be empty"},
		"group of the anonymous":   {in(dir, "--user=a", "--group=system:unauthenticated"), "unauthenticated requests"},
		"group of all users":       {in(dir, "--user=a", "--group=system:authenticated"), "every authenticated user"},
		"group of service account": {in(dir, "--user=a", "--group=system:serviceaccounts:x"), "kubectl create token"},
		"group given twice":        {in(dir, "--user=a", "--group=b", "--group=b"), "twice"},
		"no time":                  {in(dir, "--user=a", "--ttl=0s"), "--ttl 0s"},
		"the past":                 {in(dir, "--user=a", "--ttl=-1h"), "--ttl -1h"},
		"unlimited":                {in(dir, "--user=a", "--ttl=100000h"), "--ttl 100000h"},
		"longer than the CA":       {in(expiring, "--user=a"), "--ttl 24h0m0s: annex's CA expires before, on"},
		"server without TLS":       {in(dir, "--user=a", "--server=http://127.0.0.1:7443"), "--server"},
		"server that is no URL":    {in(dir, "--user=a", "--server=here"), "--server"},
		"no data dir":              {in("", "--user=a"), "--data-dir must not be empty"},
		"data dir not there":       {in(filepath.Join(dir, "no"), "--user=a"), "--data-dir"},
		"annex never started":      {in(never, "--user=a"), "never started"},
		"not annex's":              {in(foreign, "--user=a"), "not annex's"},
		"lost key":                 {in(lost, "--user=a"), "ca.key"},
		"no address":               {in(unled, "--user=a"), "--server"},
		"an argument":              {in(dir, "--user=a", "b"), "b"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			err := execute(&out, test.args...)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error is %v, want one that contains %q", err, test.want)
			}
			if out.Len() > 0 {
				t.Errorf("printed %s", out.String())
			}
		})
	}
	if err := execute(io.Discard, in(unled, "--user=a", "--server="+serverURL)...); err != nil {
		t.Errorf("without admin.kubeconfig, but with --server: %v", err)
	}
	if entries, err := os.ReadDir(never); err != nil || len(entries) > 0 {
		t.Errorf("a folder that is not annex's has now %v, %v", entries, err)
	}
}

// A shell creates files that all users can read.
func TestKubeconfigIsPrivate(t *testing.T) {
	t.Parallel()
	dir := newDataDir(t, pki.Options{})
	file, err := os.OpenFile(filepath.Join(t.TempDir(), "alice.kubeconfig"), os.O_CREATE|os.O_WRONLY, 0o644)
	expect.NoError(t, err)
	defer file.Close()
	expect.NoError(t, execute(file, "--data-dir="+dir, "--user=alice"))
	info, err := file.Stat()
	if err != nil || info.Mode().Perm() != 0o600 || info.Size() == 0 {
		t.Errorf("the file has %v, %v", info.Mode(), err)
	}
}

func TestKubeconfigAfterTheAuthority(t *testing.T) {
	t.Parallel()
	late := &options{dataDir: newDataDir(t, pki.Options{}), user: "a", ttl: time.Hour, clock: clocktesting.NewFakePassiveClock(time.Now().AddDate(20, 0, 0))}
	if err := late.run(io.Discard); err == nil || !strings.Contains(err.Error(), "expired") {
		t.Errorf("an authority that expired signs: %v", err)
	}
}
