// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"github.com/annex-dev/annex/pkg/test/expect"
)

func definitionIn(group string) *apiextensions.CustomResourceDefinition {
	return &apiextensions.CustomResourceDefinition{Spec: apiextensions.CustomResourceDefinitionSpec{Group: group}}
}

func TestCompiledIn(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		object   runtime.Object
		resource schema.GroupResource
		wantErr  string
	}{
		"other group":       {definitionIn("example.com"), apiextensions.Resource("customresourcedefinitions"), ""},
		"compiled in":       {definitionIn("hosting.annex.dev"), apiextensions.Resource("customresourcedefinitions"), "spec.group: Forbidden: the group is compiled into annex"},
		"subdomain":         {definitionIn("x.hosting.annex.dev"), apiextensions.Resource("customresourcedefinitions"), ""},
		"other resource":    {definitionIn("hosting.annex.dev"), schema.GroupResource{Group: "example.com", Resource: "customresourcedefinitions"}, ""},
		"unexpected object": {&metav1.Status{}, apiextensions.Resource("customresourcedefinitions"), "expected a CustomResourceDefinition"},
	}
	plugin := newCompiledIn()
	if err := plugin.ValidateInitialization(); err == nil {
		t.Error("the plugin is valid without groups")
	}
	CompiledInGroups{"hosting.annex.dev": {}}.Initialize(plugin)
	expect.NoError(t, plugin.ValidateInitialization())
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			attributes := admission.NewAttributesRecord(tc.object, nil, apiextensions.Kind("CustomResourceDefinition").WithVersion("v1"), "", "x",
				tc.resource.WithVersion("v1"), "", admission.Create, &metav1.CreateOptions{}, false, nil)
			err := plugin.Validate(t.Context(), attributes, nil)
			expect.ErrorOrNone(t, err, tc.wantErr)
		})
	}
}
