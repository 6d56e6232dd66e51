// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package hosting

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/storage/backup"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// objects serves Stores and HostedResources.
type objects map[string]runtime.Object

func (o objects) Get(_ context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	if found := o[name]; found != nil {
		return found, nil
	}
	return nil, apierrors.NewNotFound(v1alpha1.Resource("any"), name)
}

func hosted(store string, change ...func(*v1alpha1.HostedResource)) *v1alpha1.HostedResource {
	resource := &v1alpha1.HostedResource{
		Spec:   v1alpha1.HostedResourceSpec{StoreName: store},
		Status: v1alpha1.HostedResourceStatus{Phase: v1alpha1.HostedResourcePending},
	}
	for _, f := range change {
		f(resource)
	}
	return resource
}

// backend has definitions and no etcd.
type backend struct {
	defined map[string]bool
	err     error
}

func (b backend) Source(string) (*backup.Source, error) { return &backup.Source{}, b.err }
func (b backend) Target(string) (*backup.Target, error) { return &backup.Target{}, b.err }
func (b backend) Defined(_ context.Context, name string) (bool, error) {
	return b.defined[name], nil
}

// responder keeps the last error.
type responder struct{ err error }

func (*responder) Object(int, runtime.Object) {}
func (r *responder) Error(err error)          { r.err = err }

// connect sends a request and returns the error that the client receives.
func connect(t *testing.T, endpoint rest.Connecter, name, method, query, body string) error {
	t.Helper()
	answer := &responder{}
	handler, err := endpoint.Connect(t.Context(), name, nil, answer)
	if err != nil {
		return err
	}
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), method, "/?"+query, strings.NewReader(body)))
	return answer.err
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	stores := objects{"default": &v1alpha1.Store{}, "fast": &v1alpha1.Store{}}
	resources := objects{
		"waiting.example.com":  hosted(""),
		"ready.example.com":    hosted("fast"),
		"served.example.com":   hosted("fast", func(h *v1alpha1.HostedResource) { h.Status.DefinitionUID = "u" }),
		"moving.example.com":   hosted("fast", func(h *v1alpha1.HostedResource) { h.Finalizers = []string{v1alpha1.MigrationFinalizer} }),
		"phase.example.com":    hosted("fast", func(h *v1alpha1.HostedResource) { h.Status.Phase = v1alpha1.HostedResourceTerminating }),
		"compiled.example.com": hosted("fast", func(h *v1alpha1.HostedResource) { h.Status.Phase = v1alpha1.HostedResourceHosted }),
	}
	up := backend{defined: map[string]bool{"defined.example.com": true}}
	down := backend{err: apierrors.NewServiceUnavailable("Store fast: away")}
	available, unavailable := backups{stores: stores, resources: resources, backend: up}, backups{stores: stores, resources: resources, backend: down}
	restore, fromStore, fromResource := available.restore(), available.ofStore(), available.ofResource()
	for name, tc := range map[string]struct {
		endpoint    rest.Connecter
		name, query string
		code        int32
		want        string
	}{
		"backup of no Store":             {fromStore, "none", "", 404, "none"},
		"backup of a Store that is down": {unavailable.ofStore(), "fast", "", 503, "away"},
		"backup at no number":            {fromStore, "fast", "revision=a&continue=b&data=c", 400, "revision"},
		"backup at a negative number":    {fromStore, "fast", "revision=-1&continue=b&data=c", 400, "revision"},
		"backup from nowhere":            {fromStore, "fast", "continue=b", 400, "together"},
		"backup of no known data":        {fromStore, "fast", "revision=1&continue=b", 400, "together"},
		"backup of no resource":          {fromResource, "none.example.com", "", 404, "none"},
		"backup before it is placed":     {fromResource, "waiting.example.com", "", 409, "no Store yet"},
		"restore to no Store":            {restore, "none", "resource=a.example.com", 404, "none"},
		"restore to one that is down":    {unavailable.restore(), "fast", "resource=a.example.com", 503, "away"},
		"restore of nothing":             {restore, "fast", "", 400, "PLURAL.GROUP"},
		"restore of a core kind":         {restore, "fast", "resource=secrets", 400, "PLURAL.GROUP"},
		"restore of annex's own":         {restore, "fast", "resource=stores.hosting.annex.dev", 400, "belongs to annex itself"},
		"restore of CRDs":                {restore, "fast", "resource=customresourcedefinitions.apiextensions.k8s.io", 400, "belongs to annex itself"},
		"restore with half a check":      {restore, "fast", "resource=a.example.com&check=yes", 400, "check"},
		"restore of what is defined":     {restore, "fast", "resource=defined.example.com", 409, "is served"},
		"restore of what is served":      {restore, "fast", "resource=served.example.com", 409, "is served"},
		"restore of what is going":       {restore, "fast", "resource=phase.example.com", 409, "is served"},
		"restore of what is compiled in": {restore, "fast", "resource=compiled.example.com", 409, "is served"},
		"restore of what is moved":       {restore, "fast", "resource=moving.example.com", 409, "a Migration moves it"},
		"restore to another Store":       {restore, "default", "resource=ready.example.com", 409, `"fast"`},
		"restore of no backup":           {restore, "fast", "resource=ready.example.com", 400, "empty"},
	} {
		err := connect(t, tc.endpoint, tc.name, http.MethodPost, tc.query, "")
		var status apierrors.APIStatus
		if !errors.As(err, &status) || status.Status().Code != tc.code || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %d with %q", name, err, tc.code, tc.want)
		}
	}
}

// endless is an infinite body.
type endless struct{ begin io.Reader }

func (e endless) Read(p []byte) (int, error) {
	if n, err := e.begin.Read(p); err == nil {
		return n, nil
	}
	return len(p), nil
}

func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	var begin bytes.Buffer
	if _, err := backup.NewWriter(&begin, backup.Header{}); err != nil {
		t.Fatal(err)
	}
	restore := backups{stores: objects{"fast": &v1alpha1.Store{}}, resources: objects{}, backend: backend{}}.restore()
	answer := &responder{}
	handler, err := restore.Connect(t.Context(), "fast", nil, answer)
	expect.NoError(t, err)
	const value = "\x89annex\r\n\x1a\nh\x00\x13{\"formatVersion\":1}o\x01\xff\xff\xff\x7fa" // one of 256 MiB less a byte
	request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/?resource=a.example.com", endless{strings.NewReader(value)})
	handler.ServeHTTP(httptest.NewRecorder(), request)
	if !apierrors.IsRequestEntityTooLargeError(answer.err) {
		t.Errorf("a body without end: %v", answer.err)
	}
}

func TestExplain(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		err  error
		code int32
	}{
		{backup.ErrCompacted, 410}, {backup.ErrReplaced, 409}, {backup.ErrTooLarge, 413}, {backup.ErrConflict, 409}, {backup.ErrUnreadable, 422}, {backup.ErrTruncated, 400}, {backup.ErrDamaged, 400},
		{backup.ErrNewer, 400}, {backup.ErrNotBackup, 400}, {backup.ErrPosition, 400}, {errors.New("etcd"), 500}, {apierrors.NewServiceUnavailable("x"), 503},
	} {
		var status apierrors.APIStatus
		if err := explain(tc.err); !errors.As(err, &status) || status.Status().Code != tc.code || !strings.Contains(err.Error(), tc.err.Error()) {
			t.Errorf("%v became %v, want %d", tc.err, err, tc.code)
		}
	}
}
