// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"github.com/annex-dev/annex/pkg/apis/scheme"
)

func TestDefinitionsNameServedKindsOnly(t *testing.T) {
	t.Parallel()
	generic := genericapiserver.NewConfig(scheme.Codecs)
	ConfigureOpenAPI(generic)
	for version, name := range map[string]definitionName{"v2": generic.OpenAPIConfig.GetDefinitionName, "v3": generic.OpenAPIV3Config.GetDefinitionName} {
		for definition, want := range map[string]string{
			"io.k8s.api.core.v1.Namespace": "v1 Namespace",
			"io.k8s.api.core.v1.Event":     "v1 Event",
			"io.k8s.api.events.v1.Event":   "events.k8s.io/v1 Event",
		} {
			_, extensions := name(definition)
			kinds, ok := extensions[groupVersionKinds].([]any)
			if !ok || len(kinds) == 0 {
				t.Errorf("%s: definition %s has no kinds: %v", version, definition, extensions)
			}
			var got []string
			for _, kind := range kinds {
				fields := kind.(map[string]any)
				if fields["version"] == runtime.APIVersionInternal {
					t.Errorf("%s: definition %s names an internal kind: %v", version, definition, fields)
				}
				group := ""
				if fields["group"] != "" {
					group = fields["group"].(string) + "/"
				}
				got = append(got, group+fields["version"].(string)+" "+fields["kind"].(string))
			}
			if strings.Join(got, ",") != want {
				t.Errorf("%s: definition %s is of %v, want %s", version, definition, got, want)
			}
		}
	}
}
