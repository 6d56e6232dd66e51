// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package injector

import (
	"net/http"
	"sync/atomic"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	x509request "k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/klog/v2"
)

// fromCallers passes on requests with a client certificate of a CA for one of the names, as
// --client-ca-file and --allowed-names say. The responses have profiles, and profiles may have
// credentials.
func fromCallers(ca dynamiccertificates.CAContentProvider, names []string, next http.HandlerFunc) http.HandlerFunc {
	verified := authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) { return nil, true, nil })
	callers := x509request.NewDynamicCAVerifier(ca.VerifyOptions, verified, x509request.StaticStringSlice(names))
	return func(response http.ResponseWriter, r *http.Request) {
		if _, ok, err := callers.AuthenticateRequest(r); !ok {
			klog.FromContext(r.Context()).V(2).Info("Refused a request without a client certificate of --client-ca-file for one of --allowed-names", "address", r.RemoteAddr, "reason", err)
			http.Error(response, "a client certificate of --client-ca-file for one of --allowed-names is required", http.StatusUnauthorized)
			return
		}
		next(response, r)
	}
}

const (
	// maxInFlight bounds the bytes of the reviews that are answered at a time.
	maxInFlight = maxReview
	// minCost bytes are counted for smaller reviews.
	minCost = 512 << 10
)

// inFlight counts the bytes of reviews.
type inFlight struct{ bytes atomic.Int64 }

// limit refuses requests above maxInFlight. API servers repeat them within the time-out of a webhook.
func (f *inFlight) limit(next http.HandlerFunc) http.HandlerFunc {
	return func(response http.ResponseWriter, r *http.Request) {
		cost := max(r.ContentLength, minCost)
		if r.ContentLength < 0 || cost > maxReview {
			http.Error(response, "a review must have a Content-Length of at most 48 MiB", http.StatusRequestEntityTooLarge)
			return
		}
		defer f.bytes.Add(-cost)
		if f.bytes.Add(cost) > maxInFlight {
			response.Header().Set("Retry-After", "1")
			http.Error(response, "too many reviews at a time", http.StatusTooManyRequests)
			return
		}
		next(response, r)
	}
}
