// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// status is how bad a finding is.
type status string

const (
	statusOK   status = "ok"
	statusWarn status = "warn"
	statusFail status = "FAIL"
	// statusSkip is a check that was not run because one that it depends on failed.
	statusSkip status = "skip"
)

// finding is one line of the report.
type finding struct {
	Check   string `json:"check"`
	Status  status `json:"status"`
	Message string `json:"message"`
	// Mend is the command that fixes the problem, or shows more about it.
	Mend string `json:"mend,omitempty"`
}

func ok(format string, args ...any) finding {
	return finding{Status: statusOK, Message: fmt.Sprintf(format, args...)}
}

func warn(mend, format string, args ...any) finding {
	return finding{Status: statusWarn, Message: fmt.Sprintf(format, args...), Mend: mend}
}

func fail(mend, format string, args ...any) finding {
	return finding{Status: statusFail, Message: fmt.Sprintf(format, args...), Mend: mend}
}

// failed counts the failures, which make the command exit with 1.
func failed(findings []finding) int {
	count := 0
	for _, f := range findings {
		if f.Status == statusFail {
			count++
		}
	}
	return count
}

// printText writes aligned lines, each followed by its command, if there is one.
func printText(out io.Writer, findings []finding) error {
	width := 0
	for _, c := range checks {
		width = max(width, len(c.name))
	}
	indent := strings.Repeat(" ", len(statusFail)+2+width+2)
	var lines strings.Builder
	for _, f := range findings {
		message := strings.ReplaceAll(strings.TrimSpace(f.Message), "\n", "\n"+indent)
		fmt.Fprintf(&lines, "%-*s  %-*s  %s\n", len(statusFail), f.Status, width, f.Check, message)
		if f.Mend != "" {
			fmt.Fprintf(&lines, "%s-> %s\n", indent, f.Mend)
		}
	}
	_, err := io.WriteString(out, lines.String())
	return err
}

// printJSON writes the findings as JSON.
func printJSON(out io.Writer, findings []finding) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(struct {
		Failed   int       `json:"failed"`
		Findings []finding `json:"findings"`
	}{failed(findings), findings})
}
