// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package prioritylevelconfiguration

import (
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic"

	"github.com/annex-dev/annex/pkg/registry/typed"
)

// NewStorage returns the endpoints of PriorityLevelConfigurations.
func NewStorage(typer runtime.ObjectTyper, getter generic.RESTOptionsGetter) (*typed.REST, *typed.SubresourceREST, error) {
	store, err := typed.NewREST(typed.Resource{
		Resource: flowcontrolv1.Resource("prioritylevelconfigurations"),
		Singular: "prioritylevelconfiguration",
		New:      func() runtime.Object { return &flowcontrolv1.PriorityLevelConfiguration{} },
		NewList:  func() runtime.Object { return &flowcontrolv1.PriorityLevelConfigurationList{} },
		Strategy: newStrategy(typer),
		Table:    tableConvertor,
	}, getter)
	if err != nil {
		return nil, nil, err
	}
	return store, store.Subresource(newStatusStrategy(typer)), nil
}
