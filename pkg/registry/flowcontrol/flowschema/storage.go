// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package flowschema

import (
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic"

	"github.com/annex-dev/annex/pkg/registry/typed"
)

// NewStorage returns the endpoints of FlowSchemas.
func NewStorage(typer runtime.ObjectTyper, getter generic.RESTOptionsGetter) (*typed.REST, *typed.SubresourceREST, error) {
	store, err := typed.NewREST(typed.Resource{
		Resource: flowcontrolv1.Resource("flowschemas"),
		Singular: "flowschema",
		New:      func() runtime.Object { return &flowcontrolv1.FlowSchema{} },
		NewList:  func() runtime.Object { return &flowcontrolv1.FlowSchemaList{} },
		Strategy: newStrategy(typer),
		Table:    tableConvertor,
	}, getter)
	if err != nil {
		return nil, nil, err
	}
	return store, store.Subresource(newStatusStrategy(typer)), nil
}
