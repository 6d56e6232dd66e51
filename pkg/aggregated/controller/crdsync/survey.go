// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package crdsync

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

// noAnnex is the identity for a main cluster without annex: every Service is of another
// server.
var noAnnex = identity{publishedBy: "-"}

// Obstacles returns what, besides objects, would prevent annex from taking over a group of the
// main cluster if all of its definitions had the label. annex has nothing of the group yet.
func Obstacles(group string, definitions []*apiextensionsv1.CustomResourceDefinition, apiServices []*apiregistrationv1.APIService) []string {
	if group == hostingv1alpha1.GroupName {
		return []string{"The group is annex's own"}
	}
	g := newSurvey(group, definitions, apiServices)
	for _, current := range apiServices {
		if current.Spec.Service == nil && current.Labels[automanagedLabel] != automanaged {
			return []string{fmt.Sprintf("The main cluster serves %s/%s itself, not from a definition", group, current.Spec.Version)}
		}
	}
	if len(g.labelled()) == 0 {
		return []string{"The main cluster is deleting the definitions of the group"}
	}
	// A message for several definitions is returned once.
	names := map[string][]string{}
	causes := g.causes()
	for _, name := range slices.Sorted(maps.Keys(causes)) {
		message := causes[name].message
		names[message] = append(names[message], name)
	}
	var obstacles []string
	for _, message := range slices.Sorted(maps.Keys(names)) {
		if len(names[message]) < len(g.main) {
			message = strings.Join(names[message], ", ") + ": " + message
		}
		obstacles = append(obstacles, message)
	}
	return obstacles
}

func newSurvey(name string, definitions []*apiextensionsv1.CustomResourceDefinition, apiServices []*apiregistrationv1.APIService) *group {
	g := &group{name: name, main: map[string]*definition{}, routes: map[string]route{}}
	for _, crd := range definitions {
		followed := *crd
		followed.Labels = maps.Clone(crd.Labels)
		metav1.SetMetaDataLabel(&followed.ObjectMeta, hostingv1alpha1.HostedLabel, "true")
		g.main[crd.Name] = &followed
	}
	for _, current := range apiServices {
		g.routes[current.Spec.Version] = noAnnex.routeOf(current)
	}
	return g
}

// Validate returns the reason for which annex would refuse a definition that the main cluster
// accepted, perhaps in an older version: the validation of a new definition.
func Validate(ctx context.Context, main *apiextensionsv1.CustomResourceDefinition) error {
	wanted := &apiextensions.CustomResourceDefinition{}
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(desired(main, nil), wanted, nil); err != nil {
		return fmt.Errorf("convert %s: %w", main.Name, err)
	}
	// A create sets them.
	for _, version := range wanted.Spec.Versions {
		if version.Storage {
			wanted.Status.StoredVersions = []string{version.Name}
		}
	}
	if errs := apiextensionsvalidation.ValidateCustomResourceDefinition(ctx, wanted); len(errs) > 0 {
		return errs[0]
	}
	return nil
}
