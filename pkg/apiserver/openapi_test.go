// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/util/compatibility"
	restclient "k8s.io/client-go/rest"
	openapicommon "k8s.io/kube-openapi/pkg/common"

	"github.com/annex-dev/annex/pkg/apis/scheme"
	"github.com/annex-dev/annex/pkg/test/expect"
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

func TestOpenAPIV2IsBuiltByTheFirstRequest(t *testing.T) {
	t.Parallel()
	config := genericapiserver.NewConfig(scheme.Codecs)
	config.ExternalAddress, config.LoopbackClientConfig = "127.0.0.1:443", &restclient.Config{}
	config.EffectiveVersion = compatibility.DefaultBuildEffectiveVersion()
	ConfigureOpenAPI(config)
	definitions, calls := config.OpenAPIConfig.GetDefinitions, 0
	config.OpenAPIConfig.GetDefinitions = func(reference openapicommon.ReferenceCallback) map[string]openapicommon.OpenAPIDefinition {
		calls++
		return definitions(reference)
	}
	server, err := config.Complete(nil).New("test", genericapiserver.NewEmptyDelegate())
	expect.NoError(t, err)
	installOpenAPI(server, config)
	server.PrepareRun()
	expect.Equal(t, 0, calls, "documents built by a start")
	for range 2 {
		recorder := httptest.NewRecorder()
		server.Handler.NonGoRestfulMux.ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/openapi/v2", nil))
		if recorder.Code != http.StatusOK || !strings.Contains(recorder.Body.String(), `"title":"annex"`) {
			t.Errorf("%d %s", recorder.Code, recorder.Body)
		}
	}
	expect.Equal(t, 1, calls, "documents built by two requests")
}
