// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package health

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

// hostingPath is annex's own group below /apis/.
var hostingPath = hostingv1alpha1.SchemeGroupVersion.String()

const aggregatedDiscovery = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// checkDiscovery checks the main cluster's discovery, both aggregated and legacy, which
// many controllers use.
func checkDiscovery(ctx context.Context, e *environment) []Finding {
	const command = "kubectl api-resources"
	var ours []string
	for _, route := range e.published() {
		ours = append(ours, route.Spec.Group+"/"+route.Spec.Version)
	}
	fresh, stale, took, err := e.aggregated(ctx)
	if err != nil {
		return []Finding{fail("kubectl get --raw /apis", "the main cluster's discovery: %v", err)}
	}
	var findings []Finding
	for _, version := range stale {
		if slices.Contains(ours, version) {
			findings = append(findings, fail(e.logs(), "the main cluster's discovery of %s is stale: it does not reach annex", version))
		} else {
			findings = append(findings, warn("kubectl get apiservices", "the main cluster's discovery of %s, which is not annex's, is stale", version))
		}
	}
	legacy, err := e.legacy(ctx)
	if err != nil {
		return append(findings, fail("kubectl get --raw /apis", "the main cluster's unaggregated discovery: %v", err))
	}
	for _, version := range ours {
		if !slices.Contains(fresh, version) && !slices.Contains(stale, version) {
			findings = append(findings, fail(command, "the main cluster's discovery has no %s", version))
		}
		if !slices.Contains(legacy, version) {
			findings = append(findings, fail(command, "the main cluster's unaggregated discovery has no %s", version))
			continue
		}
		if answer, err := e.get(ctx, "/apis/"+version, applicationJSON); err != nil || answer.status != http.StatusOK {
			findings = append(findings, fail("kubectl get --raw /apis/"+version, "discovery of %s through the main cluster: %s", version, outcome(answer, err)))
		}
	}
	return okBefore(findings, "%d group versions, %d of annex, in %s", len(fresh)+len(stale), len(ours), took.Round(100*time.Microsecond))
}

// aggregated returns the group versions of /apis that are fresh and that are not.
func (e *environment) aggregated(ctx context.Context) (fresh, stale []string, took time.Duration, err error) {
	var list apidiscoveryv2.APIGroupDiscoveryList
	answer, err := e.decode(ctx, "/apis", aggregatedDiscovery, &list)
	if err != nil {
		return nil, nil, 0, err
	}
	if list.Kind != "APIGroupDiscoveryList" {
		return nil, nil, 0, fmt.Errorf("/apis is of kind %q: the main cluster is too old for aggregated discovery", list.Kind)
	}
	for _, group := range list.Items {
		for _, version := range group.Versions {
			name := group.Name + "/" + version.Version
			if version.Freshness == apidiscoveryv2.DiscoveryFreshnessStale {
				stale = append(stale, name)
			} else {
				fresh = append(fresh, name)
			}
		}
	}
	return fresh, stale, answer.answered.Sub(answer.sent), nil
}

// legacy returns the group versions of unaggregated discovery.
func (e *environment) legacy(ctx context.Context) ([]string, error) {
	var list metav1.APIGroupList
	if _, err := e.decode(ctx, "/apis", applicationJSON, &list); err != nil {
		return nil, err
	}
	var versions []string
	for _, group := range list.Groups {
		for _, version := range group.Versions {
			versions = append(versions, version.GroupVersion)
		}
	}
	return versions, nil
}

func outcome(a *answer, err error) string {
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%d %s: %s", a.status, http.StatusText(a.status), strings.TrimSpace(firstLine(a.body)))
}
