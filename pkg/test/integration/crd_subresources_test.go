// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"

	"github.com/annex-dev/annex/pkg/test/expect"
)

const replicasSchema = `
type: object
properties:
  spec:
    type: object
    properties: {replicas: {type: integer, maximum: 100}, color: {type: string}}
  status:
    type: object
    properties: {replicas: {type: integer}, selector: {type: string}}
`

func TestStatusSubresource(t *testing.T) {
	t.Parallel()
	crd := newCRD(t, replicasSchema)
	crd.Spec.Versions[0].Subresources = &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}}
	widgets := sharedAnnex(t).installCRD(t, crd)

	created := widgets.create(t, "v1", "a", "{spec: {replicas: 1}, status: {replicas: 9}}")
	if got := field(created, "status"); got != nil {
		t.Errorf("create set a status: %v", got)
	}
	updated := widgets.mustPatch(t, "v1", "a", `{"spec": {"replicas": 2}, "status": {"replicas": 9}}`)
	if field(updated, "status") != nil || field(updated, "spec", "replicas") != int64(2) || updated.GetGeneration() != 2 {
		t.Errorf("a patch of the object gave %v", updated)
	}
	status := widgets.mustPatch(t, "v1", "a", `{"spec": {"replicas": 3}, "status": {"replicas": 9}}`, "status")
	if field(status, "status", "replicas") != int64(9) || field(status, "spec", "replicas") != int64(2) || status.GetGeneration() != 2 {
		t.Errorf("a patch of the status gave %v", status)
	}

	status.SetResourceVersion(created.GetResourceVersion())
	_, err := widgets.in("v1").UpdateStatus(t.Context(), status, metav1.UpdateOptions{})
	expect.Error(t, err, "the object has been modified; please apply your changes to the latest version and try again")
}

func TestScaleSubresource(t *testing.T) {
	t.Parallel()
	crd := newCRD(t, replicasSchema)
	crd.Spec.Versions[0].Subresources = &apiextensionsv1.CustomResourceSubresources{
		Status: &apiextensionsv1.CustomResourceSubresourceStatus{},
		Scale: &apiextensionsv1.CustomResourceSubresourceScale{
			SpecReplicasPath: ".spec.replicas", StatusReplicasPath: ".status.replicas", LabelSelectorPath: ptr.To(".status.selector"),
		},
	}
	widgets := sharedAnnex(t).installCRD(t, crd)
	widgets.create(t, "v1", "a", "spec: {replicas: 1, color: blue}")
	widgets.mustPatch(t, "v1", "a", `{"status": {"replicas": 1, "selector": "app=a"}}`, "status")

	path := widgets.path("v1") + "/a/scale"
	var scale autoscalingv1.Scale
	widgets.annex.get(t, path).Into(t, &scale)
	want := autoscalingv1.ScaleStatus{Replicas: 1, Selector: "app=a"}
	if scale.APIVersion != "autoscaling/v1" || scale.Kind != "Scale" || scale.Spec.Replicas != 1 || scale.Status != want {
		t.Errorf("the scale is %+v", scale)
	}
	merge := []string{"Content-Type", string(types.MergePatchType)}
	widgets.annex.request(t, http.MethodPatch, path, `{"spec": {"replicas": 7}}`, merge...).Expect(t, http.StatusOK, "scaling")
	object := widgets.get(t, "v1", "a")
	if field(object, "spec", "replicas") != int64(7) || field(object, "spec", "color") != "blue" || field(object, "status", "replicas") != int64(1) {
		t.Errorf("after scaling the object is %v", object)
	}
	widgets.annex.request(t, http.MethodPatch, path, `{"spec": {"replicas": 101}}`, merge...).ExpectText(t, http.StatusUnprocessableEntity, "less than or equal to 100", "scaling beyond what the schema allows")
	widgets.annex.get(t, widgets.path("v1")+"/none/scale").Expect(t, http.StatusNotFound, "the scale of nothing")
}

