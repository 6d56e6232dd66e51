// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// maxSelectorTerms bounds the requirements of a selector together with their values. Each object
// of a list and each event of a watch is compared with all of them.
const maxSelectorTerms = 10_000

// refuseRequests refuses requests for which the handlers would serve another resource than the
// authorized one, and requests that would take more work than one request may.
func refuseRequests(handler http.Handler, serializer runtime.NegotiatedSerializer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		info, ok := request.RequestInfoFrom(req.Context())
		if !ok || !info.IsResourceRequest {
			handler.ServeHTTP(w, req)
			return
		}
		if err := refusal(info, req.URL); err != nil {
			responsewriters.ErrorNegotiated(err, serializer, schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}, w, req)
			return
		}
		handler.ServeHTTP(w, req)
	})
}

func refusal(info *request.RequestInfo, address *url.URL) error {
	// No resource has a dot in its name. Upstream's handler of custom resources joins the name and the
	// group, and would serve vaults.internal of example.com as vaults of internal.example.com.
	if strings.Contains(info.Resource, ".") {
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound,
			Message: "the server could not find the requested resource",
		}}
	}
	if len(address.RawQuery) <= maxSelectorTerms {
		return nil // each term takes a byte at least
	}
	query := address.Query()
	for _, parameter := range []string{"labelSelector", "fieldSelector"} {
		if terms := strings.Count(query.Get(parameter), ",") + 1; terms > maxSelectorTerms {
			return apierrors.NewBadRequest(fmt.Sprintf("%s has %d requirements and values, the limit is %d", parameter, terms, maxSelectorTerms))
		}
	}
	return nil
}
