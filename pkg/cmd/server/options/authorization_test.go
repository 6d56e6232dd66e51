// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"strings"
	"testing"
)

func TestRefusedAuthorization(t *testing.T) {
	tests := map[string]struct {
		args []string
		want string
	}{
		"unknown mode":           {[]string{"--authorization-mode=RBAC,Node"}, `--authorization-mode: there is no mode "Node"`},
		"mode twice":             {[]string{"--authorization-mode=RBAC,RBAC"}, "--authorization-mode: the mode RBAC is named twice"},
		"no mode":                {[]string{"--authorization-mode="}, "--authorization-mode: there is no authorizer"},
		"webhook without a file": {[]string{"--authorization-mode=Webhook"}, "--authorization-webhook-config-file"},
		"webhook without a mode": {[]string{"--authorization-webhook-config-file=/k"}, "--authorization-webhook-config-file needs --authorization-mode=Webhook"},
		"unknown review version": {[]string{"--authorization-mode=Webhook", "--authorization-webhook-config-file=/k", "--authorization-webhook-version=v2"}, "--authorization-webhook-version"},
		"modes and a file":       {[]string{"--authorization-config=/c", "--authorization-mode=RBAC"}, "--authorization-mode cannot be combined with --authorization-config"},
		"webhook and a file":     {[]string{"--authorization-config=/c", "--authorization-webhook-cache-authorized-ttl=1s"}, "--authorization-webhook-cache-authorized-ttl cannot be combined with --authorization-config"},
		"modes, aggregated":      {[]string{"--main-kubeconfig=/k", "--authorization-mode=RBAC"}, "--authorization-mode is for a standalone annex: the main cluster authorizes callers"},
		"file, aggregated":       {[]string{"--main-kubeconfig=/k", "--authorization-config=/c"}, "--authorization-config is for a standalone annex"},
		"webhook, aggregated":    {[]string{"--main-kubeconfig=/k", "--authorization-webhook-config-file=/c"}, "--authorization-webhook-config-file is for a standalone annex"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := parse(t, test.args...); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
	for _, accepted := range [][]string{
		{"--authorization-mode=Webhook,RBAC", "--authorization-webhook-config-file=/k"},
		{"--authorization-config=/c"},
		{"--main-kubeconfig=/k", "--authorization-webhook-cache-authorized-ttl=1s"},
	} {
		if _, err := parse(t, accepted...); err != nil {
			t.Errorf("%v: %v", accepted, err)
		}
	}
}
