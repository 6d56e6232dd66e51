// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package hostedresource

import (
	"context"
	"fmt"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/controller/framework"
)

// automanaged is the value of the label on what annex made by itself.
const automanaged = "true"

// Short names for signatures.
type (
	definition = apiextensionsv1.CustomResourceDefinition
	hosted     = hostingv1alpha1.HostedResource
)

// reconciler holds what one pass over a HostedResource needs. What get… return
// comes from caches and is never changed.
type reconciler struct {
	getHosted         func(name string) (*hosted, error)
	getDefinition     func(name string) (*definition, error)
	getStore          func(name string) (*hostingv1alpha1.Store, error)
	getLiveDefinition func(ctx context.Context, name string) (*definition, error)

	create       func(ctx context.Context, resource *hosted) error
	updateStatus func(ctx context.Context, resource *hosted) error
	// updateDefinitionStatus is for definitions on their way out.
	updateDefinitionStatus func(ctx context.Context, crd *definition) error
	delete                 func(ctx context.Context, name string, options metav1.DeleteOptions) error

	usage UsageFunc
	// throttle keeps writes of nothing but numbers apart.
	throttle *framework.Throttle
	now      func() time.Time
}

// reconcile brings the HostedResource of one name to its desired state, by one
// write of it at the most: what that write changes comes back as the next pass.
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
		return framework.Result{}, r.createHosted(ctx, name, crd)
	case crd == nil && isLeftover(resource) && resource.Status.DefinitionUID == "":
		return framework.Result{}, r.remove(ctx, resource)
	}
	return r.report(ctx, resource, crd)
}

// isLeftover reports whether a HostedResource exists only for a definition of
// annex's. One that says how annex follows a definition of the main cluster does
// not: annex may never get that.
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
	err := r.create(ctx, &hosted{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{hostingv1alpha1.AutomanagedLabel: automanaged}},
	})
	// One that exists already has not reached the cache yet; it will.
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create hosted resource %s: %w", name, err)
	}
	klog.FromContext(ctx).V(3).Info("Made the hosted resource")
	return nil
}

// isGone reports whether a definition is gone, and its objects with it. It asks the
// server: a cache that lags would free the resource of its Store, or cost the settings
// that somebody may have added.
func (r *reconciler) isGone(ctx context.Context, name string) (bool, error) {
	crd, err := framework.IgnoreNotFound(r.getLiveDefinition(ctx, name))
	if err != nil {
		return false, fmt.Errorf("check that custom resource definition %s is gone: %w", name, err)
	}
	return crd == nil, nil
}

// remove deletes a HostedResource that annex made and whose definition is gone.
func (r *reconciler) remove(ctx context.Context, resource *hosted) error {
	if gone, err := r.isGone(ctx, resource.Name); err != nil || !gone {
		return err
	}
	err := r.delete(ctx, resource.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{
		UID:             ptr.To(resource.UID),
		ResourceVersion: ptr.To(resource.ResourceVersion),
	}})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete hosted resource %s: %w", resource.Name, err)
	}
	klog.FromContext(ctx).V(3).Info("Deleted the hosted resource after its definition")
	return nil
}

// report writes the status if there is news, and puts off news of nothing but
// numbers if such were just written.
func (r *reconciler) report(ctx context.Context, resource *hosted, crd *definition) (framework.Result, error) {
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
	if err := r.setDefinitionStored(ctx, crd, storeReadyCondition(status, resource.Spec.StoreName, store)); err != nil {
		return framework.Result{}, err
	}
	urgent := !equality.Semantic.DeepEqual(status, &resource.Status)
	numbers := setUsage(status, resource.Name, resource.Spec.StoreName, r.usage)
	if !urgent && !numbers {
		return framework.Result{}, nil
	}
	if wait := r.throttle.Delay(resource.Name); wait > 0 && !urgent {
		return framework.Result{RequeueAfter: wait}, nil
	}

	reported := resource.DeepCopy()
	reported.Status = *status
	if err := r.updateStatus(ctx, reported); err != nil && !apierrors.IsNotFound(err) {
		return framework.Result{}, fmt.Errorf("write status of hosted resource %s: %w", resource.Name, err)
	}
	r.throttle.Mark(resource.Name)
	return framework.Result{}, nil
}
