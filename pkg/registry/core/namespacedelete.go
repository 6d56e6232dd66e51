// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	storeerr "k8s.io/apiserver/pkg/storage/errors"
	"k8s.io/apiserver/pkg/util/dryrun"

	"github.com/annex-dev/annex/pkg/registry/typed"
)

// namespaceREST is the main endpoint of namespaces. It deletes them in two steps.
type namespaceREST struct {
	namespaceVerbs
	store *typed.REST
}

// namespaceVerbs are all verbs except deletecollection.
type namespaceVerbs interface {
	rest.Storage
	rest.StorageWithReadiness
	rest.StorageVersionProvider
	rest.Scoper
	rest.SingularNameProvider
	rest.ShortNamesProvider
	rest.CategoriesProvider
	rest.ResetFieldsStrategy
	rest.Getter
	rest.Lister
	rest.Watcher
	rest.CreaterUpdater
}

var _ rest.GracefulDeleter = &namespaceREST{}

// Delete implements rest.GracefulDeleter. The first request marks the namespace
// Terminating; it is removed once spec.finalizers is empty.
func (r *namespaceREST) Delete(ctx context.Context, name string, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions) (runtime.Object, bool, error) {
	object, err := r.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return nil, false, err
	}
	namespace, ok := object.(*corev1.Namespace)
	if !ok {
		return nil, false, apierrors.NewInternalError(fmt.Errorf("delete namespace %s: unexpected type %T", name, object))
	}
	options = pinned(options, namespace)
	preconditions := &storage.Preconditions{UID: options.Preconditions.UID, ResourceVersion: options.Preconditions.ResourceVersion}
	if err := preconditions.Check(name, namespace); err != nil {
		return nil, false, storeerr.InterpretDeleteError(err, corev1.Resource("namespaces"), name)
	}
	switch {
	case namespace.DeletionTimestamp.IsZero():
		marked, err := r.markTerminating(ctx, name, validate, preconditions, options)
		return marked, false, err
	case len(namespace.Spec.Finalizers) > 0:
		return namespace, false, nil
	default:
		return r.store.Delete(ctx, name, validate, options)
	}
}

// pinned returns a copy of options with the UID of the namespace, so that a new namespace of
// the same name is not deleted.
func pinned(options *metav1.DeleteOptions, namespace *corev1.Namespace) *metav1.DeleteOptions {
	if options == nil {
		options = metav1.NewDeleteOptions(0)
	}
	options = options.DeepCopy()
	if options.Preconditions == nil {
		options.Preconditions = &metav1.Preconditions{}
	}
	if options.Preconditions.UID == nil {
		options.Preconditions.UID = &namespace.UID
	}
	return options
}

func (r *namespaceREST) markTerminating(ctx context.Context, name string, validate rest.ValidateObjectFunc,
	preconditions *storage.Preconditions, options *metav1.DeleteOptions,
) (runtime.Object, error) {
	key, err := r.store.KeyFunc(ctx, name)
	if err != nil {
		return nil, err
	}
	mark := func(existing runtime.Object) (runtime.Object, error) {
		namespace, ok := existing.(*corev1.Namespace)
		if !ok {
			return nil, fmt.Errorf("unexpected type %T", existing)
		}
		if err := validate(ctx, namespace); err != nil {
			return nil, err
		}
		if namespace.DeletionTimestamp.IsZero() {
			now := metav1.Now()
			namespace.DeletionTimestamp = &now
		}
		namespace.Status.Phase = corev1.NamespaceTerminating
		if r.store.EnableGarbageCollection {
			namespace.Finalizers = propagationFinalizers(namespace.Finalizers, options)
		}
		return namespace, nil
	}
	out := r.New()
	err = r.store.Storage.GuaranteedUpdate(ctx, key, out, false, preconditions, storage.SimpleUpdate(mark), dryrun.IsDryRun(options.DryRun), nil)
	if err != nil {
		return nil, deleteError(err, name)
	}
	return out, nil
}

// deleteError converts a storage error into an API error.
func deleteError(err error, name string) error {
	resource := corev1.Resource("namespaces")
	err = storeerr.InterpretGetError(err, resource, name)
	err = storeerr.InterpretUpdateError(err, resource, name)
	if status := apierrors.APIStatus(nil); !errors.As(err, &status) {
		return apierrors.NewInternalError(fmt.Errorf("mark namespace %s as terminating: %w", name, err))
	}
	return err
}

// propagationFinalizers adds the finalizers for the garbage collector that options request.
func propagationFinalizers(finalizers []string, options *metav1.DeleteOptions) []string {
	var wanted string
	switch {
	case options.OrphanDependents != nil: //nolint:staticcheck // SA1019: old clients still send it.
		if *options.OrphanDependents { //nolint:staticcheck // SA1019: as above.
			wanted = metav1.FinalizerOrphanDependents
		}
	case options.PropagationPolicy == nil:
		return finalizers
	case *options.PropagationPolicy == metav1.DeletePropagationOrphan:
		wanted = metav1.FinalizerOrphanDependents
	case *options.PropagationPolicy == metav1.DeletePropagationForeground:
		wanted = metav1.FinalizerDeleteDependents
	}
	out := slices.DeleteFunc(slices.Clone(finalizers), func(finalizer string) bool {
		return finalizer == metav1.FinalizerOrphanDependents || finalizer == metav1.FinalizerDeleteDependents
	})
	if wanted != "" {
		out = append(out, wanted)
	}
	return out
}
