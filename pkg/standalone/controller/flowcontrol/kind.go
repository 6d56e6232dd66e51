// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package flowcontrol

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
	"k8s.io/klog/v2"

	"github.com/annex-dev/annex/pkg/controller/framework"
)

// fieldManager owns what annex writes.
const fieldManager = "annex-flow-control"

// object is a FlowSchema or a PriorityLevelConfiguration.
type object interface {
	comparable
	metav1.Object
	runtime.Object
}

// client writes objects of one kind.
type client[T object] interface {
	Create(ctx context.Context, object T, options metav1.CreateOptions) (T, error)
	Update(ctx context.Context, object T, options metav1.UpdateOptions) (T, error)
	Delete(ctx context.Context, name string, options metav1.DeleteOptions) error
}

// kind maintains the objects of one kind.
type kind[T object] struct {
	what                 string
	annexObjects         client[T]
	list                 func(ctx context.Context) ([]T, error)
	mandatory, suggested []T
	copy                 func(T) T
	// sameSpec compares specs, except for what an administrator may change; setSpec sets
	// it.
	sameSpec func(wanted, current T) bool
	setSpec  func(wanted, current T)
}

func newSchemas(annexSchemas schemaClient) kind[*flowcontrolv1.FlowSchema] {
	return kind[*flowcontrolv1.FlowSchema]{
		what:         "FlowSchema",
		annexObjects: annexSchemas,
		list: func(ctx context.Context) ([]*flowcontrolv1.FlowSchema, error) {
			list, err := annexSchemas.List(ctx, metav1.ListOptions{})
			if err != nil {
				return nil, err
			}
			return framework.Pointers(list.Items), nil
		},
		mandatory: bootstrap.MandatoryFlowSchemas,
		suggested: bootstrap.SuggestedFlowSchemas,
		copy:      (*flowcontrolv1.FlowSchema).DeepCopy,
		sameSpec: func(wanted, current *flowcontrolv1.FlowSchema) bool {
			return apiequality.Semantic.DeepEqual(wanted.Spec, current.Spec)
		},
		setSpec: func(wanted, current *flowcontrolv1.FlowSchema) { current.Spec = *wanted.Spec.DeepCopy() },
	}
}

func newLevels(annexLevels levelClient) kind[*flowcontrolv1.PriorityLevelConfiguration] {
	return kind[*flowcontrolv1.PriorityLevelConfiguration]{
		what:         "PriorityLevelConfiguration",
		annexObjects: annexLevels,
		list: func(ctx context.Context) ([]*flowcontrolv1.PriorityLevelConfiguration, error) {
			list, err := annexLevels.List(ctx, metav1.ListOptions{})
			if err != nil {
				return nil, err
			}
			return framework.Pointers(list.Items), nil
		},
		mandatory: bootstrap.MandatoryPriorityLevelConfigurations,
		suggested: bootstrap.SuggestedPriorityLevelConfigurations,
		copy:      (*flowcontrolv1.PriorityLevelConfiguration).DeepCopy,
		sameSpec: func(wanted, current *flowcontrolv1.PriorityLevelConfiguration) bool {
			spec := wanted.Spec
			// Administrators may set how much of the exempt level's share others may
			// borrow.
			if spec.Exempt != nil && current.Spec.Exempt != nil {
				spec.Exempt = current.Spec.Exempt
			}
			return apiequality.Semantic.DeepEqual(spec, current.Spec)
		},
		setSpec: func(wanted, current *flowcontrolv1.PriorityLevelConfiguration) {
			current.Spec = *wanted.Spec.DeepCopy()
		},
	}
}

// ensure writes concurrently: etcd writes requests that arrive together to disk at once.
func (k kind[T]) ensure(ctx context.Context) error {
	objects, err := k.list(ctx)
	if err != nil {
		return fmt.Errorf("list every %s: %w", k.what, err)
	}
	current := make(map[string]T, len(objects))
	for _, object := range objects {
		current[object.GetName()] = object
	}
	var steps []func() error
	for _, wanted := range k.mandatory {
		steps = append(steps, func() error { return k.ensureOne(ctx, wanted, current[wanted.GetName()], true) })
	}
	for _, wanted := range k.suggested {
		steps = append(steps, func() error { return k.ensureOne(ctx, wanted, current[wanted.GetName()], false) })
	}
	for _, object := range objects {
		if k.isStale(object) {
			steps = append(steps, func() error { return k.remove(ctx, object) })
		}
	}
	if err := utilerrors.AggregateGoroutines(steps...); err != nil {
		return err
	}
	return nil
}

// ensureOne creates the object, or updates it if annex manages it. A conflicting change
// causes the next reconcile.
func (k kind[T]) ensureOne(ctx context.Context, wanted, current T, mandatory bool) error {
	var none T
	logger := klog.FromContext(ctx).WithValues("kind", k.what, "name", wanted.GetName())
	if current == none {
		_, err := k.annexObjects.Create(ctx, k.copy(wanted), metav1.CreateOptions{FieldManager: fieldManager})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create %s %s: %w", k.what, wanted.GetName(), err)
		}
		logger.V(2).Info("Created a flow control object")
		return nil
	}
	revised := k.revise(wanted, current, mandatory)
	if revised == none {
		return nil
	}
	_, err := k.annexObjects.Update(ctx, revised, metav1.UpdateOptions{FieldManager: fieldManager})
	if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		return fmt.Errorf("update %s %s: %w", k.what, wanted.GetName(), err)
	}
	logger.V(2).Info("Updated a flow control object")
	return nil
}

// revise returns the updated object, or nil if it may stay. Its annotation always records
// whether annex manages the spec.
func (k kind[T]) revise(wanted, current T, mandatory bool) T {
	update := mandatory || updatesSpec(current)
	revised := k.copy(current)
	changed := false
	if update && !k.sameSpec(wanted, current) {
		k.setSpec(wanted, revised)
		changed = true
	}
	if says, known := annotated(current); !known || says != update {
		annotations := revised.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[flowcontrolv1.AutoUpdateAnnotationKey] = strconv.FormatBool(update)
		revised.SetAnnotations(annotations)
		changed = true
	}
	if !changed {
		var none T
		return none
	}
	return revised
}

// updatesSpec reports whether annex manages the spec of a suggested object: as annotated,
// or if the spec was never changed.
func updatesSpec(current metav1.Object) bool {
	if says, known := annotated(current); known {
		return says
	}
	return current.GetGeneration() == 1
}

// annotated returns the value of the annotation, and whether it is valid.
func annotated(object metav1.Object) (update, known bool) {
	update, err := strconv.ParseBool(object.GetAnnotations()[flowcontrolv1.AutoUpdateAnnotationKey])
	return update, err == nil
}

// isStale reports whether an earlier version created the object, annex manages it, and
// this version does not have it.
func (k kind[T]) isStale(object T) bool {
	update, _ := annotated(object)
	return update && !slices.ContainsFunc(slices.Concat(k.mandatory, k.suggested),
		func(wanted T) bool { return wanted.GetName() == object.GetName() })
}

// remove deletes the object, unless it has changed.
func (k kind[T]) remove(ctx context.Context, object T) error {
	uid, version := object.GetUID(), object.GetResourceVersion()
	err := k.annexObjects.Delete(ctx, object.GetName(), metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version},
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete %s %s, which annex no longer needs: %w", k.what, object.GetName(), err)
	}
	klog.FromContext(ctx).V(2).Info("Deleted a flow control object of an earlier version", "kind", k.what, "name", object.GetName())
	return nil
}
