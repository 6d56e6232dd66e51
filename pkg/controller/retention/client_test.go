// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package retention

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"

	"github.com/annex-dev/annex/pkg/test/expect"
)

func TestErrorsHaveTheServersMessage(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write([]byte(`{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "BadRequest", "code": 400, "message": "the conversion webhook is gone"}`))
	}))
	defer server.Close()
	annex, err := kubernetes.NewForConfig(&restclient.Config{Host: server.URL})
	expect.NoError(t, err)
	objects := NewObjects(annex.Discovery().RESTClient, nil)
	resource := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
	_, err = objects.List(t.Context(), resource, 1, "")
	expect.Error(t, err, "list widgets.example.com", "the conversion webhook is gone")
	_, err = objects.Get(t.Context(), resource, types.NamespacedName{Namespace: "team", Name: "a"})
	expect.Error(t, err, "read widgets.example.com team/a", "the conversion webhook is gone")
}
