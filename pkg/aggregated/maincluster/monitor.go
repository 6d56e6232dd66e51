// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincluster

import (
	"context"
	"fmt"
	"regexp"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"
)

const (
	// monitorInterval is the time between two probes of the main cluster, and monitorTimeout bounds one.
	monitorInterval = 10 * time.Second
	monitorTimeout  = 5 * time.Second
	// The main cluster is down after failureThreshold failed probes in a row: one may meet a kube-apiserver that restarts.
	failureThreshold = 2
)

var (
	ready = metrics.NewGauge(&metrics.GaugeOpts{
		Namespace: "annex", Subsystem: "main_cluster", Name: "ready", StabilityLevel: metrics.ALPHA,
		Help: "Whether the main cluster answers annex at /readyz: 1, or 0 after two failed probes in a row.",
	})
	registerMetrics = sync.OnceFunc(func() { legacyregistry.MustRegister(ready) })

	// outage matches the errors of a main cluster that is not ready.
	outage atomic.Pointer[regexp.Regexp]
)

// RepeatsOutage reports whether a log entry is one more error of a main cluster that is not ready, after Monitor has logged
// that.
func RepeatsOutage(entry string) bool {
	errors := outage.Load()
	return errors != nil && errors.MatchString(entry)
}

// Unavailable is the error of clients whose request a proxy of the main cluster answers with 503.
const Unavailable = "the server is currently unable to handle the request"

// outageErrors matches errors of connections to an address, of its proxy, and of a kube-apiserver that starts: it forbids
// everything until it has read its roles.
func outageErrors(address string) *regexp.Regexp {
	return regexp.MustCompile(`(https?://|tcp |->)` + regexp.QuoteMeta(address) + `[:/]| is forbidden: User |` + Unavailable)
}

// Monitor probes the main cluster until ctx is done. It sets the metric annex_main_cluster_ready, and logs the beginning and
// the end of an outage, of which other parts of annex log only their own failed requests.
func (c *Cluster) Monitor(ctx context.Context) {
	registerMetrics()
	config := restclient.CopyConfig(c.Config)
	config.Timeout = monitorTimeout
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Could not create the client that probes the main cluster")
		return
	}
	ready.Set(1) // annex has waited for it
	address := client.Discovery().RESTClient().Get().URL().Host
	m := monitor{server: c.Config.Host, outage: outageErrors(address), probe: func(ctx context.Context) error {
		err := client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
		if apierrors.IsForbidden(err) {
			return nil // it answers, but annex may not read this path
		}
		return err
	}}
	m.run(ctx)
}

// monitor counts failures of probes.
type monitor struct {
	server string
	outage *regexp.Regexp
	probe  func(context.Context) error
	// failures in a row, since the first of them.
	failures int
	since    time.Time
}

func (m *monitor) run(ctx context.Context) {
	ticker := time.NewTicker(monitorInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		begin := time.Now()
		if err := m.probe(ctx); ctx.Err() == nil {
			m.observe(ctx, begin, err)
		}
	}
}

func (m *monitor) observe(ctx context.Context, at time.Time, err error) {
	logger := klog.FromContext(ctx)
	if err == nil {
		if m.failures >= failureThreshold {
			ready.Set(1)
			outage.Store(nil)
			logger.Info("The main cluster is ready again", "server", m.server, "after", fmt.Sprint(at.Sub(m.since).Round(time.Second)))
		}
		m.failures = 0
		return
	}
	if m.failures++; m.failures == 1 {
		m.since = at
	}
	if m.failures == failureThreshold {
		ready.Set(0)
		logger.Error(err, "The main cluster is not ready", "server", m.server, "since", m.since)
		outage.Store(m.outage)
	}
}
