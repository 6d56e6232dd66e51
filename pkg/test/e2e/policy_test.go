// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"strings"
	"testing"

	"github.com/annex-dev/annex/pkg/test/poll"
)

// TestPolicy: a policy of the examples denies an object.
func TestPolicy(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	for _, name := range []string{"00-namespace", "30-customresourcedefinition", "80-validatingadmissionpolicy", "81-validatingadmissionpolicybinding"} {
		s.kubectl.run(t, "apply", "-f", examplesDir+"/"+name+".yaml")
	}
	s.kubectl.run(t, "wait", "--for=condition=Established", "-f", widgetCRD)
	widget := func(color string) string {
		return "{apiVersion: example.com/v1, kind: Widget, metadata: {namespace: annex-examples, name: " + color + "}, spec: {color: " + color + "}}"
	}
	refusal := "ValidatingAdmissionPolicy 'no-red-widgets' with binding 'no-red-widgets' denied request: red is sold out"
	poll.UntilDone(t, "a red widget is refused", func() (bool, string) {
		got := s.kubectl.try(t, widget("red"), "apply", "--dry-run=server", "-f", "-")
		return got.code != 0 && strings.Contains(got.stderr, refusal), got.stdout + got.stderr
	})
	s.kubectl.refuse(t, widget("red"), []string{"apply", "-f", "-"}, refusal)
	contains(t, s.kubectl.feed(t, widget("green"), "apply", "-f", "-"), "created")
	contains(t, s.kubectl.run(t, "get", "api-extensions"), "no-red-widgets")
}
