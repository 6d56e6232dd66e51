// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"

	"github.com/annex-dev/annex/pkg/test/expect"
)

func TestCheckObject(t *testing.T) {
	t.Parallel()
	types := runtime.NewScheme()
	expect.NoError(t, rbacv1.AddToScheme(types))
	inProtobuf := func(metadata metav1.ObjectMeta) string {
		role := &rbacv1.Role{
			TypeMeta: metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "Role"}, ObjectMeta: metadata,
			Rules: []rbacv1.PolicyRule{{Verbs: []string{"get"}, Resources: []string{"secrets"}}},
		}
		encoded, err := runtime.Encode(protobuf.NewSerializer(types, types), role)
		expect.NoError(t, err)
		return string(encoded)
	}
	named := metav1.ObjectMeta{Namespace: "ns", Name: "w0001", UID: "u1"}
	for name, test := range map[string]struct{ value, err string }{
		"JSON":                  {widget(1), ""},
		"protobuf":              {inProtobuf(named), ""},
		"JSON, another name":    {widget(2), `it is the object "ns/w0002"`},
		"protobuf, another":     {inProtobuf(metav1.ObjectMeta{Name: "w0001", UID: "u1"}), `it is the object "w0001"`},
		"JSON without UID":      {`{"metadata":{"namespace":"ns","name":"w0001"}}`, `it is the object "ns/w0001"`},
		"protobuf without UID":  {inProtobuf(metav1.ObjectMeta{Namespace: "ns", Name: "w0001"}), `it is the object "ns/w0001"`},
		"truncated JSON":        {widget(1)[:40], "it is not a JSON object"},
		"truncated protobuf":    {inProtobuf(named)[:40], "it is not an object in protobuf"},
		"protobuf without kind": {string(protobufMagic), `it is the object ""`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := checkObject("ns/w0001", []byte(test.value))
			if test.err == "" && err != nil || test.err != "" && (err == nil || !strings.HasPrefix(err.Error(), test.err)) {
				t.Errorf("got error %v, want %q", err, test.err)
			}
		})
	}
}
