// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package hosting

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/clients"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

const staticFile = `
apiVersion: static.example.com/v1
kind: Widget
metadata: {namespace: default, name: one}
spec: {size: %d}
---
apiVersion: v1
kind: ConfigMap
metadata: {namespace: default, name: unknown}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.static.example.com}
spec:
  group: static.example.com
  scope: Namespaced
  names: {plural: gadgets, kind: Gadget}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
`

// writeStatic replaces a file at once, as if a while ago, so that annex does not wait for more.
func writeStatic(t *testing.T, dir, content string) {
	t.Helper()
	hidden := filepath.Join(dir, ".static.yaml")
	expect.NoError(t, os.WriteFile(hidden, []byte(content), 0o600))
	old := time.Now().Add(-time.Minute)
	expect.NoError(t, os.Chtimes(hidden, old, old))
	expect.NoError(t, os.Rename(hidden, filepath.Join(dir, "static.yaml")))
}

// testStatic has a static object of a group that the main cluster hands over to annex later. It
// is read-only for clients of the main cluster, and definitions are taken from there only.
func testStatic(t *testing.T) {
	dir := t.TempDir()
	writeStatic(t, dir, fmt.Sprintf(staticFile, 3))
	annex := startAnnex(t, "--static-dir="+dir)
	f := newFixture(t, annex, "static.example.com")
	sources := clients.For(t, mainCluster.Config).Hosting.HostingV1alpha1().StaticSources()
	waitForSource := func(applied int64, words ...string) {
		t.Helper()
		expect.Eventually(t, sources, "file", fmt.Sprintf("%d objects are applied, and %q", applied, words), func(source *hostingv1alpha1.StaticSource) bool {
			return source.Status.Applied == applied && expect.Missing(fmt.Sprintf("%+v", source.Status), words...) == ""
		})
	}
	waitForSource(0, "annex takes CustomResourceDefinitions from the main cluster", "annex does not serve the kind ConfigMap", "annex does not serve the kind Widget")
	if _, err := f.annexCRDs.Get(t.Context(), "gadgets.static.example.com", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a static definition in annex: error %v", err)
	}

	f.createInMain(hosted(f.newCRD("widgets", "v1")))
	f.waitPublished("v1")
	f.waitForObject(f.mainObjects, "widgets", "v1", "one")
	waitForSource(1)
	f.expectInMainEtcd(0)

	widgets := f.objects(f.mainObjects, "widgets", "v1")
	_, err := widgets.Patch(t.Context(), "one", types.MergePatchType, []byte(`{"spec": {"size": 4}}`), metav1.PatchOptions{})
	expect.Error(t, err, "forbidden", `is the mirror of a static object of the source "file"`)
	one, err := widgets.Get(t.Context(), "one", metav1.GetOptions{})
	expect.NoError(t, err)
	expect.NoError(t, widgets.Delete(t.Context(), "one", metav1.DeleteOptions{}))
	poll.UntilDone(t, "the mirror comes back", func() (bool, string) {
		found, err := widgets.Get(t.Context(), "one", metav1.GetOptions{})
		return err == nil && found.GetUID() != one.GetUID(), fmt.Sprint(found, err)
	})

	writeStatic(t, dir, fmt.Sprintf(staticFile, 5))
	poll.UntilDone(t, "the mirror has changed", func() (bool, string) {
		found, err := widgets.Get(t.Context(), "one", metav1.GetOptions{})
		return err == nil && fmt.Sprint(found.Object["spec"]) == "map[size:5]", fmt.Sprint(found, err)
	})
	expect.NoError(t, os.Remove(filepath.Join(dir, "static.yaml")))
	poll.UntilDone(t, "the mirror is gone", func() (bool, string) {
		found, err := widgets.Get(t.Context(), "one", metav1.GetOptions{})
		return apierrors.IsNotFound(err), fmt.Sprint(found, err)
	})
	waitForSource(0)
}
