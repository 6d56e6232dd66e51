// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcequota

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic"

	"github.com/annex-dev/annex/pkg/registry/typed"
)

// NewStorage returns the endpoints of quotas.
func NewStorage(typer runtime.ObjectTyper, getter generic.RESTOptionsGetter) (*typed.REST, *typed.SubresourceREST, error) {
	main := strategy{typed.Namespaced(typer)}
	store, err := typed.NewREST(typed.Resource{
		Resource:            corev1.Resource("resourcequotas"),
		Singular:            "resourcequota",
		ShortNames:          []string{"quota"},
		New:                 func() runtime.Object { return &corev1.ResourceQuota{} },
		NewList:             func() runtime.Object { return &corev1.ResourceQuotaList{} },
		Strategy:            main,
		Table:               tableConvertor,
		ReturnDeletedObject: true,
	}, getter)
	if err != nil {
		return nil, nil, err
	}
	return store, store.Subresource(statusStrategy{main}), nil
}
