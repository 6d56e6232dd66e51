// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package injector

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/klog/v2"

	"github.com/annex-dev/annex/pkg/injection"
)

// review answers an AdmissionReview. Errors that are not the client's are responses other than 200,
// so that the failurePolicy of the webhook decides.
func (w *webhook) review(response http.ResponseWriter, r *http.Request) {
	review := &admissionv1.AdmissionReview{}
	if err := json.NewDecoder(http.MaxBytesReader(response, r.Body, maxReview)).Decode(review); err != nil {
		http.Error(response, fmt.Sprintf("decode the review: %v", err), http.StatusBadRequest)
		return
	}
	if review.GroupVersionKind() != admissionv1.SchemeGroupVersion.WithKind("AdmissionReview") || review.Request == nil {
		http.Error(response, fmt.Sprintf("expected an AdmissionReview of %s with a request", admissionv1.SchemeGroupVersion), http.StatusBadRequest)
		return
	}
	if !w.ready() {
		http.Error(response, "the caches are not filled yet", http.StatusServiceUnavailable)
		return
	}
	answer, err := w.answer(r.Context(), review.Request)
	if err != nil {
		klog.FromContext(r.Context()).Error(err, "A review failed", "resource", review.Request.Resource, "namespace", review.Request.Namespace, "name", review.Request.Name)
		http.Error(response, err.Error(), http.StatusInternalServerError)
		return
	}
	answer.UID = review.Request.UID
	response.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(response).Encode(&admissionv1.AdmissionReview{TypeMeta: review.TypeMeta, Response: answer}) // the caller may be gone
}

func (w *webhook) answer(ctx context.Context, request *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
	allowed := &admissionv1.AdmissionResponse{Allowed: true}
	if request.SubResource != "" || request.Operation != admissionv1.Create && request.Operation != admissionv1.Update {
		return allowed, nil
	}
	object, err := decode(request.Object.Raw)
	if err != nil || object == nil {
		return nil, errors.Join(errors.New("the request has no object"), err)
	}
	stored, err := decode(request.OldObject.Raw)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{Object: object}
	if u.GetDeletionTimestamp() != nil {
		return allowed, nil
	}
	resource := schema.GroupResource{Group: request.Resource.Group, Resource: request.Resource.Resource}
	found, err := w.source.Find(injection.Object{
		Resource: resource, Namespace: request.Namespace, Labels: u.GetLabels(), Annotations: u.GetAnnotations(),
		NamespaceLabels: func() (map[string]string, error) { return w.namespaceLabels(ctx, request.Namespace) },
	})
	if err != nil {
		return refuse(request, err)
	}
	if found.Misfit != nil {
		allowed.Warnings = []string{found.Misfit.Error()}
	}
	injected, err := found.Inject(ctx, request.Resource.Version, object, stored)
	if err != nil {
		return refuse(request, err)
	}
	operations := diff(nil, "", object, injected, patchDepth)
	if len(operations) == 0 {
		return allowed, nil
	}
	if allowed.Patch, err = json.Marshal(operations); err != nil {
		return nil, fmt.Errorf("encode the patch: %w", err)
	}
	allowed.PatchType = new(admissionv1.PatchTypeJSONPatch)
	return allowed, nil
}

func refuse(request *admissionv1.AdmissionRequest, err error) (*admissionv1.AdmissionResponse, error) {
	status := injection.StatusError(schema.GroupKind{Group: request.Kind.Group, Kind: request.Kind.Kind}, request.Name, err).Status()
	if status.Code >= http.StatusInternalServerError {
		return nil, err
	}
	return &admissionv1.AdmissionResponse{Result: &status}, nil
}

// decode decodes an object, nil if there is none.
func decode(raw []byte) (map[string]any, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	var object map[string]any
	if err := utiljson.Unmarshal(raw, &object); err != nil {
		return nil, fmt.Errorf("decode the object: %w", err)
	}
	return object, nil
}
