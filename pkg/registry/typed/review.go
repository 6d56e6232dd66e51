// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package typed

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
)

// ReviewREST is the base of the endpoint of a review: a kind that is created and not stored.
type ReviewREST struct {
	Singular   string
	Namespaced bool
	NewFunc    func() runtime.Object
}

var (
	_ rest.Storage              = ReviewREST{}
	_ rest.Scoper               = ReviewREST{}
	_ rest.SingularNameProvider = ReviewREST{}
)

// New implements rest.Storage.
func (r ReviewREST) New() runtime.Object { return r.NewFunc() }

// Destroy implements rest.Storage.
func (ReviewREST) Destroy() {}

// NamespaceScoped implements rest.Scoper.
func (r ReviewREST) NamespaceScoped() bool { return r.Namespaced }

// GetSingularName implements rest.SingularNameProvider.
func (r ReviewREST) GetSingularName() string { return r.Singular }
