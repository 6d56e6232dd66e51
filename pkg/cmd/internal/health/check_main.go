// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package health

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apimachineryversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/utils/ptr"

	"github.com/annex-dev/annex/pkg/version"
)

// checkMainCluster checks whether the main cluster responds and is ready.
func checkMainCluster(ctx context.Context, e *environment) []Finding {
	const fix = "kubectl cluster-info"
	answered, err := e.get(ctx, "/version", applicationJSON)
	if err != nil {
		return []Finding{fail(fix, "%s does not answer: %v", e.server.Address, err)}
	}
	var info apimachineryversion.Info
	if answered.status != http.StatusOK || json.Unmarshal(answered.body, &info) != nil {
		return []Finding{fail(fix, "%s does not answer as an API server: %d: %s", e.server.Address, answered.status, firstLine(answered.body))}
	}
	ready, err := e.get(ctx, "/readyz", "*/*")
	switch {
	case err != nil:
		return []Finding{fail(showReadiness, "the readiness of %s is unknown: %v", e.server.Address, err)}
	case ready.status == http.StatusForbidden || ready.status == http.StatusUnauthorized:
		return []Finding{fail("kubectl auth whoami", "%s refuses your credentials: %s", e.server.Address, firstLine(ready.body))}
	case ready.status != http.StatusOK:
		return []Finding{fail(showReadiness, "%s is not ready: %d: %s", e.server.Address, ready.status, firstLine(ready.body))}
	}
	e.server.Mode, e.server.MainCluster = modeAggregated, info.GitVersion
	return []Finding{ok("%s answers, Kubernetes %s", e.server.Address, info.GitVersion)}
}

// checkMainObjects reads what other checks need.
func checkMainObjects(ctx context.Context, e *environment) []Finding {
	if resource, err := e.readObjects(ctx); err != nil {
		return []Finding{e.orSkip(err, fail(canI("list", resource, ""), "the %s of the main cluster cannot be read: %v", resource, err))}
	}
	return []Finding{ok("%d APIServices and %d CustomResourceDefinitions are read", len(e.routes), len(e.crds))}
}

// firstLine returns the beginning of a response, for messages.
func firstLine(body []byte) string {
	const enough = 300
	for i, b := range body {
		if b == '\n' || i == enough {
			return string(body[:i])
		}
	}
	return string(body)
}

// checkLeader checks whether a replica runs the controllers. Without one, annex serves and
// nothing is published or updated.
func checkLeader(ctx context.Context, e *environment) []Finding {
	name := e.Service.Lease()
	lease, err := e.Kube.CoordinationV1().Leases(e.Service.Namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return []Finding{fail(e.logs(), "there is no Lease %s/%s: no annex has started behind this main cluster yet", e.Service.Namespace, name)}
	case err != nil:
		return []Finding{e.orSkip(err, fail(canI("get", "leases.coordination.k8s.io", e.Service.Namespace), "Lease %s/%s cannot be read: %v", e.Service.Namespace, name, err))}
	}
	holder := ptr.Deref(lease.Spec.HolderIdentity, "")
	if holder == "" {
		return []Finding{alert("AnnexNoLeader", e.logs(), "no replica runs the controllers: the last one has given up the Lease %s/%s", e.Service.Namespace, name)}
	}
	if lease.Spec.RenewTime == nil {
		return []Finding{alert("AnnexNoLeader", e.logs(), "%s has never renewed the Lease %s/%s", holder, e.Service.Namespace, name)}
	}
	age := e.now().Sub(lease.Spec.RenewTime.Time)
	if valid := time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0)) * time.Second; age > valid {
		return []Finding{alert("AnnexNoLeader", e.logs(), "no replica runs the controllers: %s has not renewed its Lease for %s", holder, age.Round(time.Second))}
	}
	e.server.Leader, e.server.Version = holder, lease.Labels[version.Label]
	return []Finding{ok("%s runs the controllers", holder)}
}

const (
	// Leases and caches tolerate seconds of skew, certificates and tokens a minute.
	skewToMention = 5 * time.Second
	skewToFix     = time.Minute
)

// checkClock compares three clocks with the Date header of responses. Responses of annex's
// group have annex's.
func checkClock(ctx context.Context, e *environment) []Finding {
	const fix = "timedatectl status"
	mainSkew, mainError, err := skew(ctx, e, "/version")
	if err != nil {
		return []Finding{warn("kubectl get --raw /version", "the main cluster's clock is not known: %v", err)}
	}
	message := fmt.Sprintf("the main cluster's clock is %s of the one here", apart(mainSkew, mainError))
	worst, tolerance := mainSkew.Abs(), mainError
	if e.scope != Preflight {
		annexSkew, annexError, err := skew(ctx, e, "/apis/"+hostingPath)
		if err != nil {
			message += "; annex's is not known: " + err.Error()
		} else {
			message += fmt.Sprintf(", annex's %s", apart(annexSkew, annexError))
			worst = max(worst, annexSkew.Abs(), (annexSkew - mainSkew).Abs())
			tolerance = max(tolerance, annexError)
		}
	}
	switch {
	case worst > skewToFix+tolerance:
		return []Finding{fail(fix, "%s: certificates, tokens and leases of one seem expired to the other", message)}
	case worst > skewToMention+tolerance:
		return []Finding{warn(fix, "%s", message)}
	}
	return []Finding{ok("%s", message)}
}

// skew returns how far a server's clock is ahead, and the uncertainty: Date has whole
// seconds, and the response took some time.
func skew(ctx context.Context, e *environment, path string) (ahead, exactness time.Duration, err error) {
	answer, err := e.get(ctx, path, applicationJSON)
	if err != nil {
		return 0, 0, err
	}
	if answer.status != http.StatusOK {
		return 0, 0, fmt.Errorf("%s is answered with %d", path, answer.status)
	}
	date, err := http.ParseTime(answer.header.Get("Date"))
	if err != nil {
		return 0, 0, fmt.Errorf("the Date of the answer: %w", err)
	}
	took := answer.answered.Sub(answer.sent)
	middle := answer.sent.Add(took / 2)
	return date.Add(500 * time.Millisecond).Sub(middle), time.Second + took/2, nil
}

// apart formats a skew with its precision.
func apart(ahead, exactness time.Duration) string {
	if ahead.Abs() <= exactness {
		return "within " + exactness.Round(100*time.Millisecond).String()
	}
	if ahead < 0 {
		return ahead.Abs().Round(time.Second).String() + " behind"
	}
	return ahead.Round(time.Second).String() + " ahead"
}
