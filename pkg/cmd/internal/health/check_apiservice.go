// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package health

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	apiregistrationhelper "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

// checkAPIService checks the APIService of annex's own group, which is the first one that
// annex publishes.
func checkAPIService(_ context.Context, e *environment) []Finding {
	hosting := e.hosting()
	if hosting == nil {
		return []Finding{fail(e.logs(), "there is no APIService %s: annex creates it while it runs with the rights that it needs", HostingAPIService)}
	}
	if by := hosting.Labels[hostingv1alpha1.PublishedByLabel]; by != e.publishedBy() {
		return []Finding{e.notOurs(hosting, by)}
	}
	if f := e.wrongTarget(hosting); f != nil {
		return []Finding{*f}
	}
	return []Finding{e.availability(hosting)}
}

// notOurs reports the owner of an APIService that is not annex's.
func (e *environment) notOurs(found *apiregistrationv1.APIService, by string) Finding {
	target := found.Spec.Service
	switch {
	case by != "" && target != nil:
		other := serviceOf(found)
		return fail(fmt.Sprintf("%s doctor --publish-service=%s", e.Program, other.String()),
			"APIService %s belongs to the annex that publishes as %q, not to %q: a main cluster has one annex. Check that one", found.Name, by, e.publishedBy())
	case target == nil:
		return fail("kubectl get crds | grep "+found.Spec.Group,
			"the main cluster serves %s/%s itself: a CustomResourceDefinition there takes annex's own group", found.Spec.Group, found.Spec.Version)
	case target.Namespace == e.Service.Namespace && target.Name == e.Service.Name:
		return fail(fmt.Sprintf("kubectl label apiservice %s %s=%s", found.Name, hostingv1alpha1.PublishedByLabel, e.publishedBy()),
			"APIService %s was not created by annex, so annex does not change it. Hand it over", found.Name)
	}
	return fail(fmt.Sprintf("kubectl get apiservice %s -o yaml", found.Name),
		"APIService %s leads to %s/%s and is not annex's", found.Name, target.Namespace, target.Name)
}

// wrongTarget reports a difference that annex would have corrected if it could.
func (e *environment) wrongTarget(found *apiregistrationv1.APIService) *Finding {
	var f Finding
	switch target := found.Spec.Service; {
	case target == nil:
		f = fail(e.logs(), "APIService %s leads to no Service, and annex has not corrected it", found.Name)
	case serviceOf(found) != e.Service:
		at := serviceOf(found)
		f = fail(e.logs(), "APIService %s leads to %s and not to %s, and annex has not corrected it", found.Name, at.String(), e.Service.String())
	case found.Spec.InsecureSkipTLSVerify:
		f = fail(e.logs(), "APIService %s has insecureSkipTLSVerify, so that the main cluster does not verify annex, and annex has not corrected it", found.Name)
	default:
		return nil
	}
	return &f
}

func (e *environment) availability(of *apiregistrationv1.APIService) Finding {
	available := apiregistrationhelper.GetAPIServiceConditionByType(of, apiregistrationv1.Available)
	switch {
	case available == nil:
		return fail("kubectl get apiservice "+of.Name, "the main cluster has not yet checked whether it reaches annex for %s", of.Name)
	case available.Status != apiregistrationv1.ConditionTrue:
		why, fix := e.explain(available)
		return fail(fix, "the main cluster does not reach annex for %s%s: %s: %s", of.Name, why, available.Reason, available.Message)
	}
	return ok("the main cluster reports %s as available", of.Name)
}

// explain returns the cause of a condition's reason and what to do.
func (e *environment) explain(available *apiregistrationv1.APIServiceCondition) (why, fix string) {
	message := available.Message
	switch {
	case available.Reason == "ServiceNotFound":
		return "", applyManifests
	case available.Reason == "ServicePortError":
		return ", because --publish-service has the wrong port", fmt.Sprintf("kubectl -n %s get service %s", e.Service.Namespace, e.Service.Name)
	case available.Reason == "EndpointsNotFound" || available.Reason == "MissingEndpoints":
		return ", because no replica is ready", e.pods()
	case strings.Contains(message, "x509") || strings.Contains(message, "certificate"):
		return ", because the APIService has the wrong authorities", e.rightAuthorities(HostingAPIService)
	case strings.Contains(message, "401") || strings.Contains(message, "Unauthorized"):
		return ", because annex does not trust the front proxy", fmt.Sprintf("kubectl -n kube-system get configmap extension-apiserver-authentication -o yaml && %s", e.logs())
	case strings.Contains(message, "connection refused"):
		return ", because nothing listens there: is annex running, and is the port of --publish-service right", e.logs()
	case strings.Contains(message, "deadline exceeded") || strings.Contains(message, "Timeout") || strings.Contains(message, "timeout"):
		return ", because a firewall or policy drops the connection, or annex hangs: on managed clusters try --secure-port=10250", e.logs()
	}
	return "", e.logs()
}

func checkPublished(_ context.Context, e *environment) []Finding {
	var findings []Finding
	sound, others := 0, map[string][]string{}
	for i := range e.routes {
		item := &e.routes[i]
		by := item.Labels[hostingv1alpha1.PublishedByLabel]
		switch {
		case item.Name == HostingAPIService:
		case by == e.publishedBy():
			f := e.wrongTarget(item)
			if f == nil {
				available := e.availability(item)
				f = &available
			}
			if f.Level == LevelOK {
				sound++
			} else {
				findings = append(findings, *f)
			}
		case by != "":
			others[by] = append(others[by], item.Name)
		case !apiregistrationhelper.IsAPIServiceConditionTrue(item, apiregistrationv1.Available):
			findings = append(findings, warn("kubectl get apiservice "+item.Name,
				"APIService %s, which is not annex's, is not available: the main cluster then deletes no namespace, and its discovery is incomplete", item.Name))
		}
	}
	for _, by := range slices.Sorted(maps.Keys(others)) {
		findings = append(findings, warn("kubectl get apiservices -l "+hostingv1alpha1.PublishedByLabel+"="+by,
			"another annex publishes as %q: %s. A main cluster has one annex; the other may be gone and have left them", by, strings.Join(others[by], ", ")))
	}
	return append([]Finding{ok("%d group versions beside annex's own are sent to annex, and available", sound)}, findings...)
}
