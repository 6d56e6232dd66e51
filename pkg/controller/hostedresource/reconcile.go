// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package hostedresource

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionshelpers "k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/controller/framework"
	"github.com/annex-dev/annex/pkg/storage/layer/corruption"
)

const (
	// automanaged is the value of the label on objects that annex created itself.
	automanaged = "true"

	// definitionStoreReady is a condition of a definition whose deletion waits for its
	// Store.
	definitionStoreReady = apiextensionsv1.CustomResourceDefinitionConditionType("StoreReady")
)

// Short names for signatures.
type (
	definition = apiextensionsv1.CustomResourceDefinition
	hosted     = hostingv1alpha1.HostedResource
)

// reconciler holds the dependencies of one reconcile. The functions get… return objects
// from caches, which are never changed.
type reconciler struct {
	getHosted     func(name string) (*hosted, error)
	getDefinition func(name string) (*definition, error)
	getStore      func(name string) (*hostingv1alpha1.Store, error)

	// These use annex's API.
	getLiveDefinition      func(ctx context.Context, name string, options metav1.GetOptions) (*definition, error)
	create                 func(ctx context.Context, resource *hosted, options metav1.CreateOptions) (*hosted, error)
	updateStatus           func(ctx context.Context, resource *hosted, options metav1.UpdateOptions) (*hosted, error)
	updateDefinitionStatus func(ctx context.Context, crd *definition, options metav1.UpdateOptions) (*definition, error)
	delete                 func(ctx context.Context, name string, options metav1.DeleteOptions) error

	usage      Usage
	unreadable UnreadableObjects
	caches     Caches
	events     events.EventRecorder
	// throttle bounds the rate of writes that change only the usage.
	throttle *framework.Throttle
	now      func() time.Time
}

// reconcile makes at most one write to the HostedResource: that write causes the next
// reconcile.
func (r *reconciler) reconcile(ctx context.Context, name string) (framework.Result, error) {
	crd, err := framework.IgnoreNotFound(r.getDefinition(name))
	if err != nil {
		return framework.Result{}, fmt.Errorf("read custom resource definition %s: %w", name, err)
	}
	resource, err := framework.IgnoreNotFound(r.getHosted(name))
	if err != nil {
		return framework.Result{}, fmt.Errorf("read hosted resource %s: %w", name, err)
	}
	switch {
	case resource == nil:
		r.throttle.Forget(name)
		forgetLimits(name)
		return framework.Result{}, r.createHosted(ctx, name, crd)
	case crd == nil && isLeftover(resource) && resource.Status.DefinitionUID == "":
		return framework.Result{}, r.remove(ctx, resource)
	}
	return r.reconcileStatus(ctx, resource, crd)
}

// isLeftover reports whether a HostedResource exists only for a definition of annex. One
// that reports the sync of a main cluster's definition stays: annex may never get that
// definition.
func isLeftover(resource *hosted) bool {
	return resource.Labels[hostingv1alpha1.AutomanagedLabel] == automanaged &&
		resource.Annotations[hostingv1alpha1.DefinitionFromAnnotation] == "" &&
		resource.DeletionTimestamp.IsZero()
}

// createHosted creates the HostedResource of a CRD, unless that is being deleted.
func (r *reconciler) createHosted(ctx context.Context, name string, crd *definition) error {
	if crd == nil || !crd.DeletionTimestamp.IsZero() {
		return nil
	}
	_, err := r.create(ctx, &hosted{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{hostingv1alpha1.AutomanagedLabel: automanaged}},
	}, metav1.CreateOptions{})
	// One that exists has not reached the cache yet.
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create hosted resource %s: %w", name, err)
	}
	klog.FromContext(ctx).V(3).Info("Created the hosted resource")
	return nil
}

// isGone reads the definition from the server: acting on a cache that lags would free the
// resource of its Store, or delete settings that a user added.
func (r *reconciler) isGone(ctx context.Context, name string) (bool, error) {
	crd, err := framework.IgnoreNotFound(r.getLiveDefinition(ctx, name, metav1.GetOptions{}))
	if err != nil {
		return false, fmt.Errorf("check that custom resource definition %s is gone: %w", name, err)
	}
	return crd == nil, nil
}

// remove deletes a HostedResource that annex created, once its definition is gone.
func (r *reconciler) remove(ctx context.Context, resource *hosted) error {
	if gone, err := r.isGone(ctx, resource.Name); err != nil || !gone {
		return err
	}
	err := r.delete(ctx, resource.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{
		UID:             new(resource.UID),
		ResourceVersion: new(resource.ResourceVersion),
	}})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete hosted resource %s: %w", resource.Name, err)
	}
	klog.FromContext(ctx).V(3).Info("Deleted the hosted resource after its definition")
	return nil
}

