// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package health

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/annex-dev/annex/pkg/test/expect"
)

// TestAlerts holds the levels and limits of findings to the severities and limits of the alerts for the same problems.
func TestAlerts(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile("../../../../artifacts/deploy/components/prometheusrule/prometheusrule.yaml")
	expect.NoError(t, err)
	var manifest struct {
		Spec struct {
			Groups []struct {
				Rules []struct {
					Alert, Expr string
					Labels      map[string]string
				}
			}
		}
	}
	expect.NoError(t, yaml.Unmarshal(content, &manifest))
	severities := map[Level]string{LevelFail: "critical", LevelWarn: "warning"}
	got, want := map[string]string{}, map[string]string{
		"AnnexServerErrors": "warning", // a rate, which a check at one time cannot see
	}
	for name, level := range alerts {
		want[name] = severities[level]
	}
	limits := map[string]string{
		"AnnexStoreAlmostFull":    fmt.Sprintf(" > %.1f", almostFull/100.0),
		"AnnexCertificateExpires": fmt.Sprintf(" < %d * 86400", expiresSoon/(24*time.Hour)),
	}
	for _, group := range manifest.Spec.Groups {
		for _, rule := range group.Rules {
			got[rule.Alert] = rule.Labels["severity"]
			if !strings.HasSuffix(rule.Expr, limits[rule.Alert]) {
				t.Errorf("%s fires at %s, and the check reports it at%s", rule.Alert, rule.Expr, limits[rule.Alert])
			}
		}
	}
	expect.Equal(t, want, got, "alerts with their severity")
}
