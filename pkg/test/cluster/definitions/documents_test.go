// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package definitions

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"

	"github.com/annex-dev/annex/pkg/test/annextest"
	"github.com/annex-dev/annex/pkg/test/crds"
)

// certManager: the groups of a project of others, as it publishes them.
func certManager(t *testing.T, annex *annextest.Annex) {
	fixtures := map[string]*fixture{}
	for _, manifest := range load(t, "cert-manager") {
		crd := manifest.CRD
		w := fixtures[crd.Spec.Group]
		if w == nil {
			w = newFixture(t, annex, crd.Spec.Group)
			fixtures[crd.Spec.Group] = w
		}
		w.define(crd)
	}
	for group, w := range fixtures {
		list, err := w.mainDefinitions.ApiextensionsV1().CustomResourceDefinitions().List(t.Context(), metav1.ListOptions{})
		w.no(err)
		var names, plurals []string
		for _, crd := range list.Items {
			if crd.Spec.Group == group {
				names, plurals = append(names, crd.Name), append(plurals, crd.Spec.Names.Plural)
			}
		}
		before := w.mainDocument("v1", plurals...)
		for _, name := range names {
			w.label(name)
		}
		w.published("v1")
		for _, name := range names {
			w.followed(name)
		}
		w.sameDocuments("v1", before, plurals...)
	}
	if len(fixtures) < 2 {
		t.Errorf("cert-manager has %d groups, want 2", len(fixtures))
	}
}

func load(t *testing.T, name string) []crds.Manifest {
	t.Helper()
	for _, source := range crds.Sources() {
		if source.Name != name {
			continue
		}
		manifests, err := crds.Load(t.Context(), source)
		if err != nil {
			t.Fatal(err)
		}
		return manifests
	}
	t.Fatalf("no source %s", name)
	return nil
}

// mainDocument and annexDocument are the OpenAPI v3 documents of a version of the
// group, as either side has them once all of these resources are in them.
func (w *fixture) mainDocument(version string, plurals ...string) []byte {
	w.Helper()
	return w.document(mainCluster.Config, version, plurals)
}

func (w *fixture) annexDocument(version string, plurals ...string) []byte {
	w.Helper()
	return w.document(w.annex.AnnexConfig, version, plurals)
}

func (w *fixture) document(config *restclient.Config, version string, plurals []string) []byte {
	w.Helper()
	discovery, err := kubernetes.NewForConfig(config)
	w.no(err)
	var document []byte
	w.eventually("the OpenAPI document of "+version, func(ctx context.Context) (bool, string) {
		raw, err := discovery.Discovery().RESTClient().Get().AbsPath("/openapi/v3/apis/"+w.group+"/"+version).SetHeader("Accept", "application/json").DoRaw(ctx)
		document = raw
		missing := slices.DeleteFunc(slices.Clone(plurals), func(plural string) bool {
			// "/apis/<group>/<version>/<plural>", of those with a namespace also below it.
			return bytes.Contains(raw, []byte(`"/apis/`+w.group+"/"+version+"/"+plural+`"`))
		})
		return err == nil && len(missing) == 0, fmt.Sprintf("%v, without %q", err, missing)
	})
	return document
}

// sameDocuments fails unless the main cluster's document is what it was before the
// group was taken over, byte for byte, and annex's says the same about the group.
func (w *fixture) sameDocuments(version string, before []byte, plurals ...string) {
	w.Helper()
	if after := w.mainDocument(version, plurals...); !bytes.Equal(before, after) {
		w.Errorf("the main cluster's OpenAPI document of %s/%s has changed: %s", w.group, version, firstDifference(before, after))
	}
	main, annex := w.ofGroup(before), w.ofGroup(w.annexDocument(version, plurals...))
	if !bytes.Equal(main, annex) {
		w.Errorf("the OpenAPI documents of %s/%s differ between the main cluster and annex: %s", w.group, version, firstDifference(main, annex))
	}
}

// ofGroup is a document without the schemas of Kubernetes itself, which differ
// between its minor versions, in one order.
func (w *fixture) ofGroup(document []byte) []byte {
	w.Helper()
	var parsed struct {
		Paths      map[string]any `json:"paths"`
		Components struct {
			Schemas map[string]any `json:"schemas"`
		} `json:"components"`
	}
	w.no(json.Unmarshal(document, &parsed))
	maps.DeleteFunc(parsed.Components.Schemas, func(name string, _ any) bool { return strings.HasPrefix(name, "io.k8s.apimachinery.") })
	if len(parsed.Paths) == 0 || len(parsed.Components.Schemas) == 0 {
		w.Errorf("the OpenAPI document has %d paths and %d schemas", len(parsed.Paths), len(parsed.Components.Schemas))
	}
	content, err := json.Marshal(parsed)
	w.no(err)
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
