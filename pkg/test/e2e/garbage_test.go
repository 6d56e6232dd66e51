// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/annex-dev/annex/pkg/test/poll"
)

// testCascade deletes a Widget that owns a ConfigMap, which owns a Widget, with each of kubectl's
// propagation policies.
func testCascade(t *testing.T, s *server) {
	namespace := s.namespace(t)
	owned := func(manifest, kind, apiVersion, owner, finalizers string) string {
		uid := s.kubectl.run(t, "get", kind, owner, "-n", namespace, "-o", "jsonpath={.metadata.uid}")
		reference := fmt.Sprintf(`"finalizers":[%s],"ownerReferences":[{"apiVersion":%q,"kind":%q,"name":%q,"uid":%q,"blockOwnerDeletion":true}],"name":`,
			finalizers, apiVersion, kind, owner, uid)
		return strings.Replace(manifest, `"name":`, reference, 1)
	}
	family := func(name, finalizers string) {
		s.kubectl.feed(t, widget(namespace, name, `{}`), "create", "-f", "-")
		child := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":%q,"name":%q}}`, namespace, name)
		s.kubectl.feed(t, owned(child, "Widget", "example.com/v1", name, ""), "create", "-f", "-")
		s.kubectl.feed(t, owned(widget(namespace, name+"-grandchild", `{}`), "ConfigMap", "v1", name, finalizers), "create", "-f", "-")
	}
	left := func(name string) string {
		names := s.kubectl.run(t, "get", "widgets,configmaps", "-n", namespace, "-o", "name")
		var found []string
		for line := range strings.Lines(names) {
			if strings.Contains(line, "/"+name) {
				found = append(found, strings.TrimSpace(line))
			}
		}
		return strings.Join(found, " ")
	}

	family("background", "")
	s.kubectl.run(t, "delete", "widget", "background", "-n", namespace)
	poll.UntilDone(t, "all dependents are deleted", func() (bool, string) { return left("background") == "", left("background") })

	family("orphan", "")
	s.kubectl.run(t, "delete", "widget", "orphan", "-n", namespace, "--cascade=orphan")
	if got := left("orphan"); got != "widget.example.com/orphan-grandchild configmap/orphan" {
		t.Errorf("after an orphaning deletion %q are left", got)
	}
	if got := s.kubectl.run(t, "get", "configmap", "orphan", "-n", namespace, "-o", "jsonpath={.metadata.ownerReferences}"); got != "" {
		t.Errorf("the orphan has the owners %s", got)
	}

	family("foreground", `"example.com/hold"`)
	s.kubectl.run(t, "delete", "widget", "foreground", "-n", namespace, "--cascade=foreground", "--wait=false")
	poll.UntilDone(t, "the grandchild is being deleted", func() (bool, string) {
		got := s.kubectl.run(t, "get", "widget", "foreground-grandchild", "-n", namespace, "-o", "jsonpath={.metadata.deletionTimestamp}")
		return got != "", got
	})
	if got := s.kubectl.run(t, "get", "widget", "foreground", "-n", namespace, "-o", "jsonpath={.metadata.finalizers}"); got != `["foregroundDeletion"]` {
		t.Errorf("the owner waits with the finalizers %s", got)
	}
	s.kubectl.run(t, "patch", "widget", "foreground-grandchild", "-n", namespace, "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
	s.kubectl.run(t, "wait", "widget/foreground", "-n", namespace, "--for=delete", "--timeout=60s")
	if got := left("foreground"); got != "" {
		t.Errorf("after a deletion in the foreground %q are left", got)
	}
}
