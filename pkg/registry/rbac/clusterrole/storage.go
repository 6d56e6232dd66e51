// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterrole

import (
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic"

	"github.com/annex-dev/annex/pkg/registry/typed"
)

// NewStorage returns the endpoint of cluster roles. It does not ask whether the writer
// has the rights himself: package escalation does.
func NewStorage(typer runtime.ObjectTyper, getter generic.RESTOptionsGetter) (*typed.REST, error) {
	return typed.NewREST(typed.Resource{
		Resource: rbacv1.Resource("clusterroles"),
		Singular: "clusterrole",
		New:      func() runtime.Object { return &rbacv1.ClusterRole{} },
		NewList:  func() runtime.Object { return &rbacv1.ClusterRoleList{} },
		Strategy: strategy{typed.ClusterScoped(typer)},
		Table:    tableConvertor,
	}, getter)
}
