// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package writes

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/iotest"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/annex-dev/annex/pkg/storage/watchcache"
	"github.com/annex-dev/annex/pkg/test/crds"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// body is the body of a request.
type body struct {
	io.Reader
	closed bool
}

func (b *body) Close() error {
	b.closed = true
	return nil
}

// TestReadBody lets a second reader read every byte, and the error that the first one met.
func TestReadBody(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for name, test := range map[string]struct {
		size    int
		err     error
		planned bool
	}{
		"empty":               {0, nil, true},
		"small":               {10, nil, true},
		"at the limit":        {maxPlanned, nil, true},
		"larger by a byte":    {maxPlanned + 1, nil, false},
		"much larger":         {3 * maxPlanned, nil, false},
		"broken":              {10, broken, false},
		"broken at the limit": {maxPlanned, broken, false},
		"broken when large":   {2 * maxPlanned, broken, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sent := bytes.Repeat([]byte("0123456789abcdef"), test.size/16+1)[:test.size]
			reader := io.Reader(bytes.NewReader(sent))
			if test.err != nil {
				reader = io.MultiReader(reader, iotest.ErrReader(test.err))
			}
			from := &body{Reader: reader}
			req := &http.Request{Body: from}
			got := readBody(req)
			if (got != nil) != test.planned || test.planned && !bytes.Equal(got, sent) {
				t.Errorf("read %d bytes of %d", len(got), test.size)
			}
			again, err := io.ReadAll(req.Body)
			if !errors.Is(err, test.err) || !bytes.Equal(again, sent) {
				t.Errorf("read %d bytes of %d again, error %v", len(again), test.size, err)
			}
			expect.NoError(t, req.Body.Close())
			expect.Equal(t, !test.planned, from.closed, "the body that the server closes is closed")
		})
	}
}

func TestReasonOf(t *testing.T) {
	t.Parallel()
	expect.Equal(t, "", reasonOf(nil))
	expect.Equal(t, "changed", reasonOf(fmt.Errorf("write: %w", errChanged)))
	expect.Equal(t, "error", reasonOf(io.EOF))
}

// TestRetractable retracts a response after a step: the header is set, the code is written, two texts are written.
func TestRetractable(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		after int // the step after which the response is retracted
		code  int
		text  string
	}{
		"never":            {4, http.StatusCreated, "onetwo"},
		"at once":          {0, 0, ""},
		"after the header": {1, 0, ""},
		"after the code":   {2, http.StatusCreated, "onetwo"},
		"after a text":     {3, http.StatusCreated, "onetwo"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			recorder, step := httptest.NewRecorder(), 0
			recorder.Header().Set("Audit-Id", "1")
			w := &retractable{ResponseWriter: recorder, header: http.Header{}, isRetracted: func() bool { return step > test.after }}
			step++
			w.Header().Set("Content-Type", "text/plain")
			step++
			w.WriteHeader(http.StatusCreated)
			for _, text := range []string{"one", "two"} {
				step++
				written, err := w.Write([]byte(text))
				expect.NoError(t, err)
				expect.Equal(t, len(text), written, "written")
			}
			w.WriteHeader(http.StatusConflict)
			want := http.Header{"Audit-Id": {"1"}}
			if test.code != 0 {
				want.Set("Content-Type", "text/plain")
				expect.Equal(t, test.code, recorder.Code, "sent code")
			}
			expect.Equal(t, test.code, w.code, "code")
			expect.Equal(t, len(test.text), w.bytes, "bytes")
			expect.Equal(t, test.text, recorder.Body.String())
			expect.Equal(t, want, recorder.Header(), "header")
		})
	}
	recorder := httptest.NewRecorder()
	w := &retractable{ResponseWriter: recorder, header: http.Header{"A": {"b"}}, isRetracted: func() bool { return false }}
	_, err := w.Write([]byte("text"))
	expect.NoError(t, err)
	expect.Equal(t, http.StatusOK, w.code, "code of a response without one")
	expect.Equal(t, http.Header{"A": {"b"}}, recorder.Header(), "header of a response without a code")
}

func TestIsPlannable(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change  func(*apiextensionsv1.CustomResourceDefinition)
		version string
		want    bool
	}{
		"stored version":  {version: "v1", want: true},
		"another version": {version: "v2"},
		"unknown version": {version: "v3"},
		"same content": {func(d *apiextensionsv1.CustomResourceDefinition) {
			d.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter}
		}, "v1", true},
		"webhook": {func(d *apiextensionsv1.CustomResourceDefinition) {
			d.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.WebhookConverter}
		}, "v1", false},
		"deleted": {func(d *apiextensionsv1.CustomResourceDefinition) { d.DeletionTimestamp = &metav1.Time{} }, "v1", false},
	} {
		definition := &apiextensionsv1.CustomResourceDefinition{}
		definition.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Storage: true}, {Name: "v2"}}
		if test.change != nil {
			test.change(definition)
		}
		expect.Equal(t, test.want, isPlannable(definition, test.version), name)
	}
}

// TestNewEndpoint serves nothing if no write can be planned: upstream's handler serves all then.
func TestNewEndpoint(t *testing.T) {
	t.Parallel()
	properties := map[string]apiextensionsv1.JSONSchemaProps{"name": {Type: "string", MaxLength: new(int64(5))}}
	for name, test := range map[string]struct {
		metadata apiextensionsv1.JSONSchemaProps
		served   int
	}{
		"planned":          {apiextensionsv1.JSONSchemaProps{Type: "object"}, 2},
		"a limit of names": {apiextensionsv1.JSONSchemaProps{Type: "object", Properties: properties}, 0},
	} {
		definition := crds.New("example.com", "widgets", "v1")
		definition.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties = map[string]apiextensionsv1.JSONSchemaProps{"metadata": test.metadata}
		kind := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}
		e := newEndpoint(watchcache.Endpoint{Definition: definition, Resource: &watchcache.Resource{Kind: kind}}, nil, newSharedRecents(), 0)
		expect.Equal(t, test.served, len(e.scopes), name)
	}
}
