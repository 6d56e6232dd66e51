// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincluster

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/endpoints/request"
)

func TestAwayFrom(t *testing.T) {
	t.Parallel()
	pods := schema.GroupResource{Resource: "pods"}
	tests := map[string]struct {
		err  error
		away bool
	}{
		"no error":            {nil, false},
		"connection refused":  {errors.New("connect: connection refused"), true},
		"server overloaded":   {apierrors.NewServiceUnavailable("busy"), true},
		"annex has no rights": {apierrors.NewForbidden(pods, "", errors.New("no")), false},
		"annex is unknown":    {apierrors.NewUnauthorized("no"), false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := awayFrom(tc.err)
			if errors.Is(got, errAway) != tc.away {
				t.Errorf("%v is taken for an answer, or for none: want away %t", got, tc.away)
			}
			if !errors.Is(got, tc.err) {
				t.Errorf("%v lost its cause %v", got, tc.err)
			}
		})
	}
}

func TestHonestRefusals(t *testing.T) {
	t.Parallel()
	away := awayFrom(errors.New("connection refused"))
	tests := map[string]struct {
		err    error // of the login
		status int   // what the handler then answers
		want   int
		body   string
	}{
		"login not answered":         {utilerrors.NewAggregate([]error{errors.New("invalid bearer token"), away}), http.StatusUnauthorized, http.StatusServiceUnavailable, "connection refused"},
		"rights not answered":        {away, http.StatusInternalServerError, http.StatusServiceUnavailable, "does not answer"},
		"wrong token":                {errors.New("invalid bearer token"), http.StatusUnauthorized, http.StatusUnauthorized, "inner"},
		"logged in in spite of it":   {away, http.StatusOK, http.StatusOK, "inner"},
		"refused for another reason": {away, http.StatusNotFound, http.StatusNotFound, "inner"},
		"failed by itself":           {nil, http.StatusInternalServerError, http.StatusInternalServerError, "inner"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			logins := noteLogins(authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) { return nil, false, tc.err }))
			inner := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				_, _, _ = logins.AuthenticateRequest(req)
				w.Header().Set("Content-Length", "5")
				w.WriteHeader(tc.status)
				_, _ = w.Write([]byte("inner"))
			})
			req := httptest.NewRequest(http.MethodGet, "/apis", nil)
			req = req.WithContext(request.WithRequestInfo(req.Context(), &request.RequestInfo{}))
			recorder := httptest.NewRecorder()
			WithHonestRefusals(inner, serializer.NewCodecFactory(runtime.NewScheme()).WithoutConversion()).ServeHTTP(recorder, req)
			if recorder.Code != tc.want || !strings.Contains(recorder.Body.String(), tc.body) {
				t.Errorf("answered %d %q, want %d with %q", recorder.Code, recorder.Body, tc.want, tc.body)
			}
		})
	}
}
