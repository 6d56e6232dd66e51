// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/storage/layer/compression"
	"github.com/annex-dev/annex/pkg/test/crds"
	"github.com/annex-dev/annex/pkg/test/crgen"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// TestPublishedCRDs serves the CRDs of other projects, and creates, changes and deletes an object
// of every kind and version with kubectl.
func TestPublishedCRDs(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	byModule := map[string][]crds.Source{}
	for _, source := range crds.Sources() {
		byModule[source.Module] = append(byModule[source.Module], source)
	}
	for module, sources := range byModule {
		t.Run(module[strings.LastIndex(module, "/")+1:], func(t *testing.T) {
			t.Parallel()
			// Two channels of a project have the same CRDs: the second updates the first.
			for _, source := range sources {
				t.Run(source.Name, func(t *testing.T) { s.servePublished(t, source) })
			}
		})
	}
}

// use is a kind in a served version, with its objects.
type use struct {
	crd      *apiextensionsv1.CustomResourceDefinition
	version  apiextensionsv1.CustomResourceDefinitionVersion
	resource schema.GroupVersionResource
	pair     *crgen.Pair
	seen     *journal
}

func (s *server) servePublished(t *testing.T, source crds.Source) {
	manifests, err := crds.Load(t.Context(), source)
	expect.NoError(t, err)
	s.establish(t, manifests)

	namespace := source.Name
	s.kubectl.run(t, "create", "namespace", namespace)
	uses := s.uses(t, manifests, namespace)

	minimal := asList(t, uses, func(u use) *unstructured.Unstructured { return u.pair.Minimal })
	full := asList(t, uses, func(u use) *unstructured.Unstructured { return u.pair.Full })
	s.kubectl.feed(t, minimal, "create", "-f", "-")
	for _, u := range uses {
		s.checkListed(t, u, namespace)
	}
	s.checkUsage(t, uses, 1)

	s.kubectl.feed(t, minimal, "patch", "-f", "-", "--type=merge", "-p", `{"metadata":{"labels":{"patched":"merge"}}}`)
	s.kubectl.feed(t, minimal, "patch", "-f", "-", "--type=json", "-p", `[{"op":"add","path":"/metadata/annotations","value":{"patched":"json"}}]`)
	s.kubectl.feed(t, full, "apply", "--server-side", "--force-conflicts", "--field-manager=e2e", "-f", "-")
	for _, u := range uses {
		s.checkApplied(t, u, namespace)
	}
	s.checkUsage(t, uses, 1)

	s.kubectl.feed(t, minimal, "delete", "-f", "-")
	for _, u := range uses {
		u.seen.check(t, u.pair.Minimal.GetName(), u.resource)
	}
	s.checkUsage(t, uses, 0)
}

// establish applies the CRDs as a user does and waits until all are served.
func (s *server) establish(t *testing.T, manifests []crds.Manifest) {
	t.Helper()
	var documents bytes.Buffer
	wait := []string{"wait", "--for=condition=Established", "--timeout=60s"}
	for _, manifest := range manifests {
		documents.WriteString("---\n")
		documents.Write(manifest.YAML)
		wait = append(wait, "crd/"+manifest.CRD.Name)
	}
	s.kubectl.feed(t, documents.String(), "apply", "--server-side", "-f", "-")
	poll.UntilNoError(t, "all CRDs are established", func() error {
		result := s.kubectl.try(t, "", wait...)
		if result.code != 0 { // kubectl also fails if one has no conditions yet
			return errors.New(result.stderr)
		}
		return nil
	})
}

