// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pki creates and renews the certificates of a standalone annex: a CA, the serving
// certificate, and the administrator's client certificate with its kubeconfig.
//
// It neither uses nor overwrites files that annex did not create: a replaced or damaged
// file is an error that names it.
//
// A certificate and its key are in one file, so that one rename replaces both: no reader,
// and no start after a kill -9, finds a pair that does not match.
package pki

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

const (
	caCertName  = "ca.crt"
	caKeyName   = "ca.key"
	servingName = "serving.pem"
	adminName   = "admin.pem"

	// AdminUser is the user name of the administrator's client certificate.
	AdminUser = "annex-admin"
	// AdminGroup is its group, which authorization always allows.
	AdminGroup = "system:masters"

	day                 = 24 * time.Hour
	defaultCALifetime   = 3650 * day
	defaultLeafLifetime = 365 * day

	// backdate lets clients with slow clocks use a new certificate.
	backdate = 5 * time.Minute

	dirMode  fs.FileMode = 0o700
	keyMode  fs.FileMode = 0o600
	certMode fs.FileMode = 0o644
)

// Options configure the certificates.
type Options struct {
	// BindAddress is the address annex listens on, which becomes a name of the serving
	// certificate unless it is empty or unspecified.
	BindAddress net.IP
	// ExtraNames are more DNS names or IP addresses for the serving certificate.
	ExtraNames []string

	// KubeconfigFile is the path of the administrator's kubeconfig, and ServerURL the
	// address in it. It is written only if both are set.
	KubeconfigFile string
	ServerURL      string
	// ServerName is the tls-server-name of the kubeconfig, for an address that otherwise
	// presents another certificate. It becomes a name of the serving certificate. Empty
	// means the address.
	ServerName string

	// CALifetime defaults to 10 years and LeafLifetime to one.
	CALifetime, LeafLifetime time.Duration
	// Clock defaults to the real one.
	Clock clock.Clock
}

func (o Options) withDefaults() Options {
	if o.CALifetime == 0 {
		o.CALifetime = defaultCALifetime
	}
	if o.LeafLifetime == 0 {
		o.LeafLifetime = defaultLeafLifetime
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return o
}

// Files are the files of Ensure.
type Files struct {
	CACert                   string
	Serving, Admin           string // a certificate and its key
	AdminKubeconfig          string // empty if none was requested
	ServingExpiry, CAExpiry  time.Time
	AdminExpiry, NextRenewal time.Time
}

// Ensure creates in dir the files that are missing, and renews certificates that are due
// or have other names. Files that annex did not create are an error. It is idempotent.
func Ensure(dir string, opts Options) (*Files, error) {
	files, err := ensure(dir, opts.withDefaults())
	if err != nil {
		return nil, fmt.Errorf("certificates: %w", err)
	}
	files.observe()
	return files, nil
}

func ensure(dir string, opts Options) (*Files, error) {
	if err := prepareDir(dir); err != nil {
		return nil, err
	}
	authority, err := ensureCA(dir, opts)
	if err != nil {
		return nil, err
	}
	files := &Files{
		CACert: filepath.Join(dir, caCertName), Serving: filepath.Join(dir, servingName), Admin: filepath.Join(dir, adminName),
	}
	names := append(slices.Clone(opts.ExtraNames), opts.ServerName)
	serving, err := authority.ensureLeaf(files.Serving, ServingTemplate(opts.BindAddress, names...), opts)
	if err != nil {
		return nil, err
	}
	admin, err := authority.ensureLeaf(files.Admin, ClientTemplate(AdminUser, AdminGroup), opts)
	if err != nil {
		return nil, err
	}
	files.CAExpiry, files.ServingExpiry, files.AdminExpiry = authority.cert.NotAfter, serving.Cert.NotAfter, admin.Cert.NotAfter
	files.NextRenewal = earlier(renewalTime(serving.Cert), renewalTime(admin.Cert))
	if opts.KubeconfigFile != "" && opts.ServerURL != "" {
		if err := writeKubeconfig(opts, authority, admin); err != nil {
			return nil, err
		}
		files.AdminKubeconfig = opts.KubeconfigFile
	}
	return files, nil
}

// prepareDir creates the directory. It removes permissions of other users, but rejects a
// directory that they may write to.
func prepareDir(dir string) error {
	if err := os.MkdirAll(dir, dirMode); err != nil {
		return fmt.Errorf("create %s: %w", dir, err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("read permissions of %s: %w", dir, err)
	}
	perm := info.Mode().Perm()
	if perm&0o022 != 0 {
		return fmt.Errorf("other users may write to %s (mode %04o): check its content, then run chmod 700", dir, perm)
	}
	return restrict(dir, perm, dirMode)
}

// restrict removes permissions that are not in want.
func restrict(path string, perm, want fs.FileMode) error {
	if perm&^want == 0 {
		return nil
	}
	if err := os.Chmod(path, perm&want); err != nil {
		return fmt.Errorf("remove permissions of other users from %s: %w", path, err)
	}
	klog.Background().Info("Removed permissions of other users", "path", path, "mode", fmt.Sprintf("%04o", perm))
	return nil
}

// renewalTime returns the time from which on less than a third of a certificate's life remains, not counting
// backdate.
func renewalTime(cert *x509.Certificate) time.Time {
	return cert.NotAfter.Add(-(cert.NotAfter.Sub(cert.NotBefore) - backdate) / 3)
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func exists(path string) (bool, error) {
	_, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for %s: %w", path, err)
	}
	return true, nil
}

const certFlag, keyFlag = "--tls-cert-file", "--tls-private-key-file"

// CheckServingPair checks a serving certificate that the user provides. Errors name the
// flag and the file.
func CheckServingPair(certFile, keyFile string, now time.Time) error {
	rawCert, err := os.ReadFile(certFile)
	if err != nil {
		return fmt.Errorf("%s %s: %w", certFlag, certFile, errors.Unwrap(err))
	}
	rawKey, err := os.ReadFile(keyFile)
	if err != nil {
		return fmt.Errorf("%s %s: %w", keyFlag, keyFile, errors.Unwrap(err))
	}
	return CheckServingContent(certFile, keyFile, rawCert, rawKey, now)
}

// CheckServingContent is CheckServingPair for the content of the files.
func CheckServingContent(certFile, keyFile string, rawCert, rawKey []byte, now time.Time) error {
	pair, err := tls.X509KeyPair(rawCert, rawKey)
	if err != nil {
		return fmt.Errorf("%s %s: key cannot be used with %s %s: %w", keyFlag, keyFile, certFlag, certFile, err)
	}
	switch {
	case now.After(pair.Leaf.NotAfter):
		return fmt.Errorf("%s %s: expired on %s", certFlag, certFile, date(pair.Leaf.NotAfter))
	case now.Before(pair.Leaf.NotBefore):
		return fmt.Errorf("%s %s: not valid before %s", certFlag, certFile, date(pair.Leaf.NotBefore))
	}
	return nil
}
