// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

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
)

// checkMainCluster checks whether the main cluster responds, and reads what the other checks need.
func checkMainCluster(ctx context.Context, e *environment) []finding {
	const fix = "kubectl cluster-info"
	version, err := e.getMain(ctx, "/version", applicationJSON)
	if err != nil {
		return []finding{fail(fix, "%s does not answer: %v", e.mainServer, err)}
	}
	var info apimachineryversion.Info
	if version.status != http.StatusOK || json.Unmarshal(version.body, &info) != nil {
		return []finding{fail(fix, "%s does not answer as an API server: %d: %s", e.mainServer, version.status, firstLine(version.body))}
	}
	ready, err := e.getMain(ctx, "/readyz", "*/*")
	switch {
	case err != nil:
		return []finding{fail("kubectl get --raw '/readyz?verbose'", "the readiness of %s is unknown: %v", e.mainServer, err)}
	case ready.status == http.StatusForbidden || ready.status == http.StatusUnauthorized:
		return []finding{fail("kubectl auth whoami", "%s refuses your credentials: %s", e.mainServer, firstLine(ready.body))}
	case ready.status != http.StatusOK:
		return []finding{fail("kubectl get --raw '/readyz?verbose'", "%s is not ready: %d: %s", e.mainServer, ready.status, firstLine(ready.body))}
	}
	if resource, err := e.readObjects(ctx); err != nil {
		return []finding{fail(canI("list", resource, ""), "the %s of the main cluster cannot be read: %v", resource, err)}
	}
	return []finding{ok("%s answers, Kubernetes %s", e.mainServer, info.GitVersion)}
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
func checkLeader(ctx context.Context, e *environment) []finding {
	name := e.service.Lease()
	lease, err := e.Kube.CoordinationV1().Leases(e.service.Namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return []finding{fail(e.logs(), "there is no Lease %s/%s: no annex has started behind this main cluster yet", e.service.Namespace, name)}
	case err != nil:
		return []finding{fail(canI("get", "leases.coordination.k8s.io", e.service.Namespace), "Lease %s/%s cannot be read: %v", e.service.Namespace, name, err)}
	}
	holder := ptr.Deref(lease.Spec.HolderIdentity, "")
	if holder == "" {
		return []finding{fail(e.logs(), "no replica runs the controllers: the last one has given up the Lease %s/%s", e.service.Namespace, name)}
	}
	if lease.Spec.RenewTime == nil {
		return []finding{fail(e.logs(), "%s has never renewed the Lease %s/%s", holder, e.service.Namespace, name)}
	}
	age := e.now().Sub(lease.Spec.RenewTime.Time)
	if valid := time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0)) * time.Second; age > valid {
		return []finding{fail(e.logs(), "no replica runs the controllers: %s has not renewed its Lease for %s", holder, age.Round(time.Second))}
	}
	return []finding{ok("%s runs the controllers", holder)}
}

const (
	// Leases and caches tolerate seconds of skew, certificates and tokens a minute.
	skewToMention = 5 * time.Second
	skewToFix     = time.Minute
)

// checkClock compares three clocks with the Date header of responses. Responses of annex's
// group have annex's.
func checkClock(ctx context.Context, e *environment) []finding {
	const fix = "timedatectl status"
	mainSkew, mainError, err := skew(ctx, e, "/version")
	if err != nil {
		return []finding{warn("kubectl get --raw /version", "the main cluster's clock is not known: %v", err)}
	}
	message := fmt.Sprintf("the main cluster's clock is %s of the one here", apart(mainSkew, mainError))
	worst, tolerance := mainSkew.Abs(), mainError
	annexSkew, annexError, err := skew(ctx, e, "/apis/"+hostingPath)
	if err != nil {
		message += "; annex's is not known: " + err.Error()
	} else {
		message += fmt.Sprintf(", annex's %s", apart(annexSkew, annexError))
		worst = max(worst, annexSkew.Abs(), (annexSkew - mainSkew).Abs())
		tolerance = max(tolerance, annexError)
	}
	switch {
	case worst > skewToFix+tolerance:
		return []finding{fail(fix, "%s: certificates, tokens and leases of one seem expired to the other", message)}
	case worst > skewToMention+tolerance:
		return []finding{warn(fix, "%s", message)}
	}
	return []finding{ok("%s", message)}
}

// skew returns how far a server's clock is ahead, and the uncertainty: Date has whole
// seconds, and the response took some time.
func skew(ctx context.Context, e *environment, path string) (ahead, exactness time.Duration, err error) {
	answer, err := e.getMain(ctx, path, applicationJSON)
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
