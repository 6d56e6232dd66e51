// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package health

import (
	"fmt"
	"io"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/annex-dev/annex/pkg/table"
)

// Level is the severity of a finding.
type Level string

// LevelFail marks a problem that affects users now or soon, LevelWarn one without effect yet. LevelInfo marks a state that
// waits for a decision, LevelSkip a check without a result: one that it depends on failed, or a right is missing.
const (
	LevelOK   Level = "ok"
	LevelInfo Level = "info"
	LevelWarn Level = "warn"
	LevelFail Level = "FAIL"
	LevelSkip Level = "skip"
)

// Finding is a result of a check.
type Finding struct {
	Check string `json:"check"`
	Level Level  `json:"status"`
	// Object has the problem, as "<resource>/<name>", and Since when it began. They may be unknown.
	Object string       `json:"object,omitempty"`
	Since  *metav1.Time `json:"since,omitempty"`

	Message string `json:"message"`
	// Fix is the command that fixes the problem, or shows more about it.
	Fix string `json:"fix,omitempty"`
	// Alert names the alert of artifacts/deploy/components/prometheusrule for the same problem. docs/troubleshooting.md has a
	// section for it.
	Alert string `json:"alert,omitempty"`
}

func ok(format string, args ...any) Finding {
	return Finding{Level: LevelOK, Message: fmt.Sprintf(format, args...)}
}

func info(fix, format string, args ...any) Finding {
	return Finding{Level: LevelInfo, Message: fmt.Sprintf(format, args...), Fix: fix}
}

func warn(fix, format string, args ...any) Finding {
	return Finding{Level: LevelWarn, Message: fmt.Sprintf(format, args...), Fix: fix}
}

func fail(fix, format string, args ...any) Finding {
	return Finding{Level: LevelFail, Message: fmt.Sprintf(format, args...), Fix: fix}
}

func skip(format string, args ...any) Finding {
	return Finding{Level: LevelSkip, Message: fmt.Sprintf(format, args...)}
}

// orSkip returns the finding, or LevelSkip if the error is a lack of rights: users may see the status of annex without the rights
// of an administrator of the main cluster.
func (e *environment) orSkip(err error, f Finding) Finding {
	if e.scope == Status && apierrors.IsForbidden(err) {
		return skip("%s", f.Message)
	}
	return f
}

// alerts has the level of each problem that also has an alert: critical is LevelFail.
var alerts = map[string]Level{
	"AnnexDown":                        LevelFail,
	"AnnexMainClusterNotReady":         LevelFail,
	"AnnexNoLeader":                    LevelFail,
	"AnnexStoreUnavailable":            LevelFail,
	"AnnexStoreNotWritable":            LevelFail,
	"AnnexStoreAlmostFull":             LevelWarn,
	"AnnexDiskAlmostFull":              LevelWarn,
	"AnnexStoreEndpointsDown":          LevelWarn,
	"AnnexGroupNotPublished":           LevelFail,
	"AnnexMigrationRetrying":           LevelWarn,
	"AnnexMigrationFailed":             LevelWarn,
	"AnnexUnreadableObjects":           LevelFail,
	"AnnexCertificateExpires":          LevelFail,
	"AnnexStoreCertificateExpires":     LevelFail,
	"AnnexPublishedCertificateRefused": LevelWarn,
}

// alert returns a finding with the level of an alert.
func alert(name, fix, format string, args ...any) Finding {
	return Finding{Level: alerts[name], Message: fmt.Sprintf(format, args...), Fix: fix, Alert: name}
}

// runbook is the advice for an alert whose cause is no object.
func runbook(alert string) string { return "docs/troubleshooting.md#" + strings.ToLower(alert) }

// of adds the object that has the problem.
func (f Finding) of(object string, since metav1.Time) Finding {
	f.Object = object
	if !since.IsZero() {
		f.Since = &since
	}
	return f
}

// orOK returns the findings, or if there are none that all is well.
func orOK(findings []Finding, format string, args ...any) []Finding {
	if len(findings) > 0 {
		return findings
	}
	return []Finding{ok(format, args...)}
}

// okBefore adds that all is well, unless something failed.
func okBefore(findings []Finding, format string, args ...any) []Finding {
	if Failed(findings) > 0 {
		return findings
	}
	return append([]Finding{ok(format, args...)}, findings...)
}

// Failed counts the failures.
func Failed(findings []Finding) int {
	count := 0
	for _, f := range findings {
		if f.Level == LevelFail {
			count++
		}
	}
	return count
}

// Attention returns the findings that are not ok, without checks that were skipped.
func (r *Report) Attention() []Finding {
	var found []Finding
	for _, f := range r.Findings {
		if f.Level != LevelOK && f.Level != LevelSkip {
			found = append(found, f)
		}
	}
	return found
}

// Print writes aligned lines, each followed by its command, if there is one.
func Print(out io.Writer, findings []Finding) error {
	width := 0
	for _, f := range findings {
		width = max(width, len(f.Check))
	}
	indent := strings.Repeat(" ", len(LevelFail)+2+width+2)
	var lines strings.Builder
	for _, f := range findings {
		message := strings.ReplaceAll(strings.TrimSpace(f.Message), "\n", "\n"+indent)
		if f.Since != nil {
			message += " (for " + table.Since(f.Since.Time) + ")"
		}
		fmt.Fprintf(&lines, "%-*s  %-*s  %s\n", len(LevelFail), f.Level, width, f.Check, message)
		if f.Fix != "" {
			fmt.Fprintf(&lines, "%s-> %s\n", indent, f.Fix)
		}
	}
	_, err := io.WriteString(out, lines.String())
	return err
}
