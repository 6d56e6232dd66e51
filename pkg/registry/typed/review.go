// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package typed

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/rest"
)

// ReviewREST is the endpoint of a review: a kind T that is created and not stored.
type ReviewREST[T runtime.Object] struct {
	Kind       schema.GroupVersionKind
	Namespaced bool
	// Check returns the function that answers a review once admission accepts it, or an API error.
	Check func(ctx context.Context, review T) (answer func() T, err error)
}

var (
	_ rest.Creater              = ReviewREST[runtime.Object]{}
	_ rest.Scoper               = ReviewREST[runtime.Object]{}
	_ rest.SingularNameProvider = ReviewREST[runtime.Object]{}
)

// New implements rest.Storage.
func (r ReviewREST[T]) New() runtime.Object { return newFunc(r.Kind)() }

// Destroy implements rest.Storage.
func (ReviewREST[T]) Destroy() {}

// NamespaceScoped implements rest.Scoper.
func (r ReviewREST[T]) NamespaceScoped() bool { return r.Namespaced }

// GetSingularName implements rest.SingularNameProvider.
func (r ReviewREST[T]) GetSingularName() string { return strings.ToLower(r.Kind.Kind) }

// Create implements rest.Creater.
func (r ReviewREST[T]) Create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, _ *metav1.CreateOptions) (runtime.Object, error) {
	review, ok := obj.(T)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("got a %T, not a %s", obj, r.Kind.Kind))
	}
	answer, err := r.Check(ctx, review)
	if err != nil {
		return nil, err
	}
	if validate != nil {
		if err := validate(ctx, obj.DeepCopyObject()); err != nil {
			return nil, err
		}
	}
	return answer(), nil
}
