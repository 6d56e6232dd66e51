// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiservice

import (
	"fmt"
	"maps"
	"slices"

	apiextensionslisters "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	aggregatorlisters "k8s.io/kube-aggregator/pkg/client/listers/apiregistration/v1"

	hostinglisters "github.com/annex-dev/annex/pkg/generated/listers/hosting/v1alpha1"
)

// listers are what the informers know.
type listers struct {
	mainAPIServices  aggregatorlisters.APIServiceLister
	mainDefinitions  apiextensionslisters.CustomResourceDefinitionLister
	annexDefinitions apiextensionslisters.CustomResourceDefinitionLister
	annexHosted      hostinglisters.HostedResourceLister
}

func newListers(config Config) listers {
	return listers{
		mainAPIServices:  config.MainAPIServiceInformer.Lister(),
		mainDefinitions:  config.MainDefinitionInformer.Lister(),
		annexDefinitions: config.AnnexDefinitionInformer.Lister(),
		annexHosted:      config.AnnexHostedInformer.Lister(),
	}
}

// snapshot is all there is.
type snapshot struct {
	apiServices                       []*apiService
	mainDefinitions, annexDefinitions []*definition
	hosted                            []*hosted
}

func (c listers) list() (snapshot, error) {
	var all snapshot
	var err error
	if all.apiServices, err = c.mainAPIServices.List(labels.Everything()); err != nil {
		return all, fmt.Errorf("list APIServices of the main cluster: %w", err)
	}
	if all.mainDefinitions, err = c.mainDefinitions.List(labels.Everything()); err != nil {
		return all, fmt.Errorf("list custom resource definitions of the main cluster: %w", err)
	}
	if all.annexDefinitions, err = c.annexDefinitions.List(labels.Everything()); err != nil {
		return all, fmt.Errorf("list custom resource definitions: %w", err)
	}
	if all.hosted, err = c.annexHosted.List(labels.Everything()); err != nil {
		return all, fmt.Errorf("list hosted resources: %w", err)
	}
	return all, nil
}

// view picks out what matters to one group.
func (c listers) view(group string) (*view, error) {
	all, err := c.list()
	if err != nil {
		return nil, err
	}
	v := &view{
		group:            group,
		annexDefinitions: ofGroup(all.annexDefinitions, group),
		mainDefinitions:  ofGroup(all.mainDefinitions, group),
		apiServices:      map[string]*apiService{},
	}
	for _, current := range all.apiServices {
		if current.Spec.Group == group {
			v.apiServices[current.Spec.Version] = current
		}
	}
	for _, resource := range all.hosted {
		if schema.ParseGroupResource(resource.Name).Group == group {
			v.hosted = append(v.hosted, resource)
		}
	}
	return v, nil
}

func ofGroup(definitions []*definition, group string) []*definition {
	var of []*definition
	for _, crd := range definitions {
		if crd.Spec.Group == group {
			of = append(of, crd)
		}
	}
	return of
}

// groups are those that annex serves, and those that it may have served.
func (c listers) groups() ([]string, error) {
	all, err := c.list()
	if err != nil {
		return nil, err
	}
	groups := map[string]bool{}
	for _, crd := range all.annexDefinitions {
		groups[crd.Spec.Group] = true
	}
	for _, resource := range all.hosted {
		groups[schema.ParseGroupResource(resource.Name).Group] = true
	}
	for _, current := range all.apiServices {
		if current.Spec.Service != nil {
			groups[current.Spec.Group] = true
		}
	}
	delete(groups, hostingVersion.Group)
	return slices.Sorted(maps.Keys(groups)), nil
}
