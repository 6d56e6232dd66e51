// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	restclient "k8s.io/client-go/rest"

	"github.com/annex-dev/annex/pkg/test/expect"
)

// TestRetryConflicts updates a status with the client that upstream's controllers of CRDs get.
func TestRetryConflicts(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		answer     *apierrors.StatusError
		isReported func(error) bool
	}{
		"conflict":  {apierrors.NewConflict(apiextensionsv1.Resource("customresourcedefinitions"), "widgets", nil), func(err error) bool { return !apierrors.IsConflict(err) }},
		"not found": {apierrors.NewNotFound(apiextensionsv1.Resource("customresourcedefinitions"), "widgets"), apierrors.IsNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requests := 0
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				requests++
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(int(test.answer.ErrStatus.Code))
				expect.NoError(t, json.NewEncoder(w).Encode(test.answer.Status()))
			}))
			t.Cleanup(server.Close)
			definitions, err := clientset.NewForConfig(retryConflicts(&restclient.Config{Host: server.URL}))
			expect.NoError(t, err)
			crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "widgets"}}
			_, err = definitions.ApiextensionsV1().CustomResourceDefinitions().UpdateStatus(t.Context(), crd, metav1.UpdateOptions{})
			if err == nil || !test.isReported(err) || requests != 1 {
				t.Errorf("%d requests, the error is %v", requests, err)
			}
		})
	}
}