func TestPrinterColumns(t *testing.T) {
	t.Parallel()
	crd := newCRD(t, replicasSchema)
	crd.Spec.Versions[0].AdditionalPrinterColumns = []apiextensionsv1.CustomResourceColumnDefinition{
		{Name: "Replicas", Type: "integer", JSONPath: ".spec.replicas", Description: "how many"},
		{Name: "Color", Type: "string", JSONPath: ".spec.color", Priority: 1},
		{Name: "Age", Type: "date", JSONPath: ".metadata.creationTimestamp"},
		{Name: "Due", Type: "date", JSONPath: ".spec.color"},
	}
	widgets := sharedAnnex(t).installCRD(t, crd)
	widgets.create(t, "v1", "a", "spec: {replicas: 4, color: blue}")
	widgets.create(t, "v1", "b", `spec: {color: "2999-01-01T00:00:00Z"}`)

	const asTable = "application/json;as=Table;v=v1;g=meta.k8s.io"
	for what, path := range map[string]string{"list": widgets.path("v1"), "object": widgets.path("v1") + "/a"} {
		var table metav1.Table
		widgets.annex.get(t, path, "Accept", asTable).Into(t, &table)
		var columns []string
		for _, column := range table.ColumnDefinitions {
			columns = append(columns, fmt.Sprintf("%s %s %d", column.Name, column.Type, column.Priority))
		}
		if diff := cmp.Diff([]string{"Name string 0", "Replicas integer 0", "Color string 1", "Age date 0", "Due date 0"}, columns); diff != "" {
			t.Errorf("%s: columns (-want +got):\n%s", what, diff)
		}
		if len(table.Rows) == 0 {
			t.Fatalf("%s: no rows", what)
		}
		cells := table.Rows[0].Cells
		if len(cells) != 5 || cells[0] != "a" || cells[1] != 4.0 || cells[2] != "blue" || !strings.HasSuffix(fmt.Sprint(cells[3]), "s") {
			t.Errorf("%s: the first row is %v", what, cells)
		}
		if object := string(table.Rows[0].Object.Raw); !strings.Contains(object, "PartialObjectMetadata") || strings.Contains(object, "replicas\":4") {
			t.Errorf("%s: the row's object is %s, want its metadata", what, object)
		}
	}
	for include, want := range map[string]string{"Object": `"color":"blue"`, "None": ""} {
		var table metav1.Table
		widgets.annex.get(t, widgets.path("v1")+"?includeObject="+include, "Accept", asTable).Into(t, &table)
		if object := string(table.Rows[0].Object.Raw); !strings.Contains(object, want) || (want == "" && object != "") {
			t.Errorf("includeObject=%s: the row's object is %q", include, object)
		}
		expect.Equal(t, any("in 292y"), table.Rows[1].Cells[4], "includeObject=%s: a date in the future", include)
	}
	var metadata metav1.PartialObjectMetadataList
	got := widgets.annex.get(t, widgets.path("v1"), "Accept", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io")
	if got.Into(t, &metadata); len(metadata.Items) != 2 || strings.Contains(string(got.Body), "replicas\":4") {
		t.Errorf("metadata of the list: %s", got)
	}
}

func TestSelectableFields(t *testing.T) {
	t.Parallel()
	crd := newCRD(t, replicasSchema)
	crd.Spec.Versions[0].SelectableFields = []apiextensionsv1.SelectableField{{JSONPath: ".spec.color"}, {JSONPath: ".spec.replicas"}}
	widgets := sharedAnnex(t).installCRD(t, crd)
	events := widgets.watch(t, "v1", metav1.ListOptions{FieldSelector: "spec.color=blue"})
	widgets.create(t, "v1", "red", "spec: {color: red, replicas: 1}")
	widgets.create(t, "v1", "blue", "spec: {color: blue, replicas: 2}")
	widgets.create(t, "v1", "colorless", "spec: {replicas: 2}")

	tests := map[string]struct {
		selector string
		want     []string
	}{
		"equal":   {"spec.color=blue", []string{"blue"}},
		"unequal": {"spec.color!=blue", []string{"colorless", "red"}},
		"integer": {"spec.replicas=2", []string{"blue", "colorless"}},
		"both":    {"spec.replicas=2,spec.color!=blue", []string{"colorless"}},
		"not set": {"spec.color=", []string{"colorless"}},
		"by name": {"metadata.name=red,spec.replicas=1", []string{"red"}},
		"none":    {"spec.color=green", []string{}},
	}
	for name, test := range tests {
		if diff := cmp.Diff(test.want, widgets.names(t, "v1", metav1.ListOptions{FieldSelector: test.selector})); diff != "" {
			t.Errorf("%s: list (-want +got):\n%s", name, diff)
		}
	}
	_, err := widgets.in("v1").List(t.Context(), metav1.ListOptions{FieldSelector: "spec.size=1"})
	expect.Error(t, err, `field label not supported: spec.size`)

	// An object enters and leaves a watch with a field selector.
	widgets.mustPatch(t, "v1", "blue", `{"spec": {"color": "red"}}`)
	for _, want := range []watch.EventType{watch.Added, watch.Deleted} {
		event := nextEvent(t, events)
		if object, ok := event.Object.(*unstructured.Unstructured); !ok || event.Type != want || object.GetName() != "blue" {
			t.Errorf("the watch of blue objects received %v, want %s of blue", event, want)
		}
	}

	err = widgets.in("v1").DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{FieldSelector: "spec.color=red"})
	expect.NoError(t, err)
	widgets.wantNames(t, "after the red ones were deleted", "colorless")
}
