// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/annex-dev/annex/pkg/test/process"
)

// focus begins the names of all tests of api-machinery. Upstream's packages register
// tests of other areas beside them.
const focus = "[sig-api-machinery] "

// report has the fields of ginkgo's report that are used.
type report struct {
	SpecReports []struct {
		ContainerHierarchyTexts    []string
		LeafNodeType, LeafNodeText string
		State                      string
		Failure                    struct{ Message string }
	}
}

// runEndToEnd runs Kubernetes' end-to-end tests with a login.
func runEndToEnd(ctx context.Context, dir, kubeconfig string, exceptions []exception) ([]outcome, error) {
	tests, err := process.Bin(ctx, "e2e-apimachinery")
	if err != nil {
		return nil, err
	}
	kubectl, err := process.Bin(ctx, "kubectl")
	if err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(dir, "tests.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	reportFile := filepath.Join(dir, "report.json")
	command := exec.CommandContext(ctx, tests,
		"--kubeconfig="+kubeconfig, "--kubectl-path="+kubectl, "--provider=skeleton",
		"--allowed-not-ready-nodes=-1", "--dump-logs-on-failure=false",
		"--ginkgo.focus="+regexp.QuoteMeta(focus), "--ginkgo.skip="+skip(exceptions),
		"--ginkgo.no-color", "--ginkgo.timeout=1h", "--ginkgo.json-report="+reportFile)
	command.Env = append(os.Environ(), "KUBECACHEDIR="+filepath.Join(dir, "kubectl-cache"))
	command.Stdout, command.Stderr = log, log
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.WaitDelay = time.Minute
	// It fails because of the exceptions, so the report decides.
	runErr := command.Run()
	content, err := os.ReadFile(reportFile)
	if err != nil {
		return nil, fmt.Errorf("run the tests, see %s: %w", log.Name(), errors.Join(runErr, err))
	}
	var reports []report
	if err := json.Unmarshal(content, &reports); err != nil {
		return nil, fmt.Errorf("read %s: %w", reportFile, err)
	}
	return judge(attemptsOf(reports), exceptions), ctx.Err()
}

// skip returns a regular expression of the tests that are not run. Ginkgo matches it with
// their names, which begin with the name of the suite.
func skip(exceptions []exception) string {
	var patterns []string
	for _, exception := range exceptions {
		for _, pattern := range exception.tests {
			if exception.skipReason != "" {
				patterns = append(patterns, regexp.QuoteMeta(focus)+pattern)
			}
		}
	}
	return strings.Join(patterns, "|")
}

func attemptsOf(reports []report) []attempt {
	var attempts []attempt
	for _, report := range reports {
		for _, spec := range report.SpecReports {
			name, found := strings.CutPrefix(strings.Join(append(spec.ContainerHierarchyTexts, spec.LeafNodeText), " "), focus)
			if spec.LeafNodeType != "It" || !found {
				continue
			}
			attempt := attempt{test: name, state: failed, message: spec.Failure.Message}
			switch spec.State {
			case "passed":
				attempt.state = passed
			case "skipped":
				attempt.state = skipped
			case "pending":
				attempt.state, attempt.message = skipped, "upstream does not run it"
			}
			attempts = append(attempts, attempt)
		}
	}
	return attempts
}
