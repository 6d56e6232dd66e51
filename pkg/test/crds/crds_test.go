// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package crds

import (
	"strings"
	"testing"

	"github.com/annex-dev/annex/pkg/test/expect"
)

func TestLoadReadsEverySource(t *testing.T) {
	t.Parallel()
	atLeast := map[string]int{
		"cert-manager":             6,
		"gateway-api":              10,
		"gateway-api-experimental": 14,
		"prometheus-operator":      10,
		"kyverno":                  22,
		"openreports":              2,
	}
	for _, source := range Sources() {
		t.Run(source.Name, func(t *testing.T) {
			t.Parallel()
			manifests, err := Load(t.Context(), source)
			expect.NoError(t, err)
			if want := atLeast[source.Name]; want == 0 || len(manifests) < want {
				t.Errorf("read %d CRDs, want at least %d", len(manifests), want)
			}
			for _, manifest := range manifests {
				if manifest.CRD.Name == "" || len(manifest.CRD.Spec.Versions) == 0 || len(manifest.YAML) == 0 {
					t.Errorf("CRD %q was not read in full", manifest.CRD.Name)
				}
			}
		})
	}
}

func TestObjects(t *testing.T) {
	t.Parallel()
	source := Source{Name: "gateway-api", Module: "sigs.k8s.io/gateway-api", Dir: "config/crd/standard"}
	manifests, err := Load(t.Context(), source)
	expect.NoError(t, err)
	for _, manifest := range manifests {
		if manifest.CRD.Spec.Names.Kind != "HTTPRoute" {
			continue
		}
		objects, err := Objects(t.Context(), source, manifest)
		if err != nil || len(objects) < 50 {
			t.Errorf("read %d routes (%v), want at least 50", len(objects), err)
		}
		for _, object := range objects {
			if object.GetKind() != "HTTPRoute" || object.GetAPIVersion() != "gateway.networking.k8s.io/v1" || object.GetName() == "" {
				t.Errorf("read %s", object)
			}
		}
		return
	}
	t.Error("there is no CRD of routes")
}

func TestLoadRefusesUnpinnedModules(t *testing.T) {
	t.Parallel()
	_, err := Load(t.Context(), Source{Module: "example.com/unknown", Dir: "."})
	if err == nil || !strings.Contains(err.Error(), "does not require example.com/unknown") {
		t.Errorf("got error %v, want one for a module that is not required", err)
	}
}
