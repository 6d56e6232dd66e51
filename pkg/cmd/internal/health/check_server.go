// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package health

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apimachineryversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/utils/ptr"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/cmd/internal/login"
	"github.com/annex-dev/annex/pkg/version"
)

// Values of Server.Mode.
const (
	modeStandalone = "standalone"
	modeAggregated = "aggregated"
)

// showReadiness prints the checks of /readyz.
const showReadiness = "kubectl get --raw '/readyz?verbose'"

// checkServer checks whether annex answers and is ready, and reads its objects.
func checkServer(ctx context.Context, e *environment) []Finding {
	var answered *answer
	took, err := fastest(func() (took time.Duration, err error) {
		if answered, err = e.get(ctx, "/version", applicationJSON); err != nil {
			return 0, err
		}
		return answered.answered.Sub(answered.sent), nil
	})
	var found apimachineryversion.Info
	if err != nil || answered.status != http.StatusOK || json.Unmarshal(answered.body, &found) != nil {
		return []Finding{alert("AnnexDown", runbook("AnnexDown"), "%s does not answer: %s", e.server.Address, outcome(answered, err))}
	}
	e.server.Version = version.AnnexOf(found.GitVersion)
	ready, err := e.get(ctx, "/readyz?verbose", "*/*")
	if err != nil || ready.status != http.StatusOK {
		return []Finding{fail(showReadiness, "annex is not ready: %s", failedChecks(ready, err))}
	}
	if lease, err := e.Kube.CoordinationV1().Leases(hostingv1alpha1.NamespaceAnnexSystem).Get(ctx, manifestLease, metav1.GetOptions{}); err == nil {
		e.server.Leader = ptr.Deref(lease.Spec.HolderIdentity, "")
	}
	if e.objects, err = ReadObjects(ctx, e.Annex); err != nil {
		return []Finding{fail(canI("list", "stores.hosting.annex.dev", ""), "annex's objects cannot be read: %v", err)}
	}
	return []Finding{slow(ok("annex %s answers and is ready", e.server.Version), took)}
}

// failedChecks returns the lines of /readyz that report a failure.
func failedChecks(ready *answer, err error) string {
	if err != nil {
		return err.Error()
	}
	var failed []string
	for line := range strings.Lines(string(ready.body)) {
		if strings.HasPrefix(line, "[-]") {
			failed = append(failed, strings.TrimSpace(strings.TrimPrefix(line, "[-]")))
		}
	}
	if len(failed) == 0 {
		return outcome(ready, nil)
	}
	return strings.Join(failed, ", ")
}

// slowAnswer is the time after which annex or its main cluster answers too late for its users.
const slowAnswer = time.Second

// fastest repeats what was too slow up to twice, because the first may have met a busy moment. It returns the shortest time.
func fastest(read func() (time.Duration, error)) (time.Duration, error) {
	shortest, err := read()
	for range 2 {
		if err != nil || shortest < slowAnswer {
			break
		}
		var took time.Duration
		took, err = read()
		shortest = min(shortest, took)
	}
	return shortest, err
}

// slow returns the finding, or a warning if reading what it reports took too long.
func slow(f Finding, took time.Duration) Finding {
	if took < slowAnswer {
		return f
	}
	return warn("kubectl annex top --sort-by=requests", "%s, and slow: it took %s", f.Message, took.Round(time.Millisecond))
}

// Metrics that have what annex's objects lack.
const (
	mainClusterMetric = "annex_main_cluster_ready"
	certificateMetric = "annex_certificate_expiration_timestamp_seconds"
	refusedMetric     = "annex_published_certificate_refused"
	buildMetric       = "annex_build_info"
)

// expiresSoon is the time before which annex has renewed its certificates, and before which the alert is silent.
const expiresSoon = 21 * 24 * time.Hour

// checkMetrics checks what annex reports in its metrics only: certificates and the main cluster.
func checkMetrics(ctx context.Context, e *environment) []Finding {
	families, err := login.Metrics(ctx, e.Kube.Discovery().RESTClient(), buildMetric, mainClusterMetric, certificateMetric, refusedMetric)
	if err != nil {
		return []Finding{warn("kubectl auth can-i get /metrics", "certificates and the main cluster are not known: %v", err)}
	}
	e.server.Mode = modeStandalone
	if families[mainClusterMetric] != nil {
		e.server.Mode = modeAggregated
	}
	var findings []Finding
	for _, m := range families[mainClusterMetric].GetMetric() {
		if m.GetGauge().GetValue() == 0 {
			findings = append(findings, alert("AnnexMainClusterNotReady", runbook("AnnexMainClusterNotReady"), "annex does not reach the main cluster, or it is not ready"))
		}
	}
	for _, m := range families[certificateMetric].GetMetric() {
		expires := time.Unix(int64(m.GetGauge().GetValue()), 0)
		e.server.expires(expires)
		if left := expires.Sub(e.now()); left < expiresSoon {
			findings = append(findings, alert("AnnexCertificateExpires", runbook("AnnexCertificateExpires"),
				"the certificate %q expires at %s and has not been renewed", login.MetricLabels(m)["certificate"], expires.UTC().Format(time.RFC3339)))
		}
	}
	for _, m := range families[refusedMetric].GetMetric() {
		if m.GetGauge().GetValue() == 1 {
			findings = append(findings, alert("AnnexPublishedCertificateRefused", runbook("AnnexPublishedCertificateRefused"), "annex refuses the Secret or the files of its certificate, and keeps the previous ones: its log has the reason"))
		}
	}
	return orOK(findings, "certificates and the main cluster are fine")
}
