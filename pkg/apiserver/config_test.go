// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"testing"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/util/webhook"
	restclient "k8s.io/client-go/rest"

	"github.com/annex-dev/annex/pkg/aggregated/maincluster"
	"github.com/annex-dev/annex/pkg/apis/hosting"
)

// TestConversionWebhooksAtKubernetes looks at who annex is to a webhook of that name.
func TestConversionWebhooksAtKubernetes(t *testing.T) {
	t.Parallel()
	loopback, ofMain := &restclient.Config{BearerToken: "loopback"}, &restclient.Config{BearerToken: "main"}
	for want, given := range map[string]webhook.AuthenticationInfoResolverWrapper{
		"loopback": nil,
		"main":     (&maincluster.Cluster{Config: ofMain}).WebhookCredentials(nil),
	} {
		c := CompletedConfig{&completedConfig{generic: &genericapiserver.Config{LoopbackClientConfig: loopback}, extra: &ExtraConfig{WebhookCredentials: given}}}
		none, err := webhook.NewDefaultAuthenticationInfoResolver("")
		if err != nil {
			t.Fatal(err)
		}
		resolver := c.webhookCredentials()(none)
		byService, err := resolver.ClientConfigForService("kubernetes", "default", 443)
		if err != nil || byService.BearerToken != want {
			t.Errorf("to the Service annex is %q, want %q: %v", byService.BearerToken, want, err)
		}
		byURL, err := resolver.ClientConfigFor("kubernetes.default.svc:443")
		if err != nil || byURL.BearerToken != want {
			t.Errorf("to the URL annex is %q, want %q: %v", byURL.BearerToken, want, err)
		}
	}
}

func TestResourcePrefixes(t *testing.T) {
	t.Parallel()
	for _, resource := range []string{"stores", "hostedresources"} {
		want := "hosting.annex.dev/" + resource
		if got := resourcePrefixes()[hosting.Resource(resource)]; got != want {
			t.Errorf("%s are stored under %q, want %q", resource, got, want)
		}
	}
}
