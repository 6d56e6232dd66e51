// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/tls"
	"crypto/x509"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/clientcmd"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/annex-dev/annex/pkg/test/expect"
)

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func TestEnsureCreatesEverythingOnce(t *testing.T) {
	t.Parallel()
	dir, opts, _ := setup(t)
	first := mustEnsure(t, dir, opts)
	for path, want := range map[string]fs.FileMode{
		dir: 0o700, first.CACert: 0o644, filepath.Join(dir, caKeyName): 0o600,
		first.Serving: 0o600, first.Admin: 0o600, first.AdminKubeconfig: 0o600,
	} {
		info, err := os.Stat(path)
		expect.NoError(t, err)
		if got := info.Mode().Perm(); got != want {
			t.Errorf("%s has mode %04o, want %04o", path, got, want)
		}
	}
	before := expect.Snapshot(t, filepath.Dir(dir))
	second := mustEnsure(t, dir, opts)
	if diff := cmp.Diff(first, second); diff != "" {
		t.Errorf("second call gave other files (-first +second):\n%s", diff)
	}
	expect.Unchanged(t, filepath.Dir(dir), before)
}

func TestCertificatesWorkTogether(t *testing.T) {
	t.Parallel()
	dir, opts, clock := setup(t)
	opts.BindAddress = net.ParseIP("192.0.2.7")
	opts.ExtraNames = []string{"annex.example.com", "192.0.2.8"}
	files := mustEnsure(t, dir, opts)
	hostname, err := os.Hostname()
	expect.NoError(t, err)
	for _, name := range []string{"localhost", "127.0.0.1", "::1", hostname, "192.0.2.7", "annex.example.com", "192.0.2.8"} {
		if err := handshake(t, files, name, clock.Now()); err != nil {
			t.Errorf("as %q: %v", name, err)
		}
	}
	if err := handshake(t, files, "example.com", clock.Now()); err == nil {
		t.Error("the serving certificate is good for a foreign name")
	}
}

