// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apimachineryversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/utils/ptr"
)

// checkMainCluster checks whether the main cluster responds, and its version.
func checkMainCluster(ctx context.Context, e *environment) []finding {
	const mend = "kubectl cluster-info"
	version, err := e.getMain(ctx, "/version", "application/json")
	if err != nil {
		return []finding{fail(mend, "%s does not answer: %v", e.mainServer, err)}
	}
	var info apimachineryversion.Info
	if version.status != http.StatusOK || json.Unmarshal(version.body, &info) != nil {
		return []finding{fail(mend, "%s does not answer as an API server: %d: %s", e.mainServer, version.status, firstLine(version.body))}
	}
	ready, err := e.getMain(ctx, "/readyz", "*/*")
	switch {
	case err != nil:
		return []finding{fail("kubectl get --raw '/readyz?verbose'", "the readiness of %s is unknown: %v", e.mainServer, err)}
	case ready.status == http.StatusForbidden || ready.status == http.StatusUnauthorized:
		return []finding{fail("kubectl auth whoami", "%s does not let you in: %s", e.mainServer, firstLine(ready.body))}
	case ready.status != http.StatusOK:
		return []finding{fail("kubectl get --raw '/readyz?verbose'", "%s is not ready: %d: %s", e.mainServer, ready.status, firstLine(ready.body))}
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

// checkLeader checks whether a replica runs the controllers: without one annex
// serves, and nothing that is published is kept right.
func checkLeader(ctx context.Context, e *environment) []finding {
	name := e.service.Lease()
	lease, err := e.main.CoordinationV1().Leases(e.service.Namespace).Get(ctx, name, metav1.GetOptions{})
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