// uses generates objects of every kind, and starts an informer for each.
func (s *server) uses(t *testing.T, manifests []crds.Manifest, namespace string) []use {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	informers := dynamicinformer.NewFilteredDynamicSharedInformerFactory(s.Dynamic, 0, metav1.NamespaceAll, nil)
	t.Cleanup(func() {
		cancel()
		informers.Shutdown()
	})
	var uses []use
	for _, manifest := range manifests {
		for _, version := range manifest.CRD.Spec.Versions {
			if !version.Served {
				continue
			}
			pair, err := crgen.New(ctx, manifest.CRD, version.Name, namespace, "sample-"+version.Name)
			expect.NoError(t, err)
			u := use{crd: manifest.CRD, version: version, pair: pair, seen: newJournal()}
			u.resource = schema.GroupVersionResource{Group: u.crd.Spec.Group, Version: version.Name, Resource: u.crd.Spec.Names.Plural}
			if _, err := informers.ForResource(u.resource).Informer().AddEventHandler(u.seen); err != nil {
				t.Fatal(err)
			}
			uses = append(uses, u)
		}
	}
	informers.Start(ctx.Done())
	for resource, synced := range informers.WaitForCacheSync(ctx.Done()) {
		if !synced {
			t.Fatalf("the informer of %s did not sync", resource)
		}
	}
	return uses
}

// client returns a client for the objects of a use.
func (s *server) client(u use, namespace string) dynamic.ResourceInterface {
	if u.crd.Spec.Scope == apiextensionsv1.NamespaceScoped {
		return s.Dynamic.Resource(u.resource).Namespace(namespace)
	}
	return s.Dynamic.Resource(u.resource)
}

// checkListed finds the object in a list, and the columns of its CRD in a table.
func (s *server) checkListed(t *testing.T, u use, namespace string) {
	t.Helper()
	list, err := s.client(u, namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Errorf("list %s: %v", u.resource, err)
		return
	}
	if !slices.ContainsFunc(list.Items, func(item unstructured.Unstructured) bool { return item.GetName() == u.pair.Minimal.GetName() }) {
		t.Errorf("the list of %s lacks %s", u.resource, u.pair.Minimal.GetName())
	}

	path := fmt.Sprintf("/apis/%s/%s/%s", u.resource.Group, u.resource.Version, u.resource.Resource)
	raw, err := s.Kube.Discovery().RESTClient().Get().AbsPath(path).
		SetHeader("Accept", "application/json;as=Table;g=meta.k8s.io;v=v1").Do(t.Context()).Raw()
	if err != nil {
		t.Errorf("get the table of %s: %v", u.resource, err)
		return
	}
	var table metav1.Table
	if err := json.Unmarshal(raw, &table); err != nil {
		t.Errorf("read the table of %s: %v", u.resource, err)
		return
	}
	want := []string{"Name"}
	for _, column := range u.version.AdditionalPrinterColumns {
		want = append(want, column.Name)
	}
	if len(want) == 1 {
		want = append(want, "Age")
	}
	var got []string
	for _, column := range table.ColumnDefinitions {
		got = append(got, column.Name)
	}
	if !slices.Equal(got, want) {
		t.Errorf("the table of %s has columns %q, want %q", u.resource, got, want)
	}
	if len(table.Rows) == 0 {
		t.Errorf("the table of %s has no rows", u.resource)
	}
}

// checkApplied fails unless the object has the effects of every write.
func (s *server) checkApplied(t *testing.T, u use, namespace string) {
	t.Helper()
	object, err := s.client(u, namespace).Get(t.Context(), u.pair.Full.GetName(), metav1.GetOptions{})
	if err != nil {
		t.Errorf("get %s: %v", u.resource, err)
		return
	}
	if object.GetLabels()["patched"] != "merge" || object.GetAnnotations()["patched"] != "json" {
		t.Errorf("%s: a patch is missing: labels %v, annotations %v", u.resource, object.GetLabels(), object.GetAnnotations())
	}
	for section, want := range u.pair.Full.Object {
		if section == "metadata" {
			continue
		}
		if path, ok := within(want, object.Object[section]); !ok {
			t.Errorf("%s: %s%s was applied but is not there", u.resource, section, path)
		}
	}
	if !slices.ContainsFunc(object.GetManagedFields(), func(entry metav1.ManagedFieldsEntry) bool {
		return entry.Manager == "e2e" && entry.Operation == metav1.ManagedFieldsOperationApply
	}) {
		t.Errorf("%s: no managed fields of the apply", u.resource)
	}
}

