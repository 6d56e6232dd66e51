// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceaccount

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic"

	"github.com/annex-dev/annex/pkg/registry/typed"
)

// NewStorage returns the endpoint of service accounts.
func NewStorage(typer runtime.ObjectTyper, getter generic.RESTOptionsGetter) (*typed.REST, error) {
	return typed.NewREST(typed.Resource{
		Resource:            corev1.Resource("serviceaccounts"),
		Singular:            "serviceaccount",
		ShortNames:          []string{"sa"},
		New:                 func() runtime.Object { return &corev1.ServiceAccount{} },
		NewList:             func() runtime.Object { return &corev1.ServiceAccountList{} },
		Strategy:            strategy{typed.Namespaced(typer)},
		Table:               tableConvertor,
		ReturnDeletedObject: true,
	}, getter)
}
