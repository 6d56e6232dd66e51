// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/annex-dev/annex/pkg/aggregated/maincluster"
	"github.com/annex-dev/annex/pkg/pki"
)

// Keys of the ConfigMap with which the main cluster describes how its proxy logs in.
const (
	frontProxyCAKey    = "requestheader-client-ca-file"
	frontProxyNamesKey = "requestheader-allowed-names"
)

// checkFrontProxy checks how the main cluster proves to annex on whose behalf a
// request is. That annex may read it is part of the check of rights.
func checkFrontProxy(ctx context.Context, e *environment) []finding {
	where := maincluster.AuthenticationNamespace + "/" + maincluster.AuthenticationConfigMap
	show := fmt.Sprintf("kubectl -n %s get configmap %s -o yaml", maincluster.AuthenticationNamespace, maincluster.AuthenticationConfigMap)
	trust, err := e.main.CoreV1().ConfigMaps(maincluster.AuthenticationNamespace).Get(ctx, maincluster.AuthenticationConfigMap, metav1.GetOptions{})
	if err != nil {
		return []finding{fail(show, "ConfigMap %s, which describes how the main cluster's proxy logs in, cannot be read: %v", where, err)}
	}
	if trust.Data[frontProxyCAKey] == "" {
		return []finding{fail("kube-apiserver --requestheader-client-ca-file=… --proxy-client-cert-file=… --proxy-client-key-file=…",
			"ConfigMap %s has no %s: the main cluster does not proxy to aggregated servers at all", where, frontProxyCAKey)}
	}
	authorities, err := pki.ParseBundle([]byte(trust.Data[frontProxyCAKey]))
	if err != nil {
		return []finding{fail(show, "%s in ConfigMap %s: %v", frontProxyCAKey, where, err)}
	}
	var names []string
	if listed := trust.Data[frontProxyNamesKey]; listed != "" {
		if err := json.Unmarshal([]byte(listed), &names); err != nil {
			return []finding{fail(show, "%s in ConfigMap %s is not a list: %v", frontProxyNamesKey, where, err)}
		}
	}
	allowed := "any name"
	if len(names) > 0 {
		allowed = strings.Join(names, " or ")
	}
	findings := []finding{ok("its certificate is signed by %s, for %s", subjects(authorities), allowed)}
	return append(findings, expiring(authorities, "the front proxy's authority", e.now(), show)...)
}

func subjects(certificates []*x509.Certificate) string {
	var all []string
	for _, certificate := range certificates {
		all = append(all, fmt.Sprintf("%q", certificate.Subject.CommonName))
	}
	return strings.Join(all, " or ")
}

// expiring are findings about certificates that have expired or soon will: in the
// last tenth of its life one should have been replaced.
func expiring(certificates []*x509.Certificate, what string, now time.Time, mend string) []finding {
	var findings []finding
	for _, certificate := range certificates {
		left := certificate.NotAfter.Sub(now)
		lifetime := certificate.NotAfter.Sub(certificate.NotBefore)
		switch {
		case now.Before(certificate.NotBefore):
			findings = append(findings, fail(mend, "%s %q is not valid before %s: are the clocks right?", what, certificate.Subject.CommonName, certificate.NotBefore.Format(time.RFC3339)))
		case left <= 0:
			findings = append(findings, fail(mend, "%s %q expired at %s", what, certificate.Subject.CommonName, certificate.NotAfter.Format(time.RFC3339)))
		case left < lifetime/10:
			findings = append(findings, warn(mend, "%s %q expires at %s and has not been replaced", what, certificate.Subject.CommonName, certificate.NotAfter.Format(time.RFC3339)))
		}
	}
	return findings
}
