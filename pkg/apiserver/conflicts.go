// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"fmt"
	"net/http"

	restclient "k8s.io/client-go/rest"
)

// retryConflicts returns a copy of config for upstream's controllers of CRDs. Its clients get a
// conflict as an error of the transport, which those controllers retry.
//
// They expect an event of the other writer after a conflict, and drop the CRD. The finalizer
// writes the status twice for each attempt, ignores events of these writes, and may have read
// the CRD before the last of them: a deletion that had failed once could then wait for the next
// resync, after up to five minutes (crd_finalizer.go of apiextensions-apiserver).
func retryConflicts(config *restclient.Config) *restclient.Config {
	config = restclient.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return conflictRetrier{next} })
	return config
}

type conflictRetrier struct{ next http.RoundTripper }

func (r conflictRetrier) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := r.next.RoundTrip(request)
	if err != nil || response.StatusCode != http.StatusConflict {
		return response, err
	}
	if err := response.Body.Close(); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("%s: the object was modified since it was read", request.URL.Path)
}
