// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package health

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

const applyManifests = "kubectl apply -k artifacts/deploy/base"

func checkService(ctx context.Context, e *environment) []Finding {
	service, err := e.backend, e.backendErr
	if apierrors.IsNotFound(err) {
		if _, err := e.Kube.CoreV1().Namespaces().Get(ctx, e.Service.Namespace, metav1.GetOptions{}); apierrors.IsNotFound(err) {
			return []Finding{fail(applyManifests, "there is no namespace %s: annex is not installed, or --publish-service is wrong", e.Service.Namespace)}
		}
		return []Finding{fail(applyManifests, "there is no Service %s/%s, through which the main cluster reaches annex", e.Service.Namespace, e.Service.Name)}
	}
	if err != nil {
		return []Finding{e.orSkip(err, fail(canI("get", "services", e.Service.Namespace), "Service %s/%s cannot be read: %v", e.Service.Namespace, e.Service.Name, err))}
	}
	if service.Spec.Type == corev1.ServiceTypeExternalName {
		return []Finding{ok("%s/%s is an ExternalName of %s, port %d", e.Service.Namespace, e.Service.Name, service.Spec.ExternalName, e.Service.Port)}
	}
	var ports []string
	for _, port := range service.Spec.Ports {
		if port.Port == e.Service.Port {
			return []Finding{ok("%s/%s has port %d", e.Service.Namespace, e.Service.Name, port.Port)}
		}
		ports = append(ports, strconv.Itoa(int(port.Port)))
	}
	if len(ports) == 0 {
		return []Finding{fail(applyManifests, "annex publishes port %d of Service %s/%s, which has none", e.Service.Port, e.Service.Namespace, e.Service.Name)}
	}
	fix := fmt.Sprintf("annex serve --publish-service=%s/%s:%s", e.Service.Namespace, e.Service.Name, ports[0])
	return []Finding{fail(fix, "annex publishes port %d of Service %s/%s, which has %s", e.Service.Port, e.Service.Namespace, e.Service.Name, strings.Join(ports, ", "))}
}

func checkEndpoints(ctx context.Context, e *environment) []Finding {
	if e.backend.Spec.Type == corev1.ServiceTypeExternalName {
		return []Finding{ok("the main cluster's API server resolves %s", e.backend.Spec.ExternalName)}
	}
	found, err := e.Kube.DiscoveryV1().EndpointSlices(e.Service.Namespace).List(ctx, metav1.ListOptions{
		LabelSelector: discoveryv1.LabelServiceName + "=" + e.Service.Name,
	})
	if err != nil {
		return []Finding{e.orSkip(err, fail(canI("list", "endpointslices.discovery.k8s.io", e.Service.Namespace), "the endpoints of Service %s/%s cannot be read: %v", e.Service.Namespace, e.Service.Name, err))}
	}
	ready, notReady := countEndpoints(found.Items)
	e.server.Replicas, e.server.ReadyReplicas = ready+notReady, ready
	pods := e.pods()
	switch {
	case ready == 0 && notReady == 0:
		return []Finding{alert("AnnexDown", pods, "nothing is behind Service %s/%s: no pod of annex matches its selector", e.Service.Namespace, e.Service.Name)}
	case ready == 0:
		return []Finding{alert("AnnexDown", e.logs(), "none of the %d replicas behind Service %s/%s is ready", notReady, e.Service.Namespace, e.Service.Name)}
	case notReady > 0:
		return []Finding{warn(pods, "%d of %d replicas are ready", ready, ready+notReady)}
	}
	return []Finding{ok("%d ready", ready)}
}

// countEndpoints counts each pod once.
func countEndpoints(all []discoveryv1.EndpointSlice) (ready, notReady int) {
	seen := map[string]bool{}
	for _, slice := range all {
		for _, endpoint := range slice.Endpoints {
			key := strings.Join(slices.Sorted(slices.Values(endpoint.Addresses)), ",")
			if target := endpoint.TargetRef; target != nil {
				// A pod with two IP families has two endpoints.
				key = target.Kind + "/" + target.Name
			}
			if seen[key] {
				continue
			}
			seen[key] = true
			if ptr.Deref(endpoint.Conditions.Ready, true) {
				ready++
			} else {
				notReady++
			}
		}
	}
	return ready, notReady
}

// canReview is the command that checks whether the user may review rights.
var canReview = canI("create", "subjectaccessreviews.authorization.k8s.io", "")

// canI is the command that checks a right of the user.
func canI(verb, resource, namespace string) string {
	command := fmt.Sprintf("kubectl auth can-i %s %s", verb, resource)
	if namespace != "" {
		command += " -n " + namespace
	}
	return command
}
