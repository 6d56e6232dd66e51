// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package health

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"time"

	apiextensionshelpers "k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

// checkThroughMain reads annex's objects as any user of the main cluster would.
func checkThroughMain(ctx context.Context, e *environment) []Finding {
	const command = "kubectl get --raw /apis/hosting.annex.dev/v1alpha1/stores"
	var objects *Objects
	took, err := fastest(func() (took time.Duration, err error) {
		started := e.now()
		objects, err = ReadObjects(ctx, e.Annex)
		return e.now().Sub(started), err
	})
	switch {
	case apierrors.IsUnauthorized(err):
		return []Finding{fail(command, "the main cluster reaches annex, which does not trust its front proxy: %v", err)}
	case apierrors.IsForbidden(err):
		return []Finding{fail(canI("list", "stores.hosting.annex.dev", ""), "you may not read annex's objects: %v", err)}
	case err != nil:
		return []Finding{alert("AnnexDown", command, "annex's objects cannot be read through the main cluster: %v", err)}
	}
	e.objects = objects
	return []Finding{slow(ok("%d Stores are read through the main cluster in %s", len(objects.Stores), took.Round(time.Millisecond)), took)}
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
func checkDeletions(ctx context.Context, e *environment) []Finding {
	finalizer := hostingv1alpha1.Finalizer(e.publishedBy())
	leader := checkLeader(ctx, e)[0]
	if leader.Level == LevelSkip {
		return []Finding{leader}
	}
	leads := leader.Level == LevelOK
	var findings []Finding
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
