// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package crd

import (
	"context"
	"fmt"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/annex-dev/annex/pkg/test/expect"
)

// validCreate and validUpdate accept everything.
type validCreate struct{ rest.RESTCreateStrategy }

func (validCreate) Validate(context.Context, runtime.Object) field.ErrorList { return nil }

type validUpdate struct{ rest.RESTUpdateStrategy }

func (validUpdate) ValidateUpdate(context.Context, runtime.Object, runtime.Object) field.ErrorList {
	return nil
}

func TestLimit(t *testing.T) {
	t.Parallel()
	store := &genericregistry.Store{CreateStrategy: validCreate{}, UpdateStrategy: validUpdate{}}
	Limit(store)
	withVersions := func(count, rules int) *apiextensions.CustomResourceDefinition {
		crd := &apiextensions.CustomResourceDefinition{}
		for i := range count {
			schema := apiextensions.JSONSchemaProps{XValidations: make(apiextensions.ValidationRules, rules)}
			crd.Spec.Versions = append(crd.Spec.Versions, apiextensions.CustomResourceDefinitionVersion{
				Name: fmt.Sprintf("v%d", i+1),
				Schema: &apiextensions.CustomResourceValidation{OpenAPIV3Schema: &apiextensions.JSONSchemaProps{
					Properties: map[string]apiextensions.JSONSchemaProps{"spec": schema},
				}},
			})
		}
		return crd
	}
	const tooManyRules = "spec.versions: Forbidden: the schemas of all versions have 5002 x-kubernetes-validations, the limit is 5000"
	for name, test := range map[string]struct {
		created, old *apiextensions.CustomResourceDefinition
		want         string
	}{
		"many versions":              {created: withVersions(maxVersions, 0)},
		"too many versions":          {created: withVersions(maxVersions+1, 0), want: "spec.versions: Too many: 101: must have at most 100 items"},
		"more versions":              {created: withVersions(maxVersions+2, 0), old: withVersions(maxVersions+1, 0), want: "spec.versions: Too many: 102"},
		"as many versions as it had": {created: withVersions(maxVersions+1, 0), old: withVersions(maxVersions+1, 0)},
		"many rules":                 {created: withVersions(2, maxRules/2)},
		"too many rules":             {created: withVersions(2, maxRules/2+1), want: tooManyRules},
		"more rules":                 {created: withVersions(2, maxRules/2+1), old: withVersions(1, maxRules+1), want: tooManyRules},
		"as many rules as it had":    {created: withVersions(2, maxRules/2+1), old: withVersions(2, maxRules/2+1)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got error
			if test.old == nil {
				got = store.CreateStrategy.Validate(t.Context(), test.created).ToAggregate()
			} else {
				got = store.UpdateStrategy.ValidateUpdate(t.Context(), test.created, test.old).ToAggregate()
			}
			expect.ErrorOrNone(t, got, test.want)
		})
	}
}