// reconcileStatus writes the status if it changes. A change of nothing but the usage is
// postponed if the status was just written.
func (r *reconciler) reconcileStatus(ctx context.Context, resource *hosted, crd *definition) (framework.Result, error) {
	store, err := framework.IgnoreNotFound(r.getStore(resource.Spec.StoreName))
	if err != nil {
		return framework.Result{}, fmt.Errorf("read store %s: %w", resource.Spec.StoreName, err)
	}
	status := resource.Status.DeepCopy()
	if crd == nil && status.DefinitionUID != "" {
		if gone, err := r.isGone(ctx, resource.Name); err != nil || !gone {
			return framework.Result{}, err
		}
	}
	setState(status, resource, crd, store, r.now())
	if err := r.setDefinitionStoreReady(ctx, crd, storeReadyCondition(status, resource.Spec.StoreName, store)); err != nil {
		return framework.Result{}, err
	}
	unreadable := r.setObjectsReadable(status, resource)
	r.setCachedAsSpecified(status, resource)
	urgent := !equality.Semantic.DeepEqual(status, &resource.Status)

	used, known := r.usage.In(resource.Spec.StoreName, schema.ParseGroupResource(resource.Name))
	if known {
		status.Objects, status.Bytes, status.StoredBytes = used.Objects, used.PlainBytes, used.Bytes
	}
	cached, _ := r.caches.Usage(schema.ParseGroupResource(resource.Name))
	status.CachedBytes = cached.Total()
	r.setWithinLimits(status, resource, used, known)
	urgent = urgent || limitsChanged(&resource.Status, status)
	if equality.Semantic.DeepEqual(status, &resource.Status) {
		return framework.Result{}, nil
	}
	if wait := r.throttle.Delay(resource.Name); wait > 0 && !urgent {
		return framework.Result{RequeueAfter: wait}, nil
	}

	// Also if the write fails: a cache that lags behind another writer would repeat a conflict
	// with each change of the usage.
	r.throttle.Mark(resource.Name)
	updated := resource.DeepCopy()
	updated.Status = *status
	if _, err := r.updateStatus(ctx, updated, metav1.UpdateOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return framework.Result{}, fmt.Errorf("write status of hosted resource %s: %w", resource.Name, err)
	}
	r.recordEvents(resource, status, unreadable)
	return framework.Result{}, nil
}

// limitsChanged reports whether the condition WithinLimits changed in more than its
// message.
func limitsChanged(before, after *hostingv1alpha1.HostedResourceStatus) bool {
	old := meta.FindStatusCondition(before.Conditions, hostingv1alpha1.HostedResourceWithinLimits)
	updated := meta.FindStatusCondition(after.Conditions, hostingv1alpha1.HostedResourceWithinLimits)
	if updated == nil {
		return old != nil
	}
	return framework.IsUrgent(updated, old)
}

func (r *reconciler) setCondition(status *hostingv1alpha1.HostedResourceStatus, resource *hosted, condition metav1.Condition) {
	condition.ObservedGeneration = resource.Generation
	condition.LastTransitionTime = metav1.NewTime(r.now())
	meta.SetStatusCondition(&status.Conditions, condition)
}

// recordEvents records that a limit is reached, and each change of ObjectsReadable.
func (r *reconciler) recordEvents(resource *hosted, status *hostingv1alpha1.HostedResourceStatus, unreadable []corruption.Object) {
	find := func(name string) (before, after *metav1.Condition) {
		return meta.FindStatusCondition(resource.Status.Conditions, name), meta.FindStatusCondition(status.Conditions, name)
	}
	before, after := find(hostingv1alpha1.HostedResourceWithinLimits)
	if after != nil && after.Status == metav1.ConditionFalse && (before == nil || before.Status != after.Status) {
		r.events.Eventf(resource, nil, corev1.EventTypeWarning, after.Reason, "Limit", "%s", after.Message)
	}
	before, after = find(hostingv1alpha1.HostedResourceObjectsReadable)
	if after == nil || before != nil && before.Status == after.Status && before.Message == after.Message {
		return
	}
	kind, message := corev1.EventTypeNormal, after.Message
	if after.Status == metav1.ConditionFalse {
		kind = corev1.EventTypeWarning
	}
	if len(unreadable) > 0 {
		message = unreadableSummary(unreadable) + ": " + corruption.Names(unreadable)
	}
	r.events.Eventf(resource, nil, kind, after.Reason, "Read", "%s", message)
}

// setDefinitionStoreReady writes the readiness of the Store into a definition that is
// being deleted: its objects are deleted from that Store first. The finalizer of
// apiextensions-apiserver retries with growing delays while the Store is unavailable,
// but at once when the definition changes, as it does here once the Store is back.
func (r *reconciler) setDefinitionStoreReady(ctx context.Context, crd *definition, ready metav1.Condition) error {
	if crd == nil || crd.DeletionTimestamp.IsZero() || !needsDefinitionStoreReady(crd, ready) {
		return nil
	}
	updated := crd.DeepCopy()
	apiextensionshelpers.SetCRDCondition(updated, apiextensionsv1.CustomResourceDefinitionCondition{
		Type:    definitionStoreReady,
		Status:  apiextensionsv1.ConditionStatus(ready.Status),
		Reason:  ready.Reason,
		Message: ready.Message,
	})
	if _, err := r.updateDefinitionStatus(ctx, updated, metav1.UpdateOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("write condition %s of custom resource definition %s: %w", definitionStoreReady, crd.Name, err)
	}
	return nil
}

// needsDefinitionStoreReady reports whether the definition lacks the present readiness of
// its Store. A Store that was available all along needs no condition.
func needsDefinitionStoreReady(crd *definition, ready metav1.Condition) bool {
	current := apiextensionshelpers.FindCRDCondition(crd, definitionStoreReady)
	switch {
	case ready.Status == metav1.ConditionUnknown || ready.Reason == reasonNoStore:
		return false
	case current == nil:
		return ready.Status == metav1.ConditionFalse
	default:
		return string(current.Status) != string(ready.Status) || current.Reason != ready.Reason
	}
}
