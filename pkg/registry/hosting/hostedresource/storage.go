// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package hostedresource

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic"

	"github.com/annex-dev/annex/pkg/apis/hosting"
	"github.com/annex-dev/annex/pkg/registry/typed"
)

// Storage is the endpoints of HostedResources.
type Storage struct {
	HostedResource *typed.Store
	Status         *typed.Subresource
}

// NewStorage returns the endpoints of HostedResources.
func NewStorage(typer runtime.ObjectTyper, getter generic.RESTOptionsGetter) (*Storage, error) {
	store, err := typed.NewStore(typed.Resource{
		Resource: hosting.Resource("hostedresources"),
		Singular: "hostedresource",
		// Not "hr": that is what Flux users type for their HelmReleases, and this
		// group stands beside whatever else a cluster serves.
		ShortNames: []string{"hres"},
		Categories: []string{"annex"},
		New:        func() runtime.Object { return &hosting.HostedResource{} },
		NewList:    func() runtime.Object { return &hosting.HostedResourceList{} },
		Strategy:   newStrategy(typer),
		Attrs:      attrs,
		Table:      tableConvertor,
	}, getter)
	if err != nil {
		return nil, err
	}
	return &Storage{HostedResource: store, Status: store.Subresource(newStatusStrategy(typer))}, nil
}
