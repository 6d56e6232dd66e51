// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	corev1apply "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	// finalizer keeps a Broadcast until its copies are gone: they are in other
	// namespaces, where nothing can be owned by it.
	finalizer = "operator.example.com/copies"
	// fieldOwner is the field manager.
	fieldOwner = client.FieldOwner("broadcast-operator")
	// ownerAnnotation on a copy names its Broadcast, copyLabel marks copies.
	ownerAnnotation = "operator.example.com/broadcast"
	copyLabel       = "operator.example.com/copy"
	// retryRefused is the wait after annex has rejected a copy.
	retryRefused = 2 * time.Second
)

// reconciler reconciles the copies of Broadcasts.
type reconciler struct {
	client.Client
	// live bypasses the cache, which may not have the newest copies.
	live client.Reader
	// targets returns the namespaces that can have copies.
	targets []string
	events  events.EventRecorder
}

// addTo runs the reconciler whenever a Broadcast or one of its copies changes.
func (r *reconciler) addTo(manager ctrl.Manager) error {
	owner := func(_ context.Context, copied client.Object) []reconcile.Request {
		key := types.NamespacedName{}
		if _, err := fmt.Sscanf(copied.GetAnnotations()[ownerAnnotation], "%s %s", &key.Namespace, &key.Name); err != nil {
			return nil
		}
		return []reconcile.Request{{NamespacedName: key}}
	}
	return ctrl.NewControllerManagedBy(manager).
		For(&Broadcast{}).
		Watches(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(owner)).
		Complete(r)
}

// Reconcile updates or deletes the copies of one Broadcast.
func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var broadcast Broadcast
	if err := r.Get(ctx, request.NamespacedName, &broadcast); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !broadcast.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, r.finalize(ctx, &broadcast)
	}
	if controllerutil.AddFinalizer(&broadcast, finalizer) {
		if err := r.Update(ctx, &broadcast); err != nil {
			return ctrl.Result{}, fmt.Errorf("add the finalizer: %w", err)
		}
	}
	copied, applyErr := r.applyCopies(ctx, &broadcast)
	pruneErr := r.deleteCopies(ctx, &broadcast, broadcast.Spec.Namespaces)
	if err := r.applyStatus(ctx, &broadcast, copied, errors.Join(applyErr, pruneErr)); err != nil {
		return ctrl.Result{}, fmt.Errorf("apply the status: %w", err)
	}
	if apierrors.IsForbidden(applyErr) {
		return ctrl.Result{RequeueAfter: retryRefused}, pruneErr
	}
	return ctrl.Result{}, errors.Join(applyErr, pruneErr)
}

// applyCopies returns the namespaces whose copy is up to date, and the first error.
func (r *reconciler) applyCopies(ctx context.Context, broadcast *Broadcast) (copied []string, firstErr error) {
	for _, namespace := range broadcast.Spec.Namespaces {
		configMap := corev1apply.ConfigMap(broadcast.Name, namespace).
			WithLabels(map[string]string{copyLabel: "true"}).
			WithAnnotations(map[string]string{ownerAnnotation: broadcast.Namespace + " " + broadcast.Name}).
			WithData(broadcast.Spec.Data)
		switch err := r.Apply(ctx, configMap, fieldOwner, client.ForceOwnership); {
		case err == nil:
			copied = append(copied, namespace)
		case firstErr == nil:
			firstErr = err
		}
	}
	return copied, firstErr
}

// applyStatus writes the result to the status.
func (r *reconciler) applyStatus(ctx context.Context, broadcast *Broadcast, copied []string, err error) error {
	ready := metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Copied", ObservedGeneration: broadcast.Generation}
	if err != nil {
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, "Failed", err.Error()
		if reason := apierrors.ReasonForError(err); reason != metav1.StatusReasonUnknown {
			ready.Reason = string(reason)
		}
	}
	status := BroadcastStatus{Copies: copied, Conditions: slices.Clone(broadcast.Status.Conditions)}
	changed := meta.SetStatusCondition(&status.Conditions, ready)
	if !changed && slices.Equal(copied, broadcast.Status.Copies) {
		return nil
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&status)
	if err != nil {
		return err
	}
	applied := &unstructured.Unstructured{Object: map[string]any{"status": fields}}
	applied.SetGroupVersionKind(groupVersion.WithKind("Broadcast"))
	applied.SetNamespace(broadcast.Namespace)
	applied.SetName(broadcast.Name)
	if err := r.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(applied), fieldOwner, client.ForceOwnership); err != nil {
		return err
	}
	if changed {
		kind := corev1.EventTypeNormal
		if ready.Status == metav1.ConditionFalse {
			kind = corev1.EventTypeWarning
		}
		r.events.Eventf(broadcast, nil, kind, ready.Reason, "Copy", "Copied to %v. %s", copied, ready.Message)
	}
	return nil
}

// finalize deletes all copies and removes the finalizer.
func (r *reconciler) finalize(ctx context.Context, broadcast *Broadcast) error {
	if !controllerutil.ContainsFinalizer(broadcast, finalizer) {
		return nil
	}
	if err := r.deleteCopies(ctx, broadcast, nil); err != nil {
		return err
	}
	controllerutil.RemoveFinalizer(broadcast, finalizer)
	if err := r.Update(ctx, broadcast); err != nil {
		return fmt.Errorf("remove the finalizer: %w", err)
	}
	return nil
}

// deleteCopies deletes the copies in other namespaces than those to keep.
func (r *reconciler) deleteCopies(ctx context.Context, broadcast *Broadcast, keep []string) error {
	for _, namespace := range r.targets {
		if slices.Contains(keep, namespace) {
			continue
		}
		var copied corev1.ConfigMap
		err := r.live.Get(ctx, types.NamespacedName{Namespace: namespace, Name: broadcast.Name}, &copied)
		if err == nil && copied.Annotations[ownerAnnotation] == broadcast.Namespace+" "+broadcast.Name {
			err = r.Delete(ctx, &copied, client.Preconditions{UID: &copied.UID})
		}
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete the copy in %s: %w", namespace, err)
		}
	}
	return nil
}
