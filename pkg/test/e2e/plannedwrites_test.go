// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/annex-dev/annex/pkg/test/crds"
	"github.com/annex-dev/annex/pkg/test/crgen"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// plannedPart is the least part of ordinary writes that are planned.
const plannedPart = 0.9

// TestOrdinaryWrites writes objects of the CRDs of other projects as controllers do, and fails unless most writes are planned.
func TestOrdinaryWrites(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	before := reasons{}
	for _, source := range crds.Sources() {
		if source.Name == "gateway-api-experimental" {
			continue // the same CRDs as gateway-api
		}
		manifests, err := crds.Load(t.Context(), source)
		expect.NoError(t, err)
		for _, manifest := range manifests {
			s.liveAs(t, manifest.CRD)
			if _, unplanned := s.writesByReason(t); unplanned.sum() > before.sum() {
				t.Logf("not planned after %s: %v", manifest.CRD.Name, unplanned)
				before = unplanned
			}
		}
	}
	total, unplanned := s.writesByReason(t)
	if planned := 1 - float64(unplanned.sum())/float64(max(total, 1)); total == 0 || planned < plannedPart {
		t.Errorf("%.0f %% of %d writes were planned, want %.0f %%: %v", 100*planned, total, 100*plannedPart, unplanned)
	}
}

// liveAs creates an object of a CRD, and writes to it as its controller and an applier do, until it is deleted.
func (s *server) liveAs(t *testing.T, crd *apiextensionsv1.CustomResourceDefinition) {
	t.Helper()
	_, err := s.CRDs().Create(t.Context(), crd, metav1.CreateOptions{})
	expect.NoError(t, err)
	stored := crd.Spec.Versions[slices.IndexFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Storage })]
	resource := schema.GroupVersionResource{Group: crd.Spec.Group, Version: stored.Name, Resource: crd.Spec.Names.Plural}
	objects := dynamic.ResourceInterface(s.Dynamic.Resource(resource))
	if crd.Spec.Scope == apiextensionsv1.NamespaceScoped {
		objects = s.Dynamic.Resource(resource).Namespace("default")
	}
	poll.UntilNoError(t, crd.Name+" is served", func() error {
		_, err := objects.List(t.Context(), metav1.ListOptions{})
		return err
	})
	pair, err := crgen.New(t.Context(), crd, stored.Name, "default", "sample")
	expect.NoError(t, err)
	object, err := objects.Create(t.Context(), pair.Minimal, metav1.CreateOptions{})
	expect.NoError(t, err)
	object.SetFinalizers([]string{"example.com/controller"})
	object, err = objects.Update(t.Context(), object, metav1.UpdateOptions{})
	expect.NoError(t, err)
	for i := range 3 {
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"example.com/seen":"%d"}}}`, i)
		object, err = objects.Patch(t.Context(), object.GetName(), types.MergePatchType, patch, metav1.PatchOptions{})
		expect.NoError(t, err)
		if hasConditions(&stored) {
			setCondition(object, i)
			object, err = objects.UpdateStatus(t.Context(), object, metav1.UpdateOptions{})
			expect.NoError(t, err)
		}
	}
	for i := range 6 {
		applied := pair.Full.DeepCopy()
		applied.SetLabels(map[string]string{"example.com/revision": strconv.Itoa(i)})
		_, err = objects.Apply(t.Context(), applied.GetName(), applied, metav1.ApplyOptions{FieldManager: "applier", Force: true})
		expect.NoError(t, err)
	}
	expect.NoError(t, objects.Delete(t.Context(), object.GetName(), metav1.DeleteOptions{}))
	_, err = objects.Patch(t.Context(), object.GetName(), types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	expect.NoError(t, err)
}

// hasConditions reports whether the status of a version is a subresource with the conditions of Kubernetes' conventions.
func hasConditions(version *apiextensionsv1.CustomResourceDefinitionVersion) bool {
	status := version.Schema.OpenAPIV3Schema.Properties["status"]
	conditions := status.Properties["conditions"]
	if version.Subresources == nil || version.Subresources.Status == nil || len(status.Required) > 0 || conditions.Items == nil {
		return false
	}
	fields := conditions.Items.Schema.Properties
	_, hasReason := fields["reason"]
	_, hasTime := fields["lastTransitionTime"]
	return hasReason && hasTime && len(conditions.Items.Schema.Properties["type"].Enum) == 0
}

func setCondition(object *unstructured.Unstructured, i int) {
	condition := map[string]any{
		"type": "Ready", "status": "True", "reason": "Reconciled", "message": fmt.Sprint("Seen ", i), "lastTransitionTime": "2026-01-01T00:00:00Z",
	}
	status, _ := object.Object["status"].(map[string]any)
	if status == nil {
		status = map[string]any{}
	}
	status["conditions"] = []any{condition}
	object.Object["status"] = status
}

// reasons counts writes that were not planned, by verb and reason.
type reasons map[string]int

func (r reasons) sum() (sum int) {
	for _, count := range r {
		sum += count
	}
	return sum
}

var plannedWrite = regexp.MustCompile(`annex_custom_resource_planned_writes_total\{reason="(.*)",verb="(.*)"\} (\d+)`)

// writesByReason returns the writes so far, and those that were not planned.
func (s *server) writesByReason(t *testing.T) (total int, unplanned reasons) {
	t.Helper()
	content, err := s.Kube.Discovery().RESTClient().Get().AbsPath("/metrics").Do(t.Context()).Raw()
	expect.NoError(t, err)
	unplanned = reasons{}
	for _, found := range plannedWrite.FindAllStringSubmatch(string(content), -1) {
		count, err := strconv.Atoi(found[3])
		expect.NoError(t, err)
		total += count
		if found[1] != "" {
			unplanned[found[2]+" "+found[1]] += count
		}
	}
	return total, unplanned
}
