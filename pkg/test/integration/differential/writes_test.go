// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/annex-dev/annex/pkg/test/expect"
)

// compareWrites writes through annex, in both versions, and compares each answer with what
// upstream reads from etcd afterwards: objects that must be pruned, defaulted or converted, and
// objects that are stored as they are answered.
func compareWrites(t *testing.T, p *pair) {
	t.Helper()
	const v1, v2 = "/apis/" + group + "/v1/", "/apis/" + group + "/v2/"
	for _, resource := range []string{"namespaces/default/widgets", "planets"} {
		kind, namespace := "Widget", "default"
		if resource == "planets" {
			kind, namespace = "Planet", ""
		}
		for i := 903; i < 906; i++ {
			object := newObject(kind, namespace, i)
			object.SetFinalizers(nil)
			path := resource + "/" + object.GetName()
			compareWrite(t, p, http.MethodPost, v1+resource, v1+path, "application/json", object.Object)
			for n, patch := range []string{
				`{"spec":{"color":"blue","unknown":1},"metadata":{"labels":{"more":"label"}}}`, // pruned
				`{"spec":{"size":7}}`,
				`{"spec":{"size":7}}`,                       // no change
				`{"spec":{"color":null}}`,                   // defaulted
				`{"spec":{"free":{"a":null,"b":[null,1]}}}`, // has nulls
				`{"spec":{"ratio":1.0}}`,
				`{"metadata":{"annotations":{"a":"<\u2028>"},"ownerReferences":null}}`,
			} {
				content, options := string(types.MergePatchType), ""
				if n%4 > 1 {
					content, options = string(types.ApplyPatchType), "?fieldManager=writes&force=true"
					patch = fmt.Sprintf(`{"apiVersion":%q,"kind":%q,%s`, group+"/v1", kind, patch[1:])
				}
				compareWrite(t, p, http.MethodPatch, v1+path+options, v1+path, content, json.RawMessage(patch))
				compareWrite(t, p, http.MethodPatch, v2+path, v2+path, string(types.MergePatchType), json.RawMessage(fmt.Sprintf(`{"metadata":{"labels":{"n":"%d"}}}`, n)))
			}
			compareWrite(t, p, http.MethodPatch, v1+path+"/status", v1+path, string(types.MergePatchType), json.RawMessage(`{"status":{"ready":true,"none":null}}`))
		}
	}
}

// compareWrite sends a write to annex, and compares the answer with an object that upstream reads.
func compareWrite(t *testing.T, p *pair, method, path, read, contentType string, body any) {
	t.Helper()
	got, err := send(t.Context(), p.annex.http, method, p.annex.url+path, contentType, body)
	expect.NoError(t, err)
	want, err := p.upstream.read(t.Context(), request{path: read, accept: "application/json"})
	expect.NoError(t, err)
	if got := normalized(string(got)); got != want.body {
		t.Errorf("%s %s %s\nannex answers:  %s\nupstream reads: %s", method, path, body, got, want.body)
	}
}
