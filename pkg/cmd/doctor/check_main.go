// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"encoding/json"
	"net/http"

	apimachineryversion "k8s.io/apimachinery/pkg/version"
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