// checkUsage waits until the HostedResources report the objects and bytes in etcd.
func (s *server) checkUsage(t *testing.T, uses []use, each int) {
	t.Helper()
	annexEtcd, err := clientv3.New(clientv3.Config{Endpoints: []string{"unix://" + filepath.Join(s.dataDir, "etcd", "client.sock")}})
	expect.NoError(t, err)
	defer annexEtcd.Close()
	want := map[string]int64{}
	for _, u := range uses {
		want[u.crd.Name] += int64(each)
	}
	for _, u := range uses {
		name := u.crd.Name
		poll.UntilDone(t, "the status of HostedResource "+name, func() (bool, string) {
			stored, err := annexEtcd.Get(t.Context(), "/annex/"+u.resource.Group+"/"+u.resource.Resource+"/", clientv3.WithPrefix())
			if err != nil {
				return false, err.Error()
			}
			bytes, kept := int64(0), int64(0)
			for _, pair := range stored.Kvs {
				plain, _ := compression.PlainSize(pair.Value)
				bytes += plain
				kept += int64(len(pair.Value))
			}
			hosted, err := s.HostedResources().Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				return false, err.Error()
			}
			status := hosted.Status
			done := status.Phase == hostingv1alpha1.HostedResourceHosted && status.Objects == want[name] && status.Objects == stored.Count &&
				status.Bytes == bytes && status.StoredBytes == kept
			return done, fmt.Sprintf("%+v; want %d objects, etcd holds %d with %d bytes in %d", status, want[name], stored.Count, bytes, kept)
		})
	}
}

// within reports whether want is part of got, or the path that is missing.
func within(want, got any) (path string, ok bool) {
	switch want := want.(type) {
	case map[string]any:
		fields, ok := got.(map[string]any)
		if !ok {
			return "", false
		}
		for name, value := range want {
			if path, ok := within(value, fields[name]); !ok {
				return "." + name + path, false
			}
		}
		return "", true
	case []any:
		items, ok := got.([]any)
		if !ok || len(items) != len(want) {
			return "", false
		}
		for i := range want {
			if path, ok := within(want[i], items[i]); !ok {
				return fmt.Sprintf("[%d]%s", i, path), false
			}
		}
		return "", true
	default:
		return "", fmt.Sprint(want) == fmt.Sprint(got)
	}
}

// asList returns a manifest with one object of every use.
func asList(t *testing.T, uses []use, pick func(use) *unstructured.Unstructured) string {
	t.Helper()
	list := &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": "v1", "kind": "List"}}
	for _, u := range uses {
		list.Items = append(list.Items, *pick(u))
	}
	manifest, err := list.MarshalJSON()
	expect.NoError(t, err)
	return string(manifest)
}

// journal records the events of an informer for each object.
type journal struct {
	mu      sync.Mutex
	entries map[string][]string
}

func newJournal() *journal { return &journal{entries: map[string][]string{}} }

func (j *journal) note(object any, event string) {
	if tombstone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = tombstone.Obj
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	name := object.(*unstructured.Unstructured).GetName()
	j.entries[name] = append(j.entries[name], event)
}

// OnAdd implements cache.ResourceEventHandler.
func (j *journal) OnAdd(object any, _ bool) { j.note(object, "added") }

// OnUpdate records a change.
func (j *journal) OnUpdate(_, object any) { j.note(object, "updated") }

// OnDelete records a deletion.
func (j *journal) OnDelete(object any) { j.note(object, "deleted") }

// check waits for the deletion of an object, and fails unless the informer has received every
// write in order.
func (j *journal) check(t *testing.T, name string, resource schema.GroupVersionResource) {
	t.Helper()
	want := []string{"added", "updated", "updated", "updated", "deleted"}
	poll.UntilDone(t, fmt.Sprintf("events of the informer of %s for %s", resource, name), func() (bool, string) {
		j.mu.Lock()
		defer j.mu.Unlock()
		return slices.Equal(j.entries[name], want), fmt.Sprintf("%q, want %q", j.entries[name], want)
	})
}
