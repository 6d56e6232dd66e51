// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package namespace

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/klog/v2"

	"github.com/annex-dev/annex/pkg/controller/framework"
)

const (
	// minRecheck and maxRecheck bound the interval of rechecks while contents wait for
	// finalizers.
	minRecheck = time.Second
	maxRecheck = 8 * time.Second
)

// reconciler holds the dependencies of one reconcile.
type reconciler struct {
	getNamespace    func(ctx context.Context, name string, options metav1.GetOptions) (*corev1.Namespace, error)
	updateStatus    func(ctx context.Context, namespace *corev1.Namespace, options metav1.UpdateOptions) (*corev1.Namespace, error)
	finalize        func(ctx context.Context, namespace *corev1.Namespace, options metav1.UpdateOptions) (*corev1.Namespace, error)
	discover        DiscoverFunc
	listDefinitions func() ([]*definition, error)
	deleteContents  func(ctx context.Context, namespace string, resources []resource) (leftover, []error)
	now             func() time.Time
}

// reconcile reads the namespace from the API, so a conflict needs no handling: the next
// reconcile is the retry.
func (r *reconciler) reconcile(ctx context.Context, name string) (framework.Result, error) {
	namespace, err := framework.IgnoreNotFound(r.getNamespace(ctx, name, metav1.GetOptions{}))
	if err != nil {
		return framework.Result{}, fmt.Errorf("read namespace %s: %w", name, err)
	}
	if namespace == nil || namespace.DeletionTimestamp.IsZero() || !slices.Contains(namespace.Spec.Finalizers, corev1.FinalizerKubernetes) {
		return framework.Result{}, nil
	}
	// Computed before the lists: objects must be absent after the settle period.
	age := r.now().Sub(namespace.DeletionTimestamp.Time)

	left, failed := r.empty(ctx, namespace.Name)
	namespace, err = r.writeStatus(ctx, namespace, left, failed)
	if apierrors.IsNotFound(err) {
		return framework.Result{}, nil
	}
	if err != nil {
		return framework.Result{}, fmt.Errorf("write status of namespace %s: %w", name, err)
	}
	if err := failed.err(); err != nil {
		return framework.Result{}, fmt.Errorf("empty namespace %s: %w", name, err)
	}
	if !left.isEmpty() {
		return framework.Result{RequeueAfter: recheckAfter(age, left.grace)}, nil
	}
	if age < settlePeriod {
		return framework.Result{RequeueAfter: settlePeriod - age}, nil
	}
	return framework.Result{}, r.release(ctx, namespace)
}

// failures are the reasons for which the contents are not completely known, by condition.
type failures struct {
	discovery []error
	parsing   []error
	content   []error
}

// err returns all failures as one error, or nil.
func (f failures) err() error {
	return utilerrors.NewAggregate(slices.Concat(f.discovery, f.parsing, f.content))
}

// empty deletes all known contents, and returns what is left.
func (r *reconciler) empty(ctx context.Context, namespace string) (leftover, failures) {
	var failed failures
	lists, err := r.discover(ctx)
	if err != nil {
		failed.discovery = append(failed.discovery, err)
	}
	definitions, err := r.listDefinitions()
	if err != nil {
		failed.discovery = append(failed.discovery, fmt.Errorf("list custom resource definitions: %w", err))
	}
	resources, parseErrors := resourcesToDelete(lists, definitions)
	failed.parsing = parseErrors
	if len(lists) == 0 && len(failed.discovery) == 0 {
		// Every server has namespaced resources, unless it is not ready.
		failed.discovery = append(failed.discovery, errNothingDiscovered)
	}
	left, errs := r.deleteContents(ctx, namespace, resources)
	failed.content = errs
	return left, failed
}

// writeStatus writes the conditions if they changed, and returns the stored namespace.
func (r *reconciler) writeStatus(ctx context.Context, namespace *corev1.Namespace, left leftover, failed failures) (*corev1.Namespace, error) {
	updated := namespace.DeepCopy()
	changed := setConditions(&updated.Status, left, failed, r.now())
	if updated.Status.Phase != corev1.NamespaceTerminating {
		updated.Status.Phase = corev1.NamespaceTerminating
		changed = true
	}
	if !changed {
		return namespace, nil
	}
	return r.updateStatus(ctx, updated, metav1.UpdateOptions{})
}

// release removes annex's finalizer.
func (r *reconciler) release(ctx context.Context, namespace *corev1.Namespace) error {
	finalized := namespace.DeepCopy()
	finalized.Spec.Finalizers = slices.DeleteFunc(finalized.Spec.Finalizers, func(name corev1.FinalizerName) bool {
		return name == corev1.FinalizerKubernetes
	})
	if _, err := r.finalize(ctx, finalized, metav1.UpdateOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("finalize namespace %s: %w", namespace.Name, err)
	}
	klog.FromContext(ctx).V(2).Info("The namespace is empty and was released")
	return nil
}

// recheckAfter returns when to check again for contents that are being deleted: often at
// first, since most finalizers are quick, and rarely later or during a long grace period.
func recheckAfter(age, grace time.Duration) time.Duration {
	longest := max(maxRecheck, grace/2+time.Second)
	return min(max(age, minRecheck), longest)
}
