// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package group

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

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

// Obstacles returns what, besides objects, would prevent annex from taking over the group if all of its definitions
// had the label and annex had nothing of it.
func (s *State) Obstacles() []string {
	if s.Name == hostingv1alpha1.GroupName {
		return []string{"The group is annex's own"}
	}
	survey := &State{Name: s.Name, Main: map[string]*Definition{}, APIServices: s.APIServices}
	for name, crd := range s.Main {
		followed := *crd
		followed.Labels = maps.Clone(crd.Labels)
		metav1.SetMetaDataLabel(&followed.ObjectMeta, hostingv1alpha1.HostedLabel, "true")
		survey.Main[name] = &followed
	}
	if len(survey.labelled()) == 0 {
		return []string{"The main cluster is deleting the definitions of the group"}
	}
	// A message for several definitions is returned once.
	names := map[string][]string{}
	causes := survey.causes()
	for _, name := range slices.Sorted(maps.Keys(causes)) {
		message := causes[name].Message
		names[message] = append(names[message], name)
	}
	var obstacles []string
	for _, message := range slices.Sorted(maps.Keys(names)) {
		if len(names[message]) < len(s.Main) {
			message = strings.Join(names[message], ", ") + ": " + message
		}
		obstacles = append(obstacles, message)
	}
	return obstacles
}

// Validate returns the reason for which annex would refuse a definition that the main cluster
// accepted, perhaps in an older version: the validation of a new definition.
func Validate(ctx context.Context, main *Definition) error {
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
