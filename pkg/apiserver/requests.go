// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// refuseRequests refuses requests that were authorized as something else than what the handlers
// would serve.
func refuseRequests(handler http.Handler, serializer runtime.NegotiatedSerializer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		info, ok := request.RequestInfoFrom(req.Context())
		if !ok || !info.IsResourceRequest {
			handler.ServeHTTP(w, req)
			return
		}
		if err := refusal(info); err != nil {
			responsewriters.ErrorNegotiated(err, serializer, schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}, w, req)
			return
		}
		handler.ServeHTTP(w, req)
	})
}

func refusal(info *request.RequestInfo) error {
	// No resource has a dot in its name. Upstream's handler of custom resources joins the name and the
	// group, and would serve vaults.internal of example.com as vaults of internal.example.com.
	if strings.Contains(info.Resource, ".") {
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound,
			Message: "the server could not find the requested resource",
		}}
	}
	return nil
}