func TestEnsureRenews(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		step    time.Duration
		change  func(*Options)
		serving bool
		admin   bool
	}{
		"nothing when new":            {step: 240 * day},
		"both when old":               {step: 250 * day, serving: true, admin: true},
		"both when expired":           {step: 400 * day, serving: true, admin: true},
		"both made by a clock ahead":  {step: -24 * time.Hour, serving: true, admin: true},
		"serving for one more name":   {change: func(o *Options) { o.ExtraNames = []string{"more.example.com"} }, serving: true},
		"serving for a new address":   {change: func(o *Options) { o.BindAddress = net.ParseIP("192.0.2.9") }, serving: true},
		"nothing for any address":     {change: func(o *Options) { o.BindAddress = net.IPv4zero }},
		"nothing for a name it knows": {change: func(o *Options) { o.ExtraNames = []string{"localhost", "127.0.0.1"} }},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, opts, clock := setup(t)
			clock.SetTime(epoch.Add(-48 * time.Hour)) // the CA is older than the leaves
			mustEnsure(t, dir, opts)
			clock.SetTime(epoch)
			mustRemove(t, filepath.Join(dir, servingName), filepath.Join(dir, adminName))
			files := mustEnsure(t, dir, opts)
			before := expect.Snapshot(t, filepath.Dir(dir))

			clock.SetTime(epoch.Add(tt.step))
			if tt.change != nil {
				tt.change(&opts)
			}
			mustEnsure(t, dir, opts)
			after := expect.Snapshot(t, filepath.Dir(dir))
			for path, want := range map[string]bool{
				files.CACert: false, filepath.Join(dir, caKeyName): false,
				files.Serving: tt.serving, files.Admin: tt.admin, files.AdminKubeconfig: tt.admin,
			} {
				if got := before[path] != after[path]; got != want {
					t.Errorf("%s changed: %t, want %t", filepath.Base(path), got, want)
				}
			}
			if err := handshake(t, files, "localhost", clock.Now()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestEnsureRefuses(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		damage func(t *testing.T, dir, otherDir string)
		step   time.Duration
		file   string
		want   string
	}{
		"foreign CA":           {damage: copyOther(caCertName), file: caKeyName, want: "does not match"},
		"foreign CA pair":      {damage: copyOther(caCertName, caKeyName), file: servingName, want: "is not signed by"},
		"foreign CA key":       {damage: copyOther(caKeyName), file: caKeyName, want: "does not match"},
		"foreign serving pair": {damage: copyOther(servingName), file: servingName, want: "is not signed by"},
		"foreign admin pair":   {damage: copyOther(adminName), file: adminName, want: "is not signed by"},
		"damaged CA":           {damage: truncate(caCertName, 40), file: caCertName, want: "PEM data in certificate"},
		"empty CA":             {damage: truncate(caCertName, 0), file: caCertName, want: "PEM data in certificate"},
		"damaged CA key":       {damage: truncate(caKeyName, 40), file: caKeyName, want: "PEM data in key"},
		"empty serving":        {damage: truncate(servingName, 0), file: servingName, want: "PEM data in certificate"},
		"serving without key": {damage: func(t *testing.T, dir, _ string) {
			path := filepath.Join(dir, servingName)
			raw := mustRead(t, path)
			mustWrite(t, path, raw[:strings.Index(raw, "-----BEGIN PRIVATE")])
		}, file: servingName, want: "private key"},
		"serving with the admin's key": {damage: func(t *testing.T, dir, _ string) {
			serving, admin := filepath.Join(dir, servingName), filepath.Join(dir, adminName)
			cert, key := mustRead(t, serving), mustRead(t, admin)
			mustWrite(t, serving, cert[:strings.Index(cert, "-----BEGIN PRIVATE")]+key[strings.Index(key, "-----BEGIN PRIVATE"):])
		}, file: servingName, want: "does not match"},
		"admin's pair to serve": {damage: func(t *testing.T, dir, _ string) {
			mustWrite(t, filepath.Join(dir, servingName), mustRead(t, filepath.Join(dir, adminName)))
		}, file: servingName, want: "for something else"},
		"leaf as the CA": {damage: func(t *testing.T, dir, _ string) {
			raw := mustRead(t, filepath.Join(dir, servingName))
			at := strings.Index(raw, "-----BEGIN PRIVATE")
			mustWrite(t, filepath.Join(dir, caCertName), raw[:at])
			mustWrite(t, filepath.Join(dir, caKeyName), raw[at:])
		}, file: caCertName, want: "not the certificate of a self-signed CA"},
		"lost CA":            {damage: func(t *testing.T, dir, _ string) { mustRemove(t, filepath.Join(dir, caCertName)) }, file: caCertName, want: "is missing"},
		"lost CA key":        {damage: func(t *testing.T, dir, _ string) { mustRemove(t, filepath.Join(dir, caKeyName)) }, file: caKeyName, want: "no such file"},
		"expired CA":         {step: 3651 * day, file: caCertName, want: "expired on 2035-12-31T03:04:05Z: move "},
		"CA from the future": {step: -day, file: caCertName, want: "is the clock right?"},
		"directory writable by others": {damage: func(t *testing.T, dir, _ string) {
			expect.NoError(t, os.Chmod(dir, 0o777))
		}, want: "other users may write to"},
		"directory for a file": {damage: func(t *testing.T, dir, _ string) {
			mustRemove(t, filepath.Join(dir, adminName))
			expect.NoError(t, os.Mkdir(filepath.Join(dir, adminName), 0o700))
		}, file: adminName, want: "is a directory"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, opts, clock := setup(t)
			mustEnsure(t, dir, opts)
			otherDir, otherOpts, _ := setup(t)
			mustEnsure(t, otherDir, otherOpts)
			if tt.damage != nil {
				tt.damage(t, dir, otherDir)
			}
			clock.SetTime(epoch.Add(tt.step))
			before := expect.Snapshot(t, filepath.Dir(dir))
			_, err := Ensure(dir, opts)
			expect.ErrorLine(t, err, filepath.Join(dir, tt.file), tt.want)
			expect.Unchanged(t, filepath.Dir(dir), before)
		})
	}
}

func TestEnsureContinuesAfterAKilledFirstStart(t *testing.T) {
	t.Parallel()
	for _, kept := range [][]string{{caKeyName}, {caKeyName, caCertName}, {caKeyName, caCertName, servingName}} {
		dir, opts, clock := setup(t)
		mustEnsure(t, dir, opts)
		for _, name := range []string{caKeyName, caCertName, servingName, adminName} {
			if !slices.Contains(kept, name) {
				mustRemove(t, filepath.Join(dir, name))
			}
		}
		if err := handshake(t, mustEnsure(t, dir, opts), "localhost", clock.Now()); err != nil {
			t.Errorf("after only %v was written: %v", kept, err)
		}
	}
}

func TestEnsureRemovesReadPermissionOfOthers(t *testing.T) {
	t.Parallel()
	dir, opts, _ := setup(t)
	files := mustEnsure(t, dir, opts)
	secrets := []string{dir, filepath.Join(dir, caKeyName), files.Serving, files.Admin, files.AdminKubeconfig}
	for _, path := range secrets {
		expect.NoError(t, os.Chmod(path, 0o755))
	}
	mustEnsure(t, dir, opts)
	for _, path := range secrets {
		info, err := os.Stat(path)
		expect.NoError(t, err)
		if perm := info.Mode().Perm(); perm&0o077 != 0 {
			t.Errorf("%s still has mode %04o", path, perm)
		}
	}
}

func TestLeavesDoNotOutliveTheCA(t *testing.T) {
	t.Parallel()
	dir, opts, clock := setup(t)
	mustEnsure(t, dir, opts)
	clock.SetTime(epoch.Add(3600 * day))
	files := mustEnsure(t, dir, opts)
	if files.ServingExpiry.After(files.CAExpiry) || !files.NextRenewal.After(clock.Now()) {
		t.Errorf("serving certificate expires %s, the CA %s, next renewal %s, now %s", files.ServingExpiry, files.CAExpiry, files.NextRenewal, clock.Now())
	}
}

