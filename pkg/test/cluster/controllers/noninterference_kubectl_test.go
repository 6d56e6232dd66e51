// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package controllers

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"

	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
	"github.com/annex-dev/annex/pkg/test/process"
)

// kubectl runs bin/kubectl on the main cluster and returns its output, stderr
// included.
func kubectl(t *testing.T, input string, args ...string) (output string, err error) {
	t.Helper()
	binary, err := process.Bin(t.Context(), "kubectl")
	expect.NoError(t, err)
	command := exec.CommandContext(t.Context(), binary, append([]string{"--kubeconfig=" + mainCluster.Kubeconfig, "--cache-dir=" + t.TempDir()}, args...)...)
	command.Stdin = strings.NewReader(input)
	var printed bytes.Buffer
	command.Stdout, command.Stderr = &printed, &printed
	err = command.Run()
	return printed.String(), err
}

func testKubectlThroughTheMainCluster(t *testing.T, s *sharedAnnex) {
	w := s.newWidgets(t)
	poll.UntilDone(t, "kubectl explains a field of annex's schema", func() (bool, string) {
		printed, err := kubectl(t, "", "explain", "widgets.spec.color", "--api-version="+w.group+"/v1")
		return err == nil && strings.Contains(printed, "The color of the paint."), printed
	})
	if printed, err := kubectl(t, "", "explain", "stores.spec"); err != nil || !strings.Contains(printed, "VERSION:    v1alpha1") {
		t.Errorf("explain stores.spec: %v\n%s", err, printed)
	}
	manifest := func(spec string) string {
		return "{apiVersion: " + w.group + "/v1, kind: Widget, metadata: {name: w, namespace: " + w.namespace + "}, spec: " + spec + "}"
	}
	printed, err := kubectl(t, manifest("{paint: red}"), "create", "--validate=strict", "-f", "-")
	if err == nil || !strings.Contains(printed, `unknown field "spec.paint"`) {
		t.Errorf("an unknown field: %v\n%s", err, printed)
	}
	if printed, err := kubectl(t, manifest("{color: red}"), "apply", "--server-side", "-f", "-"); err != nil {
		t.Errorf("apply: %v\n%s", err, printed)
	}
	if printed, err := kubectl(t, "", "get", "widgets."+w.group, "-n", w.namespace); err != nil || !strings.Contains(printed, "AGE") {
		t.Errorf("get: %v\n%s", err, printed)
	}
	printed, err = kubectl(t, "", "api-resources", "--categories=annex.dev", "-o", "name")
	expect.NoError(t, err, printed)
	expect.Contains(t, printed, "stores.hosting.annex.dev", "widgets."+w.group)
	if strings.Contains(printed, "configmaps") || strings.Contains(printed, "customresourcedefinitions") {
		t.Errorf("resources of the main cluster have annex's category:\n%s", printed)
	}
}
