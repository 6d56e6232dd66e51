// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

// checkOpenAPI checks whether the main cluster's OpenAPI documents are complete, on which
// kubectl, Helm and Argo CD depend, and compares them with those of --compare.
func checkOpenAPI(ctx context.Context, e *environment) []finding {
	now, err := e.takeSnapshot(ctx)
	if err != nil {
		return []finding{fail("kubectl get --raw /openapi/v2 > /dev/null", "the main cluster's OpenAPI documents: %v", err)}
	}
	published, err := e.published(ctx)
	if err != nil {
		return []finding{fail(canI("list", "apiservices", ""), "%v", err)}
	}
	var findings []finding
	for i := range published {
		spec := &published[i].Spec
		if path := "apis/" + spec.Group + "/" + spec.Version; now.V3[path] == "" {
			findings = append(findings, fail("kubectl get --raw /openapi/v3", "the main cluster has no OpenAPI v3 document of %s", path))
		}
	}
	if e.save != "" {
		if err := now.write(e.save); err != nil {
			findings = append(findings, fail(e.program+" doctor --save /tmp/openapi.json", "--save %s: %v", e.save, err))
		} else {
			findings = append(findings, ok("written to %s", e.save))
		}
	}
	if e.compare != "" {
		findings = append(findings, e.compareSnapshot(ctx, now)...)
	}
	if failed(findings) == 0 {
		findings = append([]finding{ok("v2 has %d paths and %d definitions, v3 has %d documents", len(now.Paths), len(now.Definitions), len(now.V3))}, findings...)
	}
	return findings
}

// compareSnapshot reports what has changed outside of the groups that are annex's.
func (e *environment) compareSnapshot(ctx context.Context, now *snapshot) []finding {
	before, err := readSnapshot(e.compare)
	if err != nil {
		return []finding{fail(e.program+" doctor --save "+e.compare, "--compare %s: %v", e.compare, err)}
	}
	groups, err := e.groupsOfAnnex(ctx)
	if err != nil {
		return []finding{fail(canI("list", "apiservices", ""), "%v", err)}
	}
	changes, within := before.changes(now, groups)
	// New entries, often of a CRD that a user has installed, come last.
	slices.SortStableFunc(changes, func(a, b change) int { return cmp.Compare(b.how, a.how) })
	var findings []finding
	const enough = 10
	for i, change := range changes {
		if i == enough {
			findings = append(findings, warn("", "and %d more changes outside of annex's groups", len(changes)-enough))
			break
		}
		report := fail
		if change.how == appeared {
			// Users may have installed CRDs.
			report = warn
		}
		findings = append(findings, report(e.logs(), "since %s: %s %s", e.compare, change.entry, change.how))
	}
	if len(findings) == 0 {
		findings = append(findings, ok("since %s nothing has changed outside of annex's groups, and %d entries inside them", e.compare, within))
	}
	return findings
}

// groupsOfAnnex are the groups that the main cluster sends to this annex or might.
func (e *environment) groupsOfAnnex(ctx context.Context) ([]string, error) {
	list, err := e.mainAPIRegistration.ApiregistrationV1().APIServices().List(ctx, metav1.ListOptions{LabelSelector: hostingv1alpha1.PublishedByLabel})
	if err != nil {
		return nil, fmt.Errorf("list the APIServices of annex in the main cluster: %w", err)
	}
	groups := []string{hostingv1alpha1.SchemeGroupVersion.Group}
	for i := range list.Items {
		groups = append(groups, list.Items[i].Spec.Group)
	}
	return groups, nil
}

// inGroups reports whether an entry of a document belongs to one of the groups.
// Definitions are named by the group in reverse, annex's own by its Go package.
func inGroups(entry string, groups []string) bool {
	for _, group := range groups {
		path := "apis/" + group
		trimmed := strings.Trim(entry, "/")
		if trimmed == path || strings.HasPrefix(trimmed, path+"/") || strings.HasPrefix(entry, reversed(group)+".") {
			return true
		}
	}
	return strings.HasPrefix(entry, "com.github.annex-dev.annex.")
}

func reversed(group string) string {
	labels := strings.Split(group, ".")
	for i, j := 0, len(labels)-1; i < j; i, j = i+1, j-1 {
		labels[i], labels[j] = labels[j], labels[i]
	}
	return strings.Join(labels, ".")
}
