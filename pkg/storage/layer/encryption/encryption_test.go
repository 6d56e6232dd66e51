// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package encryption

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"

	"github.com/annex-dev/annex/pkg/test/expect"
)

const config = `apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: ["*.example.com"]
  providers:
  - secretbox: {keys: [{name: first, secret: a2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2s=}]}
`

func write(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "encryption.yaml")
	expect.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

func TestApply(t *testing.T) {
	t.Parallel()
	for _, reload := range []bool{true, false} {
		generic := genericapiserver.NewConfig(serializer.NewCodecFactory(runtime.NewScheme()))
		liveness, readiness := len(generic.LivezChecks), len(generic.ReadyzChecks)
		expect.NoError(t, Apply(generic, write(t, config), reload))
		_, follows := generic.PostStartHooks[reloadHook]
		if follows != reload || generic.ResourceTransformers == nil {
			t.Errorf("reload %t: hook %t, transformers %v", reload, follows, generic.ResourceTransformers)
		}
		if added := len(generic.ReadyzChecks) - readiness; len(generic.LivezChecks) != liveness || reload != (added == 1) {
			t.Errorf("reload %t: %d readiness checks, %d liveness checks", reload, added, len(generic.LivezChecks)-liveness)
		}
	}
}

func TestApplyRefuses(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ replace, by, want string }{
		"short key":     {"a2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2s=", "c2hvcnQ=", `:6: resources[0].providers[0].secretbox.keys[0].secret: Invalid value: "REDACTED"`},
		"unknown field": {"secretbox", "secretBox", ":6: resources[0].providers[0].secretBox: unknown field"},
		"no providers":  {"  providers:\n  - secretbox", "  providers: []\n  #", ":5: resources[0].providers: Required value"},
		"masked":        {"- resources: [", "- {resources: ['*.*'], providers: [{identity: {}}]}\n- resources: [", `:5: resources[1].resources[0]: `},
		"other kind":    {"EncryptionConfiguration", "OtherConfiguration", `:2: kind: there is no kind "OtherConfiguration"`},
		"empty":         {config, "", "is empty"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := write(t, strings.Replace(config, test.replace, test.by, 1))
			generic := genericapiserver.NewConfig(serializer.NewCodecFactory(runtime.NewScheme()))
			err := Apply(generic, path, true)
			if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %s%s", err, path, test.want)
			}
			if generic.ResourceTransformers != nil {
				t.Error("the transformers of a refused configuration are set")
			}
		})
	}
}

func TestWaitHealthy(t *testing.T) {
	t.Parallel()
	asked := 0
	late := healthz.NamedCheck("late", func(*http.Request) error {
		if asked++; asked < 3 {
			return errors.New("not yet")
		}
		return nil
	})
	if err := waitHealthy(t.Context(), late, time.Minute); err != nil {
		t.Errorf("a late plugin: %v", err)
	}
	never := healthz.NamedCheck("never", func(*http.Request) error { return errors.New("connection refused") })
	if err := waitHealthy(t.Context(), never, time.Millisecond); err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("an unavailable plugin: %v", err)
	}
}
