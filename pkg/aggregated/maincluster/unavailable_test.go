// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincluster

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// respond is a main cluster that returns one response, or none.
type respond struct {
	status int
	err    error
}

func (r respond) RoundTrip(*http.Request) (*http.Response, error) {
	if r.err != nil {
		return nil, r.err
	}
	return &http.Response{StatusCode: r.status, Status: http.StatusText(r.status), Body: http.NoBody}, nil
}

func TestOnlyAnswers(t *testing.T) {
	t.Parallel()
	refused := errors.New("connection refused")
	tests := map[string]struct {
		main respond
		away bool
	}{
		"answers":             {respond{status: http.StatusCreated}, false},
		"refuses annex":       {respond{status: http.StatusForbidden}, false},
		"does not know annex": {respond{status: http.StatusUnauthorized}, false},
		"cannot answer":       {respond{status: http.StatusServiceUnavailable}, true},
		"is not there":        {respond{err: refused}, true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			response, err := newReviewTransport(tc.main).RoundTrip(httptest.NewRequest(http.MethodPost, "/", nil))
			if errors.Is(err, errUnavailable) != tc.away || (response == nil) != tc.away {
				t.Errorf("response %v, error %v: want away %t", response, err, tc.away)
			}
			if tc.main.err != nil && !errors.Is(err, tc.main.err) {
				t.Errorf("%v lost its cause %v", err, tc.main.err)
			}
		})
	}
}

func TestUnavailableStatus(t *testing.T) {
	t.Parallel()
	away := fmt.Errorf("%w: %w", errUnavailable, errors.New("Post https://10.0.0.1:6443: connection refused"))
	tests := map[string]struct {
		err    error // of the login
		status int   // what the handler then answers
		want   int
		body   string
	}{
		"login not answered":         {utilerrors.NewAggregate([]error{errors.New("invalid bearer token"), away}), http.StatusUnauthorized, http.StatusServiceUnavailable, "is not responding"},
		"rights not answered":        {away, http.StatusInternalServerError, http.StatusServiceUnavailable, "is not responding"},
		"wrong token":                {errors.New("invalid bearer token"), http.StatusUnauthorized, http.StatusUnauthorized, "inner"},
		"logged in in spite of it":   {away, http.StatusOK, http.StatusOK, "inner"},
		"refused for another reason": {away, http.StatusNotFound, http.StatusNotFound, "inner"},
		"failed by itself":           {nil, http.StatusInternalServerError, http.StatusInternalServerError, "inner"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			logins := markingAuthenticator(authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) { return nil, false, tc.err }))
			inner := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				_, _, _ = logins.AuthenticateRequest(req)
				w.Header().Set("Content-Length", "5")
				w.WriteHeader(tc.status)
				_, _ = w.Write([]byte("inner"))
			})
			req := httptest.NewRequest(http.MethodGet, "/apis", nil)
			req = req.WithContext(request.WithRequestInfo(req.Context(), &request.RequestInfo{}))
			recorder := httptest.NewRecorder()
			WithUnavailableStatus(inner, serializer.NewCodecFactory(runtime.NewScheme()).WithoutConversion()).ServeHTTP(recorder, req)
			if recorder.Code != tc.want || !strings.Contains(recorder.Body.String(), tc.body) {
				t.Errorf("answered %d %q, want %d with %q", recorder.Code, recorder.Body, tc.want, tc.body)
			}
			if strings.Contains(recorder.Body.String(), "10.0.0.1") {
				t.Errorf("a stranger learns where the main cluster is: %s", recorder.Body)
			}
		})
	}
}
