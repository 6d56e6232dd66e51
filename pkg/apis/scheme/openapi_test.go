// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package scheme

import (
	"strings"
	"testing"

	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/annex-dev/annex/pkg/generated/openapi"
)

const ourModels = "com.github.annex-dev.annex.pkg.apis."

func definitions() map[string]common.OpenAPIDefinition {
	return openapi.GetOpenAPIDefinitions(func(name string) spec.Ref {
		return spec.MustCreateRef("#/definitions/" + name)
	})
}

// The server does not start with a kind without a definition; one that is not named
// after its group, version and kind cannot be explained.
func TestEveryServedKindHasADefinition(t *testing.T) {
	t.Parallel()
	found := map[string]bool{}
	namer := openapinamer.NewDefinitionNamer(Scheme)
	for name := range definitions() {
		_, extensions := namer.GetDefinitionName(name)
		kinds, _ := extensions["x-kubernetes-group-version-kind"].([]any)
		for _, kind := range kinds {
			gvk := kind.(map[string]any)
			found[strings.Join([]string{gvk["group"].(string), gvk["version"].(string), gvk["kind"].(string)}, "/")] = true
		}
	}
	for _, hub := range hubKinds(t) {
		version := Scheme.PrioritizedVersionsForGroup(hub.Group)[0].Version
		for _, kind := range []string{hub.Kind, hub.Kind + "List"} {
			if key := strings.Join([]string{hub.Group, version, kind}, "/"); !found[key] {
				t.Errorf("%s has no OpenAPI definition: is its package in hack/update-codegen.sh?", key)
			}
		}
	}
}

// What kubectl explain prints comes from here.
func TestEveryFieldOfOursIsDocumented(t *testing.T) {
	t.Parallel()
	models := 0
	for name, definition := range definitions() {
		if !strings.HasPrefix(name, ourModels) {
			continue
		}
		models++
		if definition.Schema.Description == "" {
			t.Errorf("%s has no description", name)
		}
		for field, property := range definition.Schema.Properties {
			if property.Description == "" {
				t.Errorf("%s.%s has no description", name, field)
			}
		}
	}
	if models == 0 {
		t.Errorf("no model begins with %s", ourModels)
	}
}
