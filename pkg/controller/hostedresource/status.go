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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

// Reasons in the conditions of a HostedResource, beside those that the
// CustomResourceDefinition gives.
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

// setState states everything in the status but the numbers. A nil store does not
// exist.
func setState(status *hostingv1alpha1.HostedResourceStatus, resource *hosted, crd *definition, store *hostingv1alpha1.Store, now time.Time) {
	// The next HostedResource may name another Store: what is written there and here
	// would be two halves of the same resource.
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
	// What the Store holds is of this definition from now on: requests for the
	// resource wait for it.
	status.DefinitionUID = uid
	ready := readyCondition(status, established, stored)
	if leaving {
		status.Phase = hostingv1alpha1.HostedResourceTerminating
		ready.Status, ready.Reason = metav1.ConditionFalse, reasonTerminating
		ready.Message = "It is being deleted: once it is gone, one is made for the definition"
	}
	for _, condition := range []metav1.Condition{established, stored, ready} {
		condition.ObservedGeneration = resource.Generation
		condition.LastTransitionTime = metav1.NewTime(now)
		meta.SetStatusCondition(&status.Conditions, condition)
	}
}

// setUsage states how much there is of the resource and reports whether that is
// news. While it is not known, the last that was known stays.
func setUsage(status *hostingv1alpha1.HostedResourceStatus, name, store string, usage UsageFunc) bool {
	of, known := usage(store, schema.ParseGroupResource(name))
	if !known || status.Objects == of.Objects && status.Bytes == of.PlainBytes && status.StoredBytes == of.Bytes {
		return false
	}
	status.Objects, status.Bytes, status.StoredBytes = of.Objects, of.PlainBytes, of.Bytes
	return true
}

// phase sums up what has been done so far. A Store that is down for now holds the
// objects all the same.
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

// establishedCondition says what the definition says, in its own words. If its
// names were refused, that is the cause and its Established only the effect.
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

// storeReadyCondition says whether the Store that holds the resource works. Why there is
// none, the scheduler said in status.
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

// readyCondition sums up the others, those of other controllers in status included.
func readyCondition(status *hostingv1alpha1.HostedResourceStatus, established, stored metav1.Condition) metav1.Condition {
	condition := metav1.Condition{Type: hostingv1alpha1.HostedResourceReady}
	if status.Phase == hostingv1alpha1.HostedResourceTerminating {
		condition.Status = metav1.ConditionFalse
		condition.Reason = reasonTerminating
		condition.Message = "The definition of the resource is being deleted, and its objects with it"
		return condition
	}
	if established.Reason == reasonNotDefined {
		// The main cluster's definition that annex does not follow is why there is
		// none.
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
