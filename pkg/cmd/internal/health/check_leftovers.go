// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package health

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/cmd/internal/footprint"
)

// withItsData is the advice for objects that only annex has.
const withItsData = "Its objects, with everything written since annex served it, are in annex's data: start annex with its volume or etcd, and check again. " +
	"If that data is lost, see Uninstall in docs/install.md"

// checkLeftovers reports what an annex that is gone has left in the main cluster: groups that are
// frozen, held or routed to nothing. What it names is needed to get the objects back.
func checkLeftovers(ctx context.Context, e *environment) []Finding {
	definitions := make([]metav1.ObjectMeta, 0, len(e.crds))
	for i := range e.crds {
		definitions = append(definitions, e.crds[i].ObjectMeta)
	}
	left, err := footprint.Read(ctx, e.Kube, e.routes, definitions)
	if err != nil {
		return []Finding{e.orSkip(err, warn(canI("list", "validatingadmissionpolicies", ""), "what annex has left is not known: %v", err))}
	}
	if len(left.Groups) == 0 {
		return []Finding{ok("no group has anything of an annex that is gone")}
	}
	hosted, err := e.Annex.HostingV1alpha1().HostedResources().List(ctx, metav1.ListOptions{})
	if err != nil {
		hosted = nil
	}
	var findings []Finding
	for _, g := range left.Groups {
		findings = append(findings, e.leftOf(ctx, g, hosted)...)
	}
	return orOK(findings, "%d groups have something of annex, which serves or follows them", len(left.Groups))
}

// leftOf returns what is left of a group. hosted is nil if annex does not answer.
func (e *environment) leftOf(ctx context.Context, g *footprint.Group, hosted *hostingv1alpha1.HostedResourceList) []Finding {
	switch {
	case g.Served():
		return e.routedToNothing(ctx, g.APIServices)
	case (g.Frozen || g.Open) && hosted == nil:
		return []Finding{fail(e.startAnnex(), "the main cluster keeps a copy of %s for an annex that does not serve it: reads get the copy as of the switch, and writes are denied. %s", g.Name, withItsData)}
	case g.Frozen || g.Open:
		return []Finding{e.frozenCopy(g, hosted)}
	case hosted == nil && g.Held:
		return []Finding{fail(e.startAnnex(), "the garbage collector may not delete dependants of %s, because an annex that does not run has not finished a rollback. Start annex, which finishes it", g.Name)}
	case hosted == nil && len(g.Finalized)+len(g.Labelled) > 0:
		names := append(slices.Clone(g.Finalized), g.Labelled...)
		slices.Sort(names)
		return []Finding{warn(e.startAnnex(), "%s has the label or finalizer of an annex that does not run, and the main cluster serves the group. If annex served it before: %s",
			strings.Join(slices.Compact(names), ", "), withItsData)}
	}
	return nil
}

// routedToNothing reports APIServices without their Service.
func (e *environment) routedToNothing(ctx context.Context, of []*apiregistrationv1.APIService) []Finding {
	var findings []Finding
	for _, route := range of {
		target := route.Spec.Service
		if _, err := e.Kube.CoreV1().Services(target.Namespace).Get(ctx, target.Name, metav1.GetOptions{}); apierrors.IsNotFound(err) {
			findings = append(findings, fail(applyManifests, "requests for %s/%s go to Service %s/%s, which is missing. %s",
				route.Spec.Group, route.Spec.Version, target.Namespace, target.Name, withItsData))
		}
	}
	return findings
}

// frozenCopy reports a group that annex has, but does not serve.
func (e *environment) frozenCopy(g *footprint.Group, hosted *hostingv1alpha1.HostedResourceList) Finding {
	var names, resources []string
	for i := range hosted.Items {
		if _, group, _ := strings.Cut(hosted.Items[i].Name, "."); group == g.Name {
			names, resources = append(names, hosted.Items[i].Name), append(resources, "hostedresource/"+hosted.Items[i].Name)
		}
	}
	if len(names) == 0 {
		return fail("kubectl get hostedresources", "the main cluster keeps a copy of %s for an annex with other data: this one has nothing of it, and writes are denied. %s", g.Name, withItsData)
	}
	fix := fmt.Sprintf("kubectl label crd %s %s=true && kubectl wait --for=condition=Published --timeout=60s %s && %s rollback %s",
		strings.Join(names, " "), hostingv1alpha1.HostedLabel, strings.Join(resources, " "), e.Program, g.Name)
	return fail(fix, "annex has the objects of %s, and the main cluster does not send requests there: reads get the copy as of the switch, and writes are denied. "+
		"Hand the group over again, and roll it back", g.Name)
}

// startAnnex is the command that starts annex, or shows why it does not run.
func (e *environment) startAnnex() string {
	if apierrors.IsNotFound(e.backendErr) {
		return applyManifests
	}
	return e.pods()
}