func TestKubeconfig(t *testing.T) {
	t.Parallel()
	dir, opts, _ := setup(t)
	url := opts.ServerURL
	opts.ServerURL = ""
	if files := mustEnsure(t, dir, opts); files.AdminKubeconfig != "" {
		t.Errorf("kubeconfig %s without a URL", files.AdminKubeconfig)
	}
	mustWrite(t, opts.KubeconfigFile, "left over")
	opts.ServerURL = url
	files := mustEnsure(t, dir, opts)

	opts.ServerURL = "https://127.0.0.1:9443"
	mustEnsure(t, dir, opts)
	config, err := clientcmd.BuildConfigFromFlags("", files.AdminKubeconfig)
	expect.NoError(t, err)
	if config.Host != opts.ServerURL {
		t.Errorf("host is %s, want %s", config.Host, opts.ServerURL)
	}
	if string(config.CAData) != mustRead(t, files.CACert) {
		t.Error("the CA in the kubeconfig is not ca.crt")
	}
	pair, err := tls.X509KeyPair(config.CertData, config.KeyData)
	expect.NoError(t, err)
	cert, err := x509.ParseCertificate(pair.Certificate[0])
	expect.NoError(t, err)
	if got, want := cert.Subject.String(), "CN=annex-admin,O=system:masters"; got != want {
		t.Errorf("subject is %s, want %s", got, want)
	}
}

func TestKubeconfigHasTheServerName(t *testing.T) {
	t.Parallel()
	dir, opts, _ := setup(t)
	opts.ServerName = "annex.test"
	files := mustEnsure(t, dir, opts)
	config, err := clientcmd.BuildConfigFromFlags("", files.AdminKubeconfig)
	expect.NoError(t, err)
	if config.ServerName != opts.ServerName {
		t.Errorf("the kubeconfig asks for %q, want %q", config.ServerName, opts.ServerName)
	}
	if err := handshake(t, files, opts.ServerName, epoch); err != nil {
		t.Errorf("the serving certificate is not good for the name: %v", err)
	}
}

func setup(t *testing.T) (string, Options, *clocktesting.FakeClock) {
	t.Helper()
	parent := t.TempDir()
	clock := clocktesting.NewFakeClock(epoch)
	return filepath.Join(parent, "pki"), Options{
		KubeconfigFile: filepath.Join(parent, "admin.kubeconfig"),
		ServerURL:      "https://127.0.0.1:7443",
		Clock:          clock,
	}, clock
}

// A user with a certificate logs in as the administrator does.
func TestLoadAuthority(t *testing.T) {
	t.Parallel()
	dir, opts, clock := setup(t)
	files := mustEnsure(t, dir, opts)
	found, err := LoadAuthority(dir, clock.Now())
	expect.NoError(t, err)
	pair, err := found.Issue(ClientTemplate("alice", "a", "b"), clock.Now(), time.Hour)
	expect.NoError(t, err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(mustRead(t, files.CACert)))
	verified := x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, CurrentTime: clock.Now()}
	if _, err := pair.Cert.Verify(verified); err != nil {
		t.Error(err)
	}
	verified.CurrentTime = clock.Now().Add(2 * time.Hour)
	if _, err := pair.Cert.Verify(verified); err == nil {
		t.Error("a certificate for an hour is good after two")
	}
	for what, at := range map[string]time.Time{"expired": clock.Now().AddDate(20, 0, 0), "not valid before": clock.Now().AddDate(-1, 0, 0)} {
		if _, err := LoadAuthority(dir, at); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("error is %v, want one that contains %q", err, what)
		}
	}
	if _, err := LoadAuthority(t.TempDir(), clock.Now()); err == nil || !strings.Contains(err.Error(), caCertName) {
		t.Errorf("without an authority: %v", err)
	}
}

func TestEnsureTokenKey(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "pki")
	path, err := EnsureTokenKey(dir)
	expect.NoError(t, err)
	made := expect.Snapshot(t, dir)
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("mode of the key: %v, error %v; want 0600", info, err)
	}
	if again, err := EnsureTokenKey(dir); err != nil || again != path {
		t.Fatalf("a second time: %s, error %v", again, err)
	}
	expect.Unchanged(t, dir, made)
	expect.NoError(t, os.Chmod(path, 0o644))
	_, err = EnsureTokenKey(dir)
	expect.NoError(t, err)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode of a key that others could read: %v, error %v; want 0600", info, err)
	}
}

func TestEnsureTokenKeyKeepsADamagedOne(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	expect.NoError(t, os.Chmod(dir, 0o700))
	path := filepath.Join(dir, tokenKeyName)
	mustWrite(t, path, "rubbish")
	_, err := EnsureTokenKey(dir)
	expect.ErrorLine(t, err, path, "damaged", "service account")
	if got := mustRead(t, path); got != "rubbish" {
		t.Errorf("the damaged key was replaced by %q", got)
	}
}
