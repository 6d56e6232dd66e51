// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package hostedresource

import (
	"fmt"
	"time"

	apiextensionshelpers "k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

// Reasons of conditions, besides those copied from the CustomResourceDefinition.
const (
	reasonNotDefined         = "NotDefined"
	reasonNotEstablished     = "NotEstablished"
	reasonEstablished        = "Established"
	reasonNoStore            = "NoStore"
	reasonStoreNotFound      = "StoreNotFound"
	reasonStoreStatusUnknown = "StoreStatusUnknown"
	reasonStoreNotReady      = "StoreNotReady"
	reasonStoreReady         = "StoreReady"
	reasonTerminating        = "Terminating"
	reasonNotPublished       = "NotPublished"
	reasonServed             = "Served"
)

// setState sets the phase and the conditions on the definition and the Store. A nil
// store does not exist.
func setState(status *hostingv1alpha1.HostedResourceStatus, resource *hosted, crd *definition, store *hostingv1alpha1.Store, now time.Time) {
	// A deleted HostedResource is not bound to a new definition: the next HostedResource
	// may name another Store, and the objects would be split between both.
	var uid types.UID
	if crd != nil {
		uid = crd.UID
	}
	leaving := !resource.DeletionTimestamp.IsZero() && uid != "" && uid != status.DefinitionUID
	if leaving {
		uid = ""
	}
	established := establishedCondition(resource.Name, crd)
	stored := storeReadyCondition(status, resource.Spec.StoreName, store)
	status.Phase = phase(crd, established, stored)
	// From now on the Store holds objects of this definition. Requests for the resource
	// wait for this.
	status.DefinitionUID = uid
	ready := readyCondition(status, established, stored)
	if leaving {
		status.Phase = hostingv1alpha1.HostedResourceTerminating
		ready.Status, ready.Reason = metav1.ConditionFalse, reasonTerminating
		ready.Message = "It is being deleted; a new one is created for the definition afterwards"
	}
	for _, condition := range []metav1.Condition{established, stored, ready} {
		condition.ObservedGeneration = resource.Generation
		condition.LastTransitionTime = metav1.NewTime(now)
		meta.SetStatusCondition(&status.Conditions, condition)
	}
}

// phase does not depend on whether the Store is available: it holds the objects anyway.
func phase(crd *definition, established, stored metav1.Condition) hostingv1alpha1.HostedResourcePhase {
	switch {
	case crd != nil && !crd.DeletionTimestamp.IsZero():
		return hostingv1alpha1.HostedResourceTerminating
	case stored.Reason == reasonNoStore || stored.Reason == reasonStoreNotFound:
		return hostingv1alpha1.HostedResourcePending
	case established.Status == metav1.ConditionTrue:
		return hostingv1alpha1.HostedResourceHosted
	default:
		return hostingv1alpha1.HostedResourcePending
	}
}

// establishedCondition copies the definition's condition Established, or NamesAccepted if
// that is False and therefore the cause.
func establishedCondition(name string, crd *definition) metav1.Condition {
	condition := metav1.Condition{Type: hostingv1alpha1.HostedResourceEstablished, Status: metav1.ConditionFalse}
	if crd == nil {
		condition.Reason = reasonNotDefined
		condition.Message = fmt.Sprintf("There is no CustomResourceDefinition %q", name)
		return condition
	}
	source := apiextensionshelpers.FindCRDCondition(crd, apiextensionsv1.Established)
	fallback := reasonEstablished
	if source == nil || source.Status != apiextensionsv1.ConditionTrue {
		fallback = reasonNotEstablished
		if names := apiextensionshelpers.FindCRDCondition(crd, apiextensionsv1.NamesAccepted); names != nil && names.Status == apiextensionsv1.ConditionFalse {
			source = names
		}
	}
	if source == nil {
		condition.Reason = fallback
		condition.Message = "The names of the resource have not been checked yet"
		return condition
	}
	condition.Status = metav1.ConditionStatus(source.Status)
	condition.Reason = source.Reason
	if condition.Reason == "" {
		condition.Reason = fallback
	}
	condition.Message = source.Message
	return condition
}

// storeReadyCondition copies the readiness of the Store. If none is chosen, the condition
// Scheduled has the reason.
func storeReadyCondition(status *hostingv1alpha1.HostedResourceStatus, storeName string, store *hostingv1alpha1.Store) metav1.Condition {
	condition := metav1.Condition{Type: hostingv1alpha1.HostedResourceStoreReady, Status: metav1.ConditionFalse}
	switch {
	case storeName == "":
		condition.Reason = reasonNoStore
		condition.Message = "No store has been chosen yet"
		if scheduled := meta.FindStatusCondition(status.Conditions, hostingv1alpha1.HostedResourceScheduled); scheduled != nil && scheduled.Status == metav1.ConditionFalse {
			condition.Message += ": " + scheduled.Message
		}
		return condition
	case store == nil:
		condition.Reason = reasonStoreNotFound
		condition.Message = fmt.Sprintf("There is no store %q", storeName)
		return condition
	}
	ready := meta.FindStatusCondition(store.Status.Conditions, hostingv1alpha1.StoreReady)
	switch {
	case ready == nil || ready.Status == metav1.ConditionUnknown:
		condition.Status = metav1.ConditionUnknown
		condition.Reason = reasonStoreStatusUnknown
		condition.Message = fmt.Sprintf("Whether store %q is ready is not known", storeName)
	case ready.Status == metav1.ConditionTrue:
		condition.Status = metav1.ConditionTrue
		condition.Reason = reasonStoreReady
		condition.Message = fmt.Sprintf("Store %q holds the objects", storeName)
	default:
		condition.Reason = reasonStoreNotReady
		condition.Message = fmt.Sprintf("Store %q is not ready: %s", storeName, ready.Message)
	}
	return condition
}

// readyCondition summarizes the other conditions, including conditions that other controllers set.
func readyCondition(status *hostingv1alpha1.HostedResourceStatus, established, stored metav1.Condition) metav1.Condition {
	condition := metav1.Condition{Type: hostingv1alpha1.HostedResourceReady}
	if status.Phase == hostingv1alpha1.HostedResourceTerminating {
		condition.Status = metav1.ConditionFalse
		condition.Reason = reasonTerminating
		condition.Message = "The definition of the resource is being deleted, and its objects with it"
		return condition
	}
	if established.Reason == reasonNotDefined {
		// annex has no definition because it does not follow the main cluster's.
		followed := meta.FindStatusCondition(status.Conditions, hostingv1alpha1.HostedResourceDefinitionSynced)
		if followed != nil && followed.Status == metav1.ConditionFalse {
			established.Reason, established.Message = followed.Reason, followed.Message
		}
	}
	for _, cause := range []metav1.Condition{established, stored} {
		if cause.Status != metav1.ConditionTrue {
			condition.Status, condition.Reason, condition.Message = cause.Status, cause.Reason, cause.Message
			return condition
		}
	}
	published := meta.FindStatusCondition(status.Conditions, hostingv1alpha1.HostedResourcePublished)
	if published != nil && published.Status == metav1.ConditionFalse {
		condition.Status = metav1.ConditionFalse
		condition.Reason = reasonNotPublished
		condition.Message = published.Message
		return condition
	}
	condition.Status = metav1.ConditionTrue
	condition.Reason = reasonServed
	condition.Message = "The resource is served"
	return condition
}
