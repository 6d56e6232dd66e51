// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package crds

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/annex-dev/annex/pkg/test/clients"
)

// Converter responds to the reviews of a conversion webhook.
type Converter func(ctx context.Context, request *apiextensionsv1.ConversionRequest) *apiextensionsv1.ConversionResponse

// ConvertEach returns a Converter that converts each object to an API version. With an error the review
// fails.
func ConvertEach(convert func(object []byte, apiVersion string) ([]byte, error)) Converter {
	return func(_ context.Context, request *apiextensionsv1.ConversionRequest) *apiextensionsv1.ConversionResponse {
		response := &apiextensionsv1.ConversionResponse{UID: request.UID, Result: metav1.Status{Status: metav1.StatusSuccess}}
		for _, object := range request.Objects {
			converted, err := convert(object.Raw, request.DesiredAPIVersion)
			if err != nil {
				response.Result = metav1.Status{Status: metav1.StatusFailure, Message: err.Error()}
				return response
			}
			response.ConvertedObjects = append(response.ConvertedObjects, runtime.RawExtension{Raw: converted})
		}
		return response
	}
}

// Start serves the Converter with TLS until the end of the test, and returns its configuration for
// a CRD.
func (convert Converter) Start(t testing.TB) *apiextensionsv1.WebhookConversion {
	t.Helper()
	server, authority := clients.ServeTLS(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent := &apiextensionsv1.ConversionReview{}
		if err := json.NewDecoder(r.Body).Decode(sent); err != nil || sent.Request == nil {
			http.Error(w, fmt.Sprintf("not a review: %v", err), http.StatusBadRequest)
			return
		}
		answer := &apiextensionsv1.ConversionReview{TypeMeta: sent.TypeMeta, Response: convert(r.Context(), sent.Request)}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(answer); err != nil && r.Context().Err() == nil {
			t.Errorf("respond to a review: %v", err)
		}
	}), nil)
	return &apiextensionsv1.WebhookConversion{
		ClientConfig:             &apiextensionsv1.WebhookClientConfig{URL: new(server.URL + "/convert"), CABundle: authority},
		ConversionReviewVersions: []string{"v1"},
	}
}
