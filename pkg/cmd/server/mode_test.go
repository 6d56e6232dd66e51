// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"testing"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/util/webhook"
	restclient "k8s.io/client-go/rest"

	"github.com/annex-dev/annex/pkg/aggregated/maincluster"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// TestWebhookCredentials checks which credentials annex sends to a webhook at
// kubernetes.default.svc: the loopback's must not reach another cluster.
func TestWebhookCredentials(t *testing.T) {
	t.Parallel()
	loopback := &genericapiserver.Config{LoopbackClientConfig: &restclient.Config{BearerToken: "loopback"}}
	main := &maincluster.Cluster{Config: &restclient.Config{BearerToken: "main"}}
	for want, wrap := range map[string]webhook.AuthenticationInfoResolverWrapper{
		"loopback": loopbackWebhookCredentials(loopback),
		"main":     main.WebhookCredentials(nil),
	} {
		none, err := webhook.NewDefaultAuthenticationInfoResolver("")
		expect.NoError(t, err)
		resolver := wrap(none)
		byService, err := resolver.ClientConfigForService("kubernetes", "default", 443)
		if err != nil || byService.BearerToken != want {
			t.Errorf("for the Service the token is %q, want %q: %v", byService.BearerToken, want, err)
		}
		byURL, err := resolver.ClientConfigFor("kubernetes.default.svc:443")
		if err != nil || byURL.BearerToken != want {
			t.Errorf("for the URL the token is %q, want %q: %v", byURL.BearerToken, want, err)
		}
	}
}
