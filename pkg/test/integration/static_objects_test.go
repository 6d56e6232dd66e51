// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/storage/etcd/embeddedetcd/etcdtest"
	"github.com/annex-dev/annex/pkg/test/clients"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

const staticCRD = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gears.static.example.com}
spec:
  group: static.example.com
  scope: Namespaced
  names: {plural: gears, singular: gear, kind: Gear}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}, scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties: {replicas: {type: integer, maximum: 100}, color: {type: string}, size: {type: string, default: small}}
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
`

// gear is a custom resource of staticCRD.
func gear(name, spec string) string {
	return fmt.Sprintf("---\napiVersion: static.example.com/v1\nkind: Gear\nmetadata: {namespace: static, name: %s}\nspec: %s\n", name, spec)
}

const staticNamespace = "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: static}\n"

// folder is a folder of static objects.
type folder string

func newFolder(t *testing.T) folder { return folder(t.TempDir()) }

// write replaces a file at once, as if a while ago, so that annex does not wait for more.
func (f folder) write(t *testing.T, name, content string) {
	t.Helper()
	hidden := filepath.Join(string(f), "."+name)
	expect.NoError(t, os.WriteFile(hidden, []byte(content), 0o600))
	old := time.Now().Add(-time.Minute)
	expect.NoError(t, os.Chtimes(hidden, old, old))
	expect.NoError(t, os.Rename(hidden, filepath.Join(string(f), name)))
}

func (f folder) remove(t *testing.T, name string) {
	t.Helper()
	expect.NoError(t, os.Remove(filepath.Join(string(f), name)))
}

func (a *annex) gears() dynamic.ResourceInterface {
	return a.Dynamic.Resource(schema.GroupVersionResource{Group: "static.example.com", Version: "v1", Resource: "gears"}).Namespace("static")
}

// waitForSource waits until the StaticSource has this number of applied objects, and its
// conditions and problems have these words.
func (a *annex) waitForSource(t *testing.T, name string, applied int64, words ...string) {
	t.Helper()
	sources := a.Hosting.HostingV1alpha1().StaticSources()
	poll.Until(t, fmt.Sprintf("%d objects of source %s are applied", applied, name), func() string {
		source, err := sources.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		text := fmt.Sprintf("%+v", source.Status)
		if source.Status.Applied != applied {
			return text
		}
		return expect.Missing(text, words...)
	})
}

func isColor(color string) func(*unstructured.Unstructured) bool {
	return func(object *unstructured.Unstructured) bool {
		got, _, _ := unstructured.NestedString(object.Object, "spec", "color")
		return got == color
	}
}

func (a *annex) waitForGear(t *testing.T, name, what string, check func(*unstructured.Unstructured) bool) *unstructured.Unstructured {
	t.Helper()
	var found *unstructured.Unstructured
	poll.UntilDone(t, name+" "+what, func() (bool, string) {
		var err error
		if found, err = a.gears().Get(t.Context(), name, metav1.GetOptions{}); err != nil {
			return false, err.Error()
		}
		return check(found), fmt.Sprintf("%+v", found.Object)
	})
	return found
}

func (a *annex) waitForNoGear(t *testing.T, name string) {
	t.Helper()
	poll.UntilDone(t, name+" is gone", func() (bool, string) {
		found, err := a.gears().Get(t.Context(), name, metav1.GetOptions{})
		return apierrors.IsNotFound(err), fmt.Sprintf("%+v, error %v", found, err)
	})
}

func (a *annex) patchGear(t *testing.T, name, patch string, subresources ...string) error {
	t.Helper()
	_, err := a.gears().Patch(t.Context(), name, "application/merge-patch+json", []byte(patch), metav1.PatchOptions{}, subresources...)
	return err
}

// TestStaticObjects follows objects of a folder from an annex that is new to their end. The
// files are in the wrong order.
func TestStaticObjects(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	f.write(t, "a.yaml", gear("one", "{color: red}")+gear("two", "{color: red}"))
	f.write(t, "b.yaml", staticNamespace)
	f.write(t, "c.yaml", staticCRD)
	f.write(t, "d.yaml", "{apiVersion: hosting.annex.dev/v1alpha1, kind: HostedResource, metadata: {name: gears.static.example.com}, spec: {priority: 7}}")
	a := startAnnex(t, "--static-dir="+string(f))

	one := a.waitForGear(t, "one", "exists", isColor("red"))
	annotations := one.GetAnnotations()
	for _, key := range []string{hostingv1alpha1.StaticHashAnnotation, hostingv1alpha1.StaticSeenAnnotation, hostingv1alpha1.StaticMirrorAnnotation} {
		if annotations[key] == "" {
			t.Errorf("no annotation %s in %v", key, annotations)
		}
	}
	expect.Equal(t, "file", annotations[hostingv1alpha1.StaticSourceAnnotation], "source")
	a.waitForSource(t, "file", 5, "Type:Read Status:True", "Type:Applied Status:True")
	expect.Equal(t, int32(7), expect.Get(t, a.HostedResources(), "gears.static.example.com").Spec.Priority, "priority")
	a.testMirrorIsReadOnly(t)
	a.testMirrorFollows(t, f, one)
	a.testDefinitionIsKept(t, f)
}

func (a *annex) testMirrorIsReadOnly(t *testing.T) {
	t.Helper()
	const readOnly = `is the mirror of a static object of the source "file"`
	expect.Error(t, a.patchGear(t, "one", `{"spec": {"color": "blue"}}`), "forbidden", readOnly)
	expect.Error(t, a.patchGear(t, "one", `{"metadata": {"annotations": null}}`), readOnly)
	expect.Error(t, a.patchGear(t, "one", `{"spec": {"replicas": 3}}`, "scale"), readOnly)
	expect.NoError(t, a.patchGear(t, "one", `{"status": {"replicas": 1}}`, "status"), "write the status")
	expect.NoError(t, a.patchGear(t, "one", `{"metadata": {"finalizers": ["example.com/held"]}}`), "add a finalizer")
	expect.NoError(t, a.patchGear(t, "one", `{"metadata": {"finalizers": null}}`), "remove a finalizer")
	expect.Error(t, a.CRDs().Delete(t.Context(), "gears.static.example.com", metav1.DeleteOptions{}), readOnly, "remove it from the source first")
	expect.Error(t, a.Kube.CoreV1().Namespaces().Delete(t.Context(), "static", metav1.DeleteOptions{}), readOnly)
	_, err := a.gears().Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "static.example.com/v1", "kind": "Gear",
		"metadata": map[string]any{"name": "forged", "annotations": map[string]any{hostingv1alpha1.StaticMirrorAnnotation: "x"}},
	}}, metav1.CreateOptions{})
	expect.Error(t, err, "only annex sets annotations")
}

func (a *annex) testMirrorFollows(t *testing.T, f folder, one *unstructured.Unstructured) {
	t.Helper()
	expect.NoError(t, a.gears().Delete(t.Context(), "one", metav1.DeleteOptions{}))
	again := a.waitForGear(t, "one", "comes back", func(object *unstructured.Unstructured) bool { return object.GetUID() != one.GetUID() })
	expect.NoError(t, a.gears().DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	a.waitForGear(t, "one", "comes back again", func(object *unstructured.Unstructured) bool { return object.GetUID() != again.GetUID() })
	two := a.waitForGear(t, "two", "comes back too", isColor("red"))
	expect.NoError(t, a.patchGear(t, "two", `{"status": {"replicas": 5}}`, "status"))

	f.write(t, "a.yaml", gear("two", "{replicas: 2}"))
	a.waitForNoGear(t, "one")
	changed := a.waitForGear(t, "two", "has changed", isColor(""))
	expect.Equal(t, two.GetUID(), changed.GetUID(), "UID")
	expect.Equal(t, "map[replicas:2 size:small] map[replicas:5]", fmt.Sprint(changed.Object["spec"], changed.Object["status"]), "the status stays")
	f.write(t, "a.yaml", gear("two", "{replicas: 3}"))
	a.waitForGear(t, "two", "has changed again", func(object *unstructured.Unstructured) bool {
		return fmt.Sprint(object.Object["spec"]) == "map[replicas:3 size:small]"
	})
	a.waitForSource(t, "file", 4, "Type:Applied Status:True")
	// Other tests in this process share the gauges.
	expect.Contains(t, string(a.get(t, "/metrics").Body), `annex_static_source_reads_total{result="complete",source="file"}`)
	poll.Until(t, "an event", func() string {
		events, err := a.Kube.EventsV1().Events("default").List(t.Context(), metav1.ListOptions{FieldSelector: "reason=MirrorsWritten"})
		if err != nil {
			return err.Error()
		}
		return expect.Missing(fmt.Sprintf("%+v", events.Items), "StaticSource", "create ", "delete 1")
	})
}

// The objects of a definition are not deleted because a file is gone.
func (a *annex) testDefinitionIsKept(t *testing.T, f folder) {
	t.Helper()
	f.remove(t, "b.yaml")
	f.remove(t, "c.yaml")
	a.waitForSource(t, "file", 2, "Orphaned:2", "CustomResourceDefinition.apiextensions.k8s.io gears.static.example.com", "Namespace static")
	a.waitForGear(t, "two", "is still there", func(*unstructured.Unstructured) bool { return true })
	f.write(t, "c.yaml", staticCRD)
	a.waitForSource(t, "file", 3, "Orphaned:1")
	expect.Error(t, a.CRDs().Delete(t.Context(), "gears.static.example.com", metav1.DeleteOptions{}), "remove it from the source first")
	f.remove(t, "c.yaml")
	a.waitForSource(t, "file", 2, "Orphaned:2")
	expect.NoError(t, a.CRDs().Delete(t.Context(), "gears.static.example.com", metav1.DeleteOptions{}), "delete the orphaned definition")
	a.waitForSource(t, "file", 1, "Orphaned:1", "annex does not serve the kind Gear")
}

// annex becomes ready once it has read its sources.
func TestStaticReadiness(t *testing.T) {
	t.Parallel()
	released := make(chan struct{})
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		select {
		case <-released:
			fmt.Fprint(w, staticCRD+staticNamespace+gear("one", "{color: red}"))
		case <-req.Context().Done():
		}
	}))
	t.Cleanup(site.Close)
	dataDir := t.TempDir()
	p := startProcess(t, dataDir, "--static-url="+site.URL)
	started := time.Now()
	poll.Until(t, "annex waits for static objects only", func() string {
		config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(dataDir, "admin.kubeconfig"))
		if err != nil {
			return err.Error()
		}
		httpClient, err := restclient.HTTPClientFor(config)
		if err != nil {
			return err.Error()
		}
		ready, err := clients.Send(t.Context(), httpClient, http.MethodGet, config.Host+"/readyz?verbose", "")
		if err != nil {
			return err.Error()
		}
		if ready.Code == http.StatusOK && time.Since(started) > 20*time.Second {
			t.Log("the machine is so busy that annex gave up the request")
			return ""
		}
		if body := string(ready.Body); strings.Count(body, "[-]") != 1 || !strings.Contains(body, "[-]static-objects failed") {
			return body
		}
		return ""
	})
	close(released)
	clientsOf(t, p, dataDir).waitForGear(t, "one", "exists", isColor("red"))
}

// A name of an ordinary object is never taken over.
func TestStaticNameTaken(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	f.write(t, "a.yaml", staticCRD+staticNamespace)
	a := startAnnex(t, "--static-dir="+string(f))
	var ordinary *unstructured.Unstructured
	// The API server learns of the condition Established a moment later than annex's controller.
	poll.UntilNoError(t, "create an ordinary object", func() error {
		var err error
		ordinary, err = a.gears().Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "static.example.com/v1", "kind": "Gear", "metadata": map[string]any{"name": "one"}, "spec": map[string]any{"color": "green"},
		}}, metav1.CreateOptions{})
		return err
	})
	f.write(t, "b.yaml", gear("one", "{color: red}")+gear("big", "{replicas: 1000}")+gear("typo", "{colour: red}")+
		"---\n{apiVersion: static.example.com/v1, kind: Gear, metadata: {name: nowhere}}\n"+
		"---\n{apiVersion: v1, kind: Namespace, metadata: {name: other, namespace: static}}\n"+
		"---\n{apiVersion: authentication.k8s.io/v1, kind: TokenReview, metadata: {name: review}}\n"+
		strings.ReplaceAll(gear("elsewhere", "{}"), "namespace: static", "namespace: missing"))
	f.write(t, "c.yaml", gear("one", "{color: blue}"))
	a.waitForSource(t, "file", 2, "Type:Applied Status:False", "Reason:NameTaken", "Origin:b.yaml#2", "Reason:Duplicate",
		"spec.replicas", `unknown field "spec.colour"`, "metadata.namespace: must be set", "metadata.namespace: must not be set",
		"tokenreviews.authentication.k8s.io are not objects", "the namespace missing does not exist")
	unchanged := a.waitForGear(t, "one", "is unchanged", isColor("green"))
	expect.Equal(t, ordinary.GetResourceVersion(), unchanged.GetResourceVersion(), "resource version")
	expect.NoError(t, a.patchGear(t, "one", `{"spec": {"color": "yellow"}}`), "change the ordinary object")

	expect.NoError(t, a.gears().Delete(t.Context(), "one", metav1.DeleteOptions{}))
	a.waitForGear(t, "one", "is a mirror now", isColor("red"))
	expect.Create(t, a.Kube.CoreV1().Namespaces(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "missing"}})
	a.waitForSource(t, "file", 4)
	// Mirrors do not prevent the deletion of an ordinary namespace.
	a.deleteNamespace(t, "missing")
	a.waitForNamespaceDeleted(t, "missing")
	a.waitForSource(t, "file", 3, "the namespace missing does not exist")
	expect.Create(t, a.Kube.CoreV1().Namespaces(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "missing"}})
	a.waitForSource(t, "file", 4)
	f.remove(t, "b.yaml")
	a.waitForGear(t, "one", "is the other one now", isColor("blue"))
	a.waitForSource(t, "file", 3, "Type:Applied Status:True")
}

// A bad file neither prevents readiness nor deletes anything, nor does a folder that vanishes.
func TestStaticBadFiles(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	f.write(t, "a.yaml", staticCRD+staticNamespace+gear("one", "{color: red}"))
	f.write(t, "b.yaml", "apiVersion: v1\nkind: Names")
	f.write(t, "c.yaml", "{apiVersion: unknown.example.com/v1, kind: Unknown, metadata: {name: u}}")
	a := startAnnex(t, "--static-dir="+string(f))
	a.waitForGear(t, "one", "exists", isColor("red"))
	a.waitForSource(t, "file", 3, "Type:Read Status:False", "b.yaml document 1: metadata: must be set", "annex does not serve the kind Unknown")

	f.write(t, "a.yaml", staticCRD+staticNamespace)
	f.write(t, "d.yaml", gear("two", "{color: red}"))
	a.waitForGear(t, "two", "is created meanwhile", isColor("red"))
	a.waitForGear(t, "one", "stays while a file is bad", isColor("red"))
	f.remove(t, "b.yaml")
	f.remove(t, "c.yaml")
	a.waitForNoGear(t, "one")
	a.waitForSource(t, "file", 3, "Type:Read Status:True", "Type:Applied Status:True")

	expect.NoError(t, os.Rename(string(f), string(f)+"-moved"))
	a.waitForSource(t, "file", 3, "Type:Read Status:False", "no such file or directory", "Type:Applied Status:True")
	expect.NoError(t, a.gears().Delete(t.Context(), "two", metav1.DeleteOptions{}))
	a.waitForGear(t, "two", "comes back without the folder", isColor("red"))
	expect.NoError(t, os.Rename(string(f)+"-moved", string(f)))
}

// A restart finds the mirrors of the previous start. Without the flag they are ordinary
// objects, and mirrors again with it.
func TestStaticRestart(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	f.write(t, "a.yaml", staticCRD+staticNamespace)
	f.write(t, "b.yaml", gear("one", "{color: red}")+gear("two", "{color: red}"))
	flags := []string{"--static-dir=" + string(f), "--static-check-interval=1s"}
	a := startAnnex(t, flags...)
	one := a.waitForGear(t, "one", "exists", isColor("red"))

	a.Stop(t)
	f.write(t, "b.yaml", gear("one", "{color: blue}"))
	a = a.restart(t, flags...)
	expect.Equal(t, one.GetUID(), a.waitForGear(t, "one", "has changed", isColor("blue")).GetUID(), "UID")
	a.waitForNoGear(t, "two")

	a.Stop(t)
	a = a.restart(t)
	a.waitForSource(t, "file", 0, "NotConfigured", "Orphaned:3")
	expect.NoError(t, a.patchGear(t, "one", `{"spec": {"color": "green", "size": "large"}}`), "change an orphaned mirror")

	a.Stop(t)
	a = a.restart(t, flags...)
	a.waitForGear(t, "one", "is a mirror again", isColor("blue"))
	a.waitForSource(t, "file", 3, "Orphaned:0", "Type:Applied Status:True")
	expect.Error(t, a.patchGear(t, "one", `{"spec": {"color": "green"}}`), "which is read-only")
}

// A URL that responds errors is reported, and nothing is lost.
func TestStaticURL(t *testing.T) {
	t.Parallel()
	var content atomic.Pointer[string]
	header := filepath.Join(t.TempDir(), "header")
	expect.NoError(t, os.WriteFile(header, []byte("Authorization: Bearer secret\n"), 0o600))
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		text := content.Load()
		switch {
		case req.Header.Get("Authorization") != "Bearer secret":
			http.Error(w, "", http.StatusUnauthorized)
		case text == nil:
			http.Error(w, "", http.StatusInternalServerError)
		default:
			fmt.Fprint(w, *text)
		}
	}))
	t.Cleanup(site.Close)
	a := startAnnex(t, "--static-url="+site.URL, "--static-url-header-file="+header, "--static-check-interval=1s")
	a.waitForSource(t, "http", 0, "Type:Read Status:False", "the server responds 500")
	set := func(text string) { content.Store(&text) }
	set(staticCRD + staticNamespace + gear("one", "{color: red}"))
	a.waitForGear(t, "one", "exists", isColor("red"))
	a.waitForSource(t, "http", 3, "Type:Read Status:True", "Type:Applied Status:True")
	content.Store(nil)
	a.waitForSource(t, "http", 3, "Type:Read Status:False", "the server responds 500")
	a.waitForGear(t, "one", "stays", isColor("red"))
	set(staticCRD + staticNamespace)
	a.waitForNoGear(t, "one")
	a.waitForSource(t, "http", 2, "Type:Read Status:True", "Type:Applied Status:True")
	source, err := a.Hosting.HostingV1alpha1().StaticSources().Get(t.Context(), "http", metav1.GetOptions{})
	expect.NoError(t, err)
	expect.Equal(t, site.URL, source.Spec.Location, "location")
}

// Only the leader's folder counts. The next leader, which has another, takes over the mirrors.
func TestStaticReplicas(t *testing.T) {
	t.Parallel()
	endpoint := etcdtest.Start(t, nil).Endpoint()
	f, g := newFolder(t), newFolder(t)
	f.write(t, "a.yaml", staticCRD+staticNamespace+gear("one", "{color: red}")+gear("two", "{color: red}"))
	g.write(t, "a.yaml", staticCRD+staticNamespace+gear("two", "{color: blue}")+gear("three", "{color: blue}"))
	g.write(t, "bad.yaml", "}")
	first := startAnnex(t, replicaFlags(endpoint, "--static-dir="+string(f))...)
	first.waitForGear(t, "one", "exists", isColor("red"))
	// It becomes ready because the other one leads.
	second := startAnnex(t, replicaFlags(endpoint, "--static-dir="+string(g))...)
	g.write(t, "b.yaml", "{apiVersion: v1, kind: Namespace, metadata: {name: only-in-the-second}}")
	f.write(t, "a.yaml", staticCRD+staticNamespace+gear("one", "{color: green}")+gear("two", "{color: red}"))
	second.waitForGear(t, "one", "has changed", isColor("green"))
	if _, err := second.gears().Get(t.Context(), "three", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the replica that does not lead applied an object: %v", err)
	}

	first.Stop(t)
	second.waitForGear(t, "two", "has the content of the new leader", isColor("blue"))
	second.waitForGear(t, "three", "is created", isColor("blue"))
	second.waitForSource(t, "file", 5, "Type:Read Status:False", "bad.yaml")
	second.waitForGear(t, "one", "stays while a file is bad", isColor("green"))
	g.remove(t, "bad.yaml")
	second.waitForNoGear(t, "one")
}
