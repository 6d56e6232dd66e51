// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package selfsubjectreview answers callers who they are. Nothing is stored.
package selfsubjectreview

import (
	"context"
	"fmt"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
)

// REST is the endpoint. Only create is served.
type REST struct{}

var (
	_ rest.Creater              = &REST{}
	_ rest.Scoper               = &REST{}
	_ rest.SingularNameProvider = &REST{}
)

// NewREST needs nothing: who the caller is was found before.
func NewREST() *REST { return &REST{} }

// New returns an empty review.
func (r *REST) New() runtime.Object { return &authenticationv1.SelfSubjectReview{} }

// Destroy has nothing to release.
func (r *REST) Destroy() {}

// NamespaceScoped is false.
func (r *REST) NamespaceScoped() bool { return false }

// GetSingularName is the name of one.
func (r *REST) GetSingularName() string { return "selfsubjectreview" }

// Create answers who the caller is, after impersonation.
func (r *REST) Create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, _ *metav1.CreateOptions) (runtime.Object, error) {
	if _, ok := obj.(*authenticationv1.SelfSubjectReview); !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("got a %T, not a SelfSubjectReview", obj))
	}
	if validate != nil {
		if err := validate(ctx, obj.DeepCopyObject()); err != nil {
			return nil, err
		}
	}
	caller, ok := genericapirequest.UserFrom(ctx)
	if !ok {
		return nil, apierrors.NewBadRequest("the request has no user")
	}
	answer := &authenticationv1.SelfSubjectReview{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.Now()}}
	answer.Status.UserInfo = authenticationv1.UserInfo{
		Username: caller.GetName(), UID: caller.GetUID(), Groups: slices.Clone(caller.GetGroups()),
	}
	for key, values := range caller.GetExtra() {
		if answer.Status.UserInfo.Extra == nil {
			answer.Status.UserInfo.Extra = map[string]authenticationv1.ExtraValue{}
		}
		answer.Status.UserInfo.Extra[key] = slices.Clone(values)
	}
	return answer, nil
}
