// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package secret

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic"

	"github.com/annex-dev/annex/pkg/registry/typed"
)

// NewStorage returns the endpoint of secrets.
func NewStorage(typer runtime.ObjectTyper, getter generic.RESTOptionsGetter) (*typed.REST, error) {
	return typed.NewREST(typed.Resource{
		Resource: corev1.Resource("secrets"),
		Singular: "secret",
		New:      func() runtime.Object { return &corev1.Secret{} },
		NewList:  func() runtime.Object { return &corev1.SecretList{} },
		Strategy: strategy{typed.Namespaced(typer)},
		Attrs:    attrs,
		Table:    tableConvertor,
	}, getter)
}
