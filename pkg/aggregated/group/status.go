// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package group

import (
	"fmt"
	"strings"

	apiextensionshelpers "k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

// Reasons of the conditions DefinitionSynced and Published.
const (
	ReasonSynced                = "Synced"
	ReasonTakingOver            = "TakingOver"
	ReasonMoving                = "Moving"
	ReasonGroupIncomplete       = "GroupIncomplete"
	ReasonGroupNotReady         = "GroupNotReady"
	ReasonObjectsExist          = "ObjectsExist"
	ReasonMoveFailed            = "MoveFailed"
	ReasonForbidden             = "Forbidden"
	ReasonNotEstablished        = "NotEstablished"
	ReasonDefinedInAnnex        = "DefinedInAnnex"
	ReasonTerminating           = "Terminating"
	ReasonRejected              = "Rejected"
	ReasonMainDefinitionDeleted = "MainDefinitionDeleted"
	ReasonNotLabelled           = "NotLabelled"

	ReasonNotServed         = "NotServed"
	ReasonForeignAPIService = "ForeignAPIService"
	ReasonDataReplaced      = "DataReplaced"

	ReasonPublished       = "Published"
	ReasonWaitingForAnnex = "WaitingForAnnex"
	ReasonGroupInMain     = "GroupInMain"
	ReasonUnavailable     = "Unavailable"
	ReasonWriteFailed     = "WriteFailed"
	ReasonReverted        = "RouteReverted"
)

// Status is a condition of one definition, or of one version.
type Status struct {
	Status          metav1.ConditionStatus
	Reason, Message string
}

// IsTrue reports whether there is nothing to wait for or to do.
func (s Status) IsTrue() bool { return s.Status == metav1.ConditionTrue }

// No is a status that is not reached.
func No(reason, message string) Status {
	return Status{Status: metav1.ConditionFalse, Reason: reason, Message: message}
}

func no(reason, format string, args ...any) Status { return No(reason, fmt.Sprintf(format, args...)) }

// pending is a status that changes without action by a user.
func pending(format string, args ...any) Status {
	return Status{Status: metav1.ConditionUnknown, Reason: ReasonTakingOver, Message: fmt.Sprintf(format, args...)}
}

// beingMoved is a status that ends with a Migration.
func beingMoved(format string, args ...any) Status {
	return Status{Status: metav1.ConditionUnknown, Reason: ReasonMoving, Message: fmt.Sprintf(format, args...)}
}

// SyncedOf returns the condition DefinitionSynced of a HostedResource, or nil.
func SyncedOf(resource *HostedResource) *metav1.Condition {
	return meta.FindStatusCondition(resource.Status.Conditions, hostingv1alpha1.HostedResourceDefinitionSynced)
}

// notEstablished has the reason for which the main cluster does not serve a definition.
func notEstablished(crd *Definition) Status {
	if names := apiextensionshelpers.FindCRDCondition(crd, apiextensionsv1.NamesAccepted); names != nil && names.Status == apiextensionsv1.ConditionFalse {
		return no(ReasonNotEstablished, "The main cluster does not serve the definition: %s", names.Message)
	}
	return no(ReasonNotEstablished, "The main cluster does not serve the definition yet")
}

func foreignRoute(versions []string) Status {
	return no(ReasonForeignAPIService, "The main cluster sends requests for %s to another server: see its APIServices", strings.Join(versions, ", "))
}

// dataReplaced is for versions whose objects this annex had once. Serving them empty
// would resemble a deletion of all objects.
func (s *State) dataReplaced(versions []string) Status {
	return no(ReasonDataReplaced, "The main cluster sends requests for %s of %s to annex, which had other data when it published them. Check --data-dir and --etcd-servers of annex, or restore that data. docs/crd-sync.md describes how to start without it",
		strings.Join(versions, ", "), s.Name)
}

func mainDefinitionDeleted() Status {
	return no(ReasonMainDefinitionDeleted, "The main cluster no longer has the definition. annex keeps its own with all objects, and continues to serve them. Create the definition again, or delete the one at annex's own endpoint, which deletes the objects")
}

// Rejected is for a definition that annex's API refuses.
func Rejected(err error) Status {
	return no(ReasonRejected, "annex refuses the definition of the main cluster; what annex had before stays in force: %v", err)
}

// FinalizerForbidden is for a definition that annex may not set its finalizer on.
func FinalizerForbidden(err error) Status {
	return no(ReasonForbidden, "annex may not put its finalizer on the definition in the main cluster, so that deleting it there would not delete the objects in annex: %v. Allow it: kubectl annex doctor --print-rbac | kubectl apply -f -", err)
}

// NotServedYet is for a definition whose takeover cannot be recorded yet.
func NotServedYet(err error) Status {
	return pending("Waiting until annex serves the definition: %v", err)
}
