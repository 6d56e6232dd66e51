// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"time"

	apiextensionshelpers "k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/cmd/status"
)

// checkThroughMain reads an object of annex as any user of the main cluster would.
func checkThroughMain(ctx context.Context, e *environment) []finding {
	const command = "kubectl get --raw /apis/hosting.annex.dev/v1alpha1/stores/default"
	started := e.now()
	store, err := e.Annex.HostingV1alpha1().Stores().Get(ctx, hostingv1alpha1.DefaultStoreName, metav1.GetOptions{})
	took := e.now().Sub(started).Round(time.Millisecond)
	switch {
	case apierrors.IsUnauthorized(err):
		return []finding{fail(command, "the main cluster reaches annex, which does not trust its front proxy: %v", err)}
	case apierrors.IsForbidden(err):
		return []finding{fail(canI("get", "stores.hosting.annex.dev", ""), "you may not read annex's objects: %v", err)}
	case err != nil:
		return []finding{fail(command, "a Store cannot be read through the main cluster: %v", err)}
	}
	if ready := meta.FindStatusCondition(store.Status.Conditions, hostingv1alpha1.StoreReady); ready != nil && ready.Status == metav1.ConditionFalse {
		return []finding{fail("kubectl get store default -o yaml", "annex answers through the main cluster in %s, but its store is not ready: %s: %s", took, ready.Reason, ready.Message)}
	}
	return []finding{ok("store %q is read through the main cluster in %s", store.Name, took)}
}

// checkResources reports the conditions of HostedResources, and labelled definitions
// without a HostedResource.
func checkResources(ctx context.Context, e *environment) []finding {
	list, err := e.Annex.HostingV1alpha1().HostedResources().List(ctx, metav1.ListOptions{})
	if err != nil {
		return []finding{fail("kubectl get hostedresources", "the HostedResources cannot be read: %v", err)}
	}
	var findings []finding
	known := map[string]bool{}
	for i := range list.Items {
		known[list.Items[i].Name] = true
		findings = append(findings, conditionsOf(&list.Items[i])...)
	}
	for _, crd := range e.hostedDefinitions() {
		if !known[crd.Name] {
			findings = append(findings, fail(e.logs(), "%s is labelled %s=true, and has no HostedResource", crd.Name, hostingv1alpha1.HostedLabel))
		}
	}
	return orOK(findings, "%d resources without a problem", len(list.Items))
}

// conditionsOf reports the conditions of a resource that indicate a problem, or, as
// warnings, that annex waits.
func conditionsOf(resource *hostingv1alpha1.HostedResource) []finding {
	var findings []finding
	for _, condition := range status.ProblemsOf(resource.Status.Conditions) {
		report := fail
		if condition.Status == metav1.ConditionUnknown || condition.Reason == "Terminating" {
			report = warn
		}
		message, fix := splitCommand(condition.Message)
		if fix == "" {
			fix = mendCondition(resource.Name, condition.Reason)
		}
		findings = append(findings, report(fix, "%s: %s is %s: %s: %s", resource.Name, condition.Type, condition.Status, condition.Reason, message))
	}
	return findings
}

// destroying are words of commands that lose data or give up a protection. They are never offered as
// a fix: another release of annex may have written the condition.
var destroying = regexp.MustCompile(`\b(delete|drain|replace|remove|force|finalizers|adopt-cluster)\b`)

// splitCommand splits the command from the end of a condition's message.
func splitCommand(message string) (text, command string) {
	const start = "kubectl "
	index := strings.Index(message, start)
	if index < 0 || destroying.MatchString(message[index:]) {
		return message, ""
	}
	return strings.TrimRight(message[:index], ": "), message[index:]
}

// mendCondition is the command for a reason whose message has none.
func mendCondition(name, reason string) string {
	switch reason {
	case "ObjectsExist":
		return "kubectl get " + name + " -A"
	case "MoveFailed":
		return "kubectl get migrations"
	case "Rejected":
		return "kubectl edit crd " + name
	case "ForeignAPIService", "GroupInMain", "Unavailable", "DataReplaced":
		_, group, _ := strings.Cut(name, ".")
		return "kubectl get apiservices | grep " + group
	case "MainDefinitionDeleted":
		return "kubectl get hostedresource " + name + " -o yaml"
	}
	return "kubectl describe hostedresource " + name
}

// checkDeletions reports definitions of the main cluster that are being deleted and
// wait for annex, and for those that could not be deleted because no annex runs.
func checkDeletions(ctx context.Context, e *environment) []finding {
	finalizer := hostingv1alpha1.Finalizer(e.publishedBy())
	leads := checkLeader(ctx, e)[0].Status == statusOK
	var findings []finding
	held := 0
	for i := range e.crds {
		crd := &e.crds[i]
		if !slices.Contains(crd.Finalizers, finalizer) {
			continue
		}
		held++
		switch {
		case crd.DeletionTimestamp.IsZero() && !leads:
			findings = append(findings, warn(e.pods(), "if %s is deleted, it waits for annex, of which no replica runs the controllers. Start annex. "+
				"If it was removed for good, see Uninstall in docs/install.md", crd.Name))
		case !crd.DeletionTimestamp.IsZero() && !leads:
			findings = append(findings, fail(e.pods(), "%s is being deleted and waits for annex, of which no replica runs the controllers. Start annex, which deletes the objects first. "+
				"If it was removed for good, see Uninstall in docs/install.md", crd.Name))
		case !crd.DeletionTimestamp.IsZero():
			findings = append(findings, warn("kubectl describe crd "+crd.Name, "%s is being deleted: %s", crd.Name, terminatingMessage(crd)))
		}
	}
	return orOK(findings, "%d definitions have annex's finalizer, none waits to be deleted", held)
}

func terminatingMessage(crd *apiextensionsv1.CustomResourceDefinition) string {
	if said := apiextensionshelpers.FindCRDCondition(crd, apiextensionsv1.Terminating); said != nil {
		return said.Message
	}
	return "the reason is unknown"
}
