// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"slices"

	apiextensionshelpers "k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

// checkDeletions looks for definitions of the main cluster that are being deleted and
// wait for annex, and for those that could not be deleted because no annex runs.
func checkDeletions(ctx context.Context, e *environment) []finding {
	list, err := e.mainAPIExtensions.ApiextensionsV1().CustomResourceDefinitions().List(ctx, metav1.ListOptions{})
	if err != nil {
		return []finding{warn(canI("list", "customresourcedefinitions", ""), "the definitions that annex holds are not known: %v", err)}
	}
	finalizer := hostingv1alpha1.Finalizer(e.publishedBy())
	leads := checkLeader(ctx, e)[0].Status == statusOK
	var findings []finding
	held := 0
	for i := range list.Items {
		crd := &list.Items[i]
		index := slices.Index(crd.Finalizers, finalizer)
		if index < 0 {
			continue
		}
		held++
		switch letGo := letGoCommand(crd.Name, finalizer, index); {
		case crd.DeletionTimestamp.IsZero() && !leads:
			findings = append(findings, warn(letGo, "if %s is deleted, it waits for annex, of which no replica runs the controllers. Start annex, "+
				"or let the definition go if annex was removed for good", crd.Name))
		case !crd.DeletionTimestamp.IsZero() && !leads:
			findings = append(findings, fail(letGo, "%s is being deleted and waits for annex, of which no replica runs the controllers. Start annex to delete its objects, "+
				"or let the definition go without that", crd.Name))
		case !crd.DeletionTimestamp.IsZero():
			findings = append(findings, warn("kubectl describe crd "+crd.Name, "%s is being deleted: %s", crd.Name, terminatingMessage(crd)))
		}
	}
	if len(findings) == 0 {
		findings = append(findings, ok("%d definitions have annex's finalizer, none waits to be deleted", held))
	}
	return findings
}

func terminatingMessage(crd *apiextensionsv1.CustomResourceDefinition) string {
	if said := apiextensionshelpers.FindCRDCondition(crd, apiextensionsv1.Terminating); said != nil {
		return said.Message
	}
	return "the reason is unknown"
}

// letGoCommand takes one finalizer off a definition, and no other.
func letGoCommand(name, finalizer string, index int) string {
	path := fmt.Sprintf("/metadata/finalizers/%d", index)
	return fmt.Sprintf(`kubectl patch crd %s --type=json -p='[{"op":"test","path":%q,"value":%q},{"op":"remove","path":%q}]'`, name, path, finalizer, path)
}
