// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2/ktesting"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

func TestRenewerRenewsWhatTheServerReads(t *testing.T) {
	t.Parallel()
	dir, opts, clock := setup(t)
	files := mustEnsure(t, dir, opts)
	content, err := dynamiccertificates.NewDynamicServingContentFromFiles("serving", files.Serving, files.Serving)
	expect.NoError(t, err)
	old, _ := content.CurrentCertKeyContent()

	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		NewRenewer(dir, opts).Run(ctx)
	}()
	waitIdle(t, clock)
	clock.Step(300 * day)
	waitIdle(t, clock)
	poll.UntilDone(t, "the certificate is renewed", func() (bool, string) {
		expect.NoError(t, content.RunOnce(ctx))
		renewed, _ := content.CurrentCertKeyContent()
		return string(renewed) != string(old), "the old certificate"
	})
	renewed, _ := content.CurrentCertKeyContent()
	chain, err := ParseBundle(renewed)
	expect.NoError(t, err)
	if want := clock.Now().Add(defaultLeafLifetime); !chain[0].NotAfter.Equal(want) {
		t.Errorf("renewed certificate expires %s, want %s", chain[0].NotAfter, want)
	}
	cancel()
	<-stopped
}

func TestRenewerContinuesAfterAnError(t *testing.T) {
	t.Parallel()
	dir, opts, clock := setup(t)
	files := mustEnsure(t, dir, opts)
	good := mustRead(t, files.Serving)
	mustWrite(t, files.Serving, "")
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		NewRenewer(dir, opts).Run(ctx)
	}()
	waitIdle(t, clock)
	clock.Step(300 * day)
	waitIdle(t, clock)
	mustWrite(t, files.Serving, good)
	clock.Step(checkInterval)
	poll.UntilDone(t, "the certificate is renewed", func() (bool, string) {
		return mustRead(t, files.Serving) != good, "the old certificate"
	})
	cancel()
	<-stopped
}

func TestRenewerWarnsOfAnOldCA(t *testing.T) {
	t.Parallel()
	dir, opts, clock := setup(t)
	mustEnsure(t, dir, opts)
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
	logged := logger.GetSink().(ktesting.Underlier).GetBuffer()
	renewer := NewRenewer(dir, opts)
	tests := []struct {
		at   time.Duration
		want int
	}{
		{3500 * day, 0}, // more than 90 days are left
		{3561 * day, 1},
		{3561*day + time.Hour, 1}, // not with every check
		{3567 * day, 1},
		{3568 * day, 2}, // but again a week later
	}
	for _, tt := range tests {
		clock.SetTime(epoch.Add(tt.at))
		renewer.renew(logger)
		if got := strings.Count(logged.String(), "The CA expires soon"); got != tt.want {
			t.Errorf("after %s there were %d warnings, want %d:\n%s", tt.at, got, tt.want, logged)
		}
	}
	for _, want := range []string{"ERROR", filepath.Join(dir, caCertName), "2035-12-31T03:04:05Z", "daysLeft=89"} {
		if !strings.Contains(logged.String(), want) {
			t.Errorf("the log does not contain %q:\n%s", want, logged)
		}
	}
}

func TestExpiryMetrics(t *testing.T) {
	t.Parallel()
	dir, opts, _ := setup(t)
	mustEnsure(t, dir, opts)
	expires := time.Now().Add(36 * time.Hour)
	Observe("metrics-test", expires)
	Observe("metrics-test-gone", expires)
	Forget("metrics-test-gone")
	seconds := gather(t, "annex_certificate_expiration_timestamp_seconds")
	for _, name := range []string{"ca", "serving", "admin"} {
		if seconds[name] == 0 {
			t.Errorf("%s has no metric: %v", name, seconds)
		}
	}
	if got := seconds["metrics-test"]; got != float64(expires.Unix()) {
		t.Errorf("it expires at %v, want %v", got, expires.Unix())
	}
	if _, found := seconds["metrics-test-gone"]; found {
		t.Error("a forgotten certificate has a metric")
	}
}

// gather returns the values of a metric for each certificate.
func gather(t *testing.T, name string) map[string]float64 {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	expect.NoError(t, err)
	values := map[string]float64{}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, metric := range family.GetMetric() {
			values[metric.GetLabel()[0].GetValue()] = metric.GetGauge().GetValue()
		}
	}
	return values
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
		"good":          {files.Serving, files.Serving, epoch, nil},
		"expired":       {files.Serving, files.Serving, epoch.Add(366 * day), []string{"--tls-cert-file " + files.Serving, "expired on 2027-01-02T03:04:05Z"}},
		"not yet valid": {files.Serving, files.Serving, epoch.Add(-day), []string{"--tls-cert-file " + files.Serving, "not valid before"}},
		"other key":     {files.Serving, files.Admin, epoch, []string{"--tls-private-key-file " + files.Admin, "does not match"}},
		"no cert":       {filepath.Join(dir, "none"), files.Serving, epoch, []string{"--tls-cert-file " + dir, "no such file"}},
		"no key":        {files.Serving, filepath.Join(dir, "none"), epoch, []string{"--tls-private-key-file " + dir, "no such file"}},
		"junk cert":     {junk, files.Serving, epoch, []string{"--tls-cert-file " + junk, "PEM data in certificate"}},
		"junk key":      {files.Serving, junk, epoch, []string{"--tls-private-key-file " + junk, "key cannot be used"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := CheckServingPair(tt.cert, tt.key, tt.at)
			if tt.want == nil {
				expect.NoError(t, err)
				return
			}
			expect.ErrorLine(t, err, tt.want...)
			if strings.Count(err.Error(), tt.cert) > 1 {
				t.Errorf("error %q names the file twice", err)
			}
		})
	}
}

// waitIdle waits until the renewer waits for its clock: its last check is over then.
func waitIdle(t *testing.T, clock *clocktesting.FakeClock) {
	t.Helper()
	poll.UntilDone(t, "the renewer waits for its clock", func() (bool, string) { return clock.HasWaiters(), "it checks" })
}
