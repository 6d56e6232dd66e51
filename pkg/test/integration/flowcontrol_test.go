// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"net/http"
	"testing"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"

	"github.com/annex-dev/annex/pkg/test/expect"
)

func TestFlowControlObjects(t *testing.T) {
	t.Parallel()
	a := startAnnex(t)
	schemas := a.Kube.FlowcontrolV1().FlowSchemas()
	list, err := schemas.List(t.Context(), metav1.ListOptions{})
	expect.NoError(t, err)
	if want := len(bootstrap.MandatoryFlowSchemas) + len(bootstrap.SuggestedFlowSchemas); len(list.Items) != want {
		t.Errorf("%d FlowSchemas are there at the start, want %d", len(list.Items), want)
	}

	// A patch, because annex writes the status at the same time.
	first := []byte(`{"spec":{"matchingPrecedence":9999}}`)
	if _, err := schemas.Patch(t.Context(), "catch-all", types.MergePatchType, first, metav1.PatchOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("change a mandatory FlowSchema: %v, want invalid", err)
	}
	for _, name := range []string{"catch-all", "global-default"} {
		before := expect.Get(t, schemas, name)
		expect.Delete(t, schemas, name)
		expect.Eventually(t, schemas, name, name+" is recreated", func(after *flowcontrolv1.FlowSchema) bool {
			return after.UID != before.UID
		})
	}

	patch := func(name, content string) {
		t.Helper()
		expect.Patch(t, schemas, name, content)
	}
	// The second is restored in the same pass as the first.
	patch("probes", `{"metadata":{"annotations":{"apf.kubernetes.io/autoupdate-spec":"false"}},"spec":{"matchingPrecedence":77}}`)
	patch("service-accounts", `{"spec":{"matchingPrecedence":77}}`)
	expect.Eventually(t, schemas, "service-accounts", "annex restores its FlowSchema", func(schema *flowcontrolv1.FlowSchema) bool {
		return schema.Spec.MatchingPrecedence == 9000
	})
	if probes, err := schemas.Get(t.Context(), "probes", metav1.GetOptions{}); err != nil || probes.Spec.MatchingPrecedence != 77 {
		t.Errorf("a FlowSchema without auto-update was restored: %v, %v", probes, err)
	}
}

func TestFlowControlDisabled(t *testing.T) {
	t.Parallel()
	a := startAnnex(t, "--enable-priority-and-fairness=false")
	r := a.get(t, "/api/v1/namespaces")
	if uid := r.Header.Get(flowcontrolv1.ResponseHeaderMatchedFlowSchemaUID); r.Code != http.StatusOK || uid != "" {
		t.Errorf("%d by the schema %q, want no schema", r.Code, uid)
	}
	a.get(t, "/debug/api_priority_and_fairness/dump_priority_levels").Expect(t, http.StatusNotFound, "the dump with flow control disabled")
}
