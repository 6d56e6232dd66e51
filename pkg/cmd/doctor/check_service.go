// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

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

func checkService(ctx context.Context, e *environment) []finding {
	service, err := e.backend, e.backendErr
	if apierrors.IsNotFound(err) {
		if _, err := e.Kube.CoreV1().Namespaces().Get(ctx, e.service.Namespace, metav1.GetOptions{}); apierrors.IsNotFound(err) {
			return []finding{fail(applyManifests, "there is no namespace %s: annex is not installed, or --publish-service is wrong", e.service.Namespace)}
		}
		return []finding{fail(applyManifests, "there is no Service %s/%s, through which the main cluster reaches annex", e.service.Namespace, e.service.Name)}
	}
	if err != nil {
		return []finding{fail(canI("get", "services", e.service.Namespace), "Service %s/%s cannot be read: %v", e.service.Namespace, e.service.Name, err)}
	}
	if service.Spec.Type == corev1.ServiceTypeExternalName {
		return []finding{ok("%s/%s is an ExternalName of %s, port %d", e.service.Namespace, e.service.Name, service.Spec.ExternalName, e.service.Port)}
	}
	var ports []string
	for _, port := range service.Spec.Ports {
		if port.Port == e.service.Port {
			return []finding{ok("%s/%s has port %d", e.service.Namespace, e.service.Name, port.Port)}
		}
		ports = append(ports, strconv.Itoa(int(port.Port)))
	}
	if len(ports) == 0 {
		return []finding{fail(applyManifests, "annex publishes port %d of Service %s/%s, which has none", e.service.Port, e.service.Namespace, e.service.Name)}
	}
	fix := fmt.Sprintf("annex serve --publish-service=%s/%s:%s", e.service.Namespace, e.service.Name, ports[0])
	return []finding{fail(fix, "annex publishes port %d of Service %s/%s, which has %s", e.service.Port, e.service.Namespace, e.service.Name, strings.Join(ports, ", "))}
}

func checkEndpoints(ctx context.Context, e *environment) []finding {
	if e.backend.Spec.Type == corev1.ServiceTypeExternalName {
		return []finding{ok("the main cluster's API server resolves %s", e.backend.Spec.ExternalName)}
	}
	found, err := e.Kube.DiscoveryV1().EndpointSlices(e.service.Namespace).List(ctx, metav1.ListOptions{
		LabelSelector: discoveryv1.LabelServiceName + "=" + e.service.Name,
	})
	if err != nil {
		return []finding{fail(canI("list", "endpointslices.discovery.k8s.io", e.service.Namespace), "the endpoints of Service %s/%s cannot be read: %v", e.service.Namespace, e.service.Name, err)}
	}
	ready, notReady := countEndpoints(found.Items)
	pods := e.pods()
	switch {
	case ready == 0 && notReady == 0:
		return []finding{fail(pods, "nothing is behind Service %s/%s: no pod of annex matches its selector", e.service.Namespace, e.service.Name)}
	case ready == 0:
		return []finding{fail(e.logs(), "none of the %d replicas behind Service %s/%s is ready", notReady, e.service.Namespace, e.service.Name)}
	case notReady > 0:
		return []finding{warn(pods, "%d of %d replicas are ready", ready, ready+notReady)}
	}
	return []finding{ok("%d ready", ready)}
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
