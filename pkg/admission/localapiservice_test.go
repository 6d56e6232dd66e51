// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration"

	"github.com/annex-dev/annex/pkg/test/expect"
)

func TestLocalAPIService(t *testing.T) {
	t.Parallel()
	local := &apiregistration.APIService{ObjectMeta: metav1.ObjectMeta{Name: "v1.example.com"}}
	proxied := local.DeepCopy()
	proxied.Spec.Service = &apiregistration.ServiceReference{Namespace: "default", Name: "elsewhere"}
	tests := map[string]struct {
		object      runtime.Object
		resource    schema.GroupResource
		subresource string
		wantErr     string
	}{
		"local":             {local, apiregistration.Resource("apiservices"), "", ""},
		"proxied":           {proxied, apiregistration.Resource("apiservices"), "", "spec.service: Forbidden: annex does not proxy"},
		"status":            {proxied, apiregistration.Resource("apiservices"), "status", ""},
		"other resource":    {proxied, schema.GroupResource{Group: "example.com", Resource: "apiservices"}, "", ""},
		"unexpected object": {&metav1.Status{}, apiregistration.Resource("apiservices"), "", "expected an APIService"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			attributes := admission.NewAttributesRecord(tc.object, nil, apiregistration.Kind("APIService").WithVersion("v1"), "", "v1.example.com",
				tc.resource.WithVersion("v1"), tc.subresource, admission.Create, &metav1.CreateOptions{}, false, nil)
			err := newLocalAPIService().Validate(t.Context(), attributes, nil)
			expect.ErrorOrNone(t, err, tc.wantErr)
			if err != nil && apierrors.ReasonForError(err) == metav1.StatusReasonUnknown {
				t.Errorf("%v is not an API status error", err)
			}
		})
	}
}

func TestLocalAPIServiceHandles(t *testing.T) {
	t.Parallel()
	for operation, want := range map[admission.Operation]bool{admission.Create: true, admission.Update: true, admission.Delete: false, admission.Connect: false} {
		if got := newLocalAPIService().Handles(operation); got != want {
			t.Errorf("Handles(%s) = %v, want %v", operation, got, want)
		}
	}
}
