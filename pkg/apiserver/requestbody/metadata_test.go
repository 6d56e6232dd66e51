// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package requestbody

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/annex-dev/annex/pkg/admission/plugin/ownerreferences"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// owned is an object with owners of the same UID, encoded.
func owned(t *testing.T, owners int, encode func(any) ([]byte, error)) string {
	t.Helper()
	object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	for i := range owners {
		object.OwnerReferences = append(object.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: fmt.Sprint(i), UID: types.UID("1")})
	}
	encoded, err := encode(object)
	expect.NoError(t, err)
	return string(encoded)
}

func toProtobuf(object any) ([]byte, error) {
	raw, err := object.(*metav1.PartialObjectMetadata).Marshal()
	if err != nil {
		return nil, err
	}
	encoded, err := (&runtime.Unknown{Raw: raw}).Marshal()
	return append(slices.Clone(protobufMagic), encoded...), err
}

func TestOwnersIn(t *testing.T) {
	t.Parallel()
	const many = ownerreferences.MaxReferences + 1
	inJSON := owned(t, many, json.Marshal)
	var flow, block strings.Builder
	for i := range many {
		fmt.Fprintf(&flow, "name: %d,", i)
		fmt.Fprintf(&block, "\n  - name: %d", i)
	}
	for name, test := range map[string]struct {
		mediaType, body string
		want            int
	}{
		"JSON":                  {"application/json", inJSON, many},
		"JSON without a type":   {"", inJSON, many},
		"with a charset":        {"application/json; charset=yaml", inJSON, many},
		"a patch":               {"application/merge-patch+json", inJSON, many},
		"escaped":               {"application/json", strings.ReplaceAll(inJSON, "ownerReferences", `owner\u0052eferences`), many},
		"hidden by another":     {"application/json", strings.Replace(inJSON, "{", `{"metadata": {}, `, 1), many},
		"hidden behind a list":  {"application/json", strings.Replace(inJSON, "{", `{"metadata": [{}, "metadata"], `, 1), many},
		"hidden in front":       {"application/json", strings.TrimSuffix(inJSON, "}") + `, "metadata": {"ownerReferences": []}}`, many},
		"few":                   {"application/json", owned(t, 3, json.Marshal), 0},
		"somewhere else":        {"application/json", `{"spec": ` + inJSON + "}", 0},
		"no object":             {"application/json", "[" + inJSON + "]", 0},
		"cut off":               {"application/json", inJSON[:len(inJSON)/2], 0},
		"YAML in JSON's syntax": {"application/apply-patch+yaml", inJSON, many},
		"YAML":                  {"application/yaml", "metadata:\n  ownerReferences:" + block.String(), many},
		"YAML without braces":   {"application/yaml", "metadata: {ownerReferences: [" + flow.String() + "]}", many},
		"YAML in braces":        {"application/yaml", "{metadata: {ownerReferences: [" + flow.String() + "]}}", many},
		"YAML with escapes":     {"application/yaml", `metadata: {"owner\x52eferences": [` + flow.String() + "]}", many},
		"protobuf":              {"application/vnd.kubernetes.protobuf", owned(t, many, toProtobuf), many},
		"no protobuf":           {"application/vnd.kubernetes.protobuf", inJSON, 0},
		"CBOR":                  {"application/cbor", owned(t, many, direct.Marshal), many},
		"CBOR that is no map":   {"application/cbor", "1", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := shapeOf(t, test.mediaType, test.body).owners; got != test.want {
				t.Errorf("%d owners, want %d", got, test.want)
			}
		})
	}
}

func TestRefusesOwners(t *testing.T) {
	t.Parallel()
	for owners, want := range map[int]int{ownerreferences.MaxReferences: http.StatusOK, ownerreferences.MaxReferences + 1: http.StatusUnprocessableEntity} {
		limits := newLimits(mib)
		encoded := owned(t, owners, json.Marshal)
		received := 0
		handler := WithBody(WithBodyLimits(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
			var all bytes.Buffer
			_, err := all.ReadFrom(req.Body)
			expect.NoError(t, err)
			received = all.Len()
		}), codecs()), limits)
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, newRequest(t, "example.com", strings.NewReader(encoded), len(encoded)))
		if recorder.Code != want || want == http.StatusOK && received != len(encoded) {
			t.Errorf("with %d owners: status %d, want %d; the handler received %d of %d bytes: %s", owners, recorder.Code, want, received, len(encoded), recorder.Body)
		}
	}
}

func TestRefusesManagers(t *testing.T) {
	t.Parallel()
	object := func(managers int) *metav1.PartialObjectMetadata {
		object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
		for i := range managers {
			object.ManagedFields = append(object.ManagedFields, metav1.ManagedFieldsEntry{Manager: fmt.Sprint(i), FieldsType: "FieldsV1", FieldsV1: &metav1.FieldsV1{Raw: []byte("{}")}})
		}
		return object
	}
	for mediaType, encode := range map[string]func(any) ([]byte, error){
		"application/json": json.Marshal, "application/merge-patch+json": json.Marshal, "application/yaml": yaml.Marshal, "application/vnd.kubernetes.protobuf": toProtobuf,
	} {
		for managers, want := range map[int]int{maxManagers: http.StatusNotFound, maxManagers + 1: http.StatusUnprocessableEntity} {
			encoded, err := encode(object(managers))
			expect.NoError(t, err)
			limits, recorder := newLimits(4*mib), httptest.NewRecorder()
			sent := newRequest(t, "example.com", bytes.NewReader(encoded), len(encoded))
			sent.Header.Set("Content-Type", mediaType)
			WithBody(WithBodyLimits(http.NotFoundHandler(), codecs()), limits).ServeHTTP(recorder, sent)
			if recorder.Code != want {
				t.Errorf("%s with %d managers: status %d %s, want %d", mediaType, managers, recorder.Code, recorder.Body, want)
			}
		}
	}
}
