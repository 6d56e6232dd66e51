// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"context"
	"crypto/x509"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/component-base/metrics/legacyregistry"
)

func TestRenewerRenewsWhatTheServerReads(t *testing.T) {
	t.Parallel()
	dir, opts, clock := setup(t)
	files := mustEnsure(t, dir, opts)
	content, err := dynamiccertificates.NewDynamicServingContentFromFiles("serving", files.ServingCert, files.ServingKey)
	if err != nil {
		t.Fatal(err)
	}
	old, _ := content.CurrentCertKeyContent()

	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		NewRenewer(dir, opts).Run(ctx)
	}()
	waitFor(t, clock.HasWaiters)
	clock.Step(300 * day)
	// Waiting again means that the check is over.
	waitFor(t, clock.HasWaiters)
	waitFor(t, func() bool {
		if err := content.RunOnce(ctx); err != nil {
			t.Fatal(err)
		}
		renewed, _ := content.CurrentCertKeyContent()
		return string(renewed) != string(old)
	})
	renewed, _ := content.CurrentCertKeyContent()
	block := findBlock(renewed, certBlock)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if want := clock.Now().Add(defaultLeafLifetime); !cert.NotAfter.Equal(want) {
		t.Errorf("renewed certificate expires %s, want %s", cert.NotAfter, want)
	}
	cancel()
	<-stopped
}

func TestRenewerGoesOnAfterAnError(t *testing.T) {
	t.Parallel()
	dir, opts, clock := setup(t)
	files := mustEnsure(t, dir, opts)
	good := mustRead(t, files.ServingCert)
	mustWrite(t, files.ServingCert, "")
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		NewRenewer(dir, opts).Run(ctx)
	}()
	waitFor(t, clock.HasWaiters)
	clock.Step(300 * day)
	waitFor(t, clock.HasWaiters)
	mustWrite(t, files.ServingCert, good)
	clock.Step(checkInterval)
	waitFor(t, func() bool { return mustRead(t, files.ServingCert) != good })
	cancel()
	<-stopped
}

func TestExpiryMetric(t *testing.T) {
	t.Parallel()
	dir, opts, _ := setup(t)
	mustEnsure(t, dir, opts)
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == "annex_certificate_expiration_timestamp_seconds" {
			if got := len(family.GetMetric()); got != 3 {
				t.Errorf("%d certificates have a metric, want 3", got)
			}
			return
		}
	}
	t.Error("no metric of the expiry")
}

func TestCheckServingPair(t *testing.T) {
	t.Parallel()
	dir, opts, _ := setup(t)
	files := mustEnsure(t, dir, opts)
	junk := filepath.Join(dir, "junk")
	mustWrite(t, junk, "junk")
	tests := map[string]struct {
		cert, key string
		at        time.Time
		want      []string
	}{
		"good":          {files.ServingCert, files.ServingKey, epoch, nil},
		"expired":       {files.ServingCert, files.ServingKey, epoch.Add(366 * day), []string{"--tls-cert-file " + files.ServingCert, "expired on 2027-01-02T03:04:05Z"}},
		"not yet valid": {files.ServingCert, files.ServingKey, epoch.Add(-day), []string{"--tls-cert-file " + files.ServingCert, "not valid before"}},
		"other key":     {files.ServingCert, files.AdminKey, epoch, []string{"--tls-private-key-file " + files.AdminKey, "does not match"}},
		"no cert":       {filepath.Join(dir, "none"), files.ServingKey, epoch, []string{"--tls-cert-file " + dir, "no such file"}},
		"no key":        {files.ServingCert, filepath.Join(dir, "none"), epoch, []string{"--tls-private-key-file " + dir, "no such file"}},
		"junk cert":     {junk, files.ServingKey, epoch, []string{"--tls-cert-file " + junk, "contains no PEM certificate"}},
		"junk key":      {files.ServingCert, junk, epoch, []string{"--tls-private-key-file " + junk, "key cannot be used"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := CheckServingPair(tt.cert, tt.key, tt.at)
			if tt.want == nil {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			wantError(t, err, tt.want...)
			if strings.Count(err.Error(), tt.cert) > 1 {
				t.Errorf("error %q names the file twice", err)
			}
		})
	}
}

// waitFor polls a condition that another goroutine makes true.
func waitFor(t *testing.T, done func() bool) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for !done() {
		if time.Now().After(deadline) {
			t.Fatal("condition did not become true")
		}
		time.Sleep(time.Millisecond)
	}
}
