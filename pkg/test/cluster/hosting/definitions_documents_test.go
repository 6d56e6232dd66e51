// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package hosting

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	restclient "k8s.io/client-go/rest"

	"github.com/annex-dev/annex/pkg/test/annextest"
	"github.com/annex-dev/annex/pkg/test/crds"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// certManager hosts the published CRDs of cert-manager.
func certManager(t *testing.T, annex *annextest.Annex) {
	fixtures := map[string]*fixture{}
	manifests, err := crds.LoadNamed(t.Context(), "cert-manager")
	expect.NoError(t, err)
	for _, manifest := range manifests {
		crd := manifest.CRD
		f := fixtures[crd.Spec.Group]
		if f == nil {
			f = newFixture(t, annex, crd.Spec.Group)
			fixtures[crd.Spec.Group] = f
		}
		f.createInMain(crd)
	}
	for group, f := range fixtures {
		list, err := f.mainCRDs.List(t.Context(), metav1.ListOptions{})
		expect.NoError(f, err)
		var names, plurals []string
		for _, crd := range list.Items {
			if crd.Spec.Group == group {
				names, plurals = append(names, crd.Name), append(plurals, crd.Spec.Names.Plural)
			}
		}
		before := f.mainDocument("v1", plurals...)
		for _, name := range names {
			f.label(name)
		}
		f.waitPublished("v1")
		for _, name := range names {
			f.waitForSync(name)
		}
		f.expectSameDocuments("v1", before, plurals...)
	}
	if len(fixtures) < 2 {
		t.Errorf("cert-manager has %d groups, want 2", len(fixtures))
	}
}

// mainDocument waits until the main cluster's OpenAPI v3 document of a version contains all
// these resources, and returns it.
func (f *fixture) mainDocument(version string, plurals ...string) []byte {
	f.Helper()
	return f.document(mainCluster.Config, version, plurals)
}

// annexDocument is mainDocument of annex.
func (f *fixture) annexDocument(version string, plurals ...string) []byte {
	f.Helper()
	return f.document(f.annex.AnnexConfig, version, plurals)
}

func (f *fixture) document(config *restclient.Config, version string, plurals []string) []byte {
	f.Helper()
	discovery := kube(f, config).Discovery()
	var document []byte
	poll.UntilDone(f, "the OpenAPI document of "+version, func() (bool, string) {
		raw, err := discovery.RESTClient().Get().AbsPath("/openapi/v3/apis/"+f.group+"/"+version).SetHeader("Accept", "application/json").DoRaw(f.Context())
		document = raw
		missing := slices.DeleteFunc(slices.Clone(plurals), func(plural string) bool {
			return bytes.Contains(raw, []byte(`"/apis/`+f.group+"/"+version+"/"+plural+`"`))
		})
		return err == nil && len(missing) == 0, fmt.Sprintf("%v, missing %q", err, missing)
	})
	return document
}

// expectSameDocuments fails unless the takeover left the main cluster's document
// unchanged, byte for byte, and annex's document has the same content for the group if both have
// the same version of Kubernetes.
func (f *fixture) expectSameDocuments(version string, before []byte, plurals ...string) {
	f.Helper()
	if after := f.mainDocument(version, plurals...); !bytes.Equal(before, after) {
		f.Errorf("the main cluster's OpenAPI document of %s/%s has changed: %s", f.group, version, firstDifference(before, after))
	}
	if !annextest.HasVersionOfAnnex(f, mainCluster) {
		return
	}
	main, annex := f.withoutKubernetesSchemas(before), f.withoutKubernetesSchemas(f.annexDocument(version, plurals...))
	if !bytes.Equal(main, annex) {
		f.Errorf("the OpenAPI documents of %s/%s differ between the main cluster and annex: %s", f.group, version, firstDifference(main, annex))
	}
}

// withoutKubernetesSchemas removes Kubernetes' own schemas, which differ between minor
// versions, and sorts the rest.
func (f *fixture) withoutKubernetesSchemas(document []byte) []byte {
	f.Helper()
	var parsed struct {
		Paths      map[string]any `json:"paths"`
		Components struct {
			Schemas map[string]any `json:"schemas"`
		} `json:"components"`
	}
	expect.NoError(f, json.Unmarshal(document, &parsed))
	maps.DeleteFunc(parsed.Components.Schemas, func(name string, _ any) bool { return strings.HasPrefix(name, "io.k8s.apimachinery.") })
	if len(parsed.Paths) == 0 || len(parsed.Components.Schemas) == 0 {
		f.Errorf("the OpenAPI document has %d paths and %d schemas", len(parsed.Paths), len(parsed.Components.Schemas))
	}
	content, err := json.Marshal(parsed)
	expect.NoError(f, err)
	return content
}

func firstDifference(a, b []byte) string {
	at := 0
	for at < len(a) && at < len(b) && a[at] == b[at] {
		at++
	}
	from := max(0, at-200)
	return fmt.Sprintf("%d and %d bytes, and from byte %d on:\n%s\n%s", len(a), len(b), at, a[from:min(len(a), at+200)], b[from:min(len(b), at+200)])
}
