// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package ownerreferences

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"

	"github.com/annex-dev/annex/pkg/test/expect"
)

// owned is an object with owners, some of them controllers.
func owned(references, controllers int) *corev1.ConfigMap {
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	for i := range references {
		controller := i < controllers
		object.OwnerReferences = append(object.OwnerReferences, metav1.OwnerReference{
			APIVersion: "v1", Kind: "ConfigMap", Name: strings.Repeat("n", 1000), UID: types.UID(fmt.Sprint(i)), Controller: &controller,
		})
	}
	return object
}

func TestAdmit(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		object, old runtime.Object
		want        string
	}{
		"none":                     {owned(0, 0), nil, ""},
		"some":                     {owned(3, 1), nil, ""},
		"as many as possible":      {owned(MaxReferences, 1), nil, ""},
		"too many":                 {owned(MaxReferences+1, 0), nil, "metadata.ownerReferences: Too many: 501: must have at most 500 items"},
		"too many by an update":    {owned(MaxReferences+1, 0), owned(MaxReferences, 0), "Too many"},
		"too many already":         {owned(MaxReferences+2, 0), owned(MaxReferences+2, 0), ""},
		"other controllers":        {owned(100, 100), owned(100, 1), `"100 controllers"`},
		"a second controller":      {owned(2, 2), nil, ""}, // upstream refuses it
		"many controllers":         {owned(100, 100), nil, `metadata.ownerReferences: Invalid value: "100 controllers"`},
		"an object without owners": {&metav1.Status{}, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			operation := admission.Create
			if test.old != nil {
				operation = admission.Update
			}
			attributes := admission.NewAttributesRecord(test.object, test.old, corev1.SchemeGroupVersion.WithKind("ConfigMap"), "team", "a",
				corev1.SchemeGroupVersion.WithResource("configmaps"), "", operation, nil, false, nil)
			err := New().Admit(t.Context(), attributes, nil)
			expect.ErrorOrNone(t, err, test.want)
			if err != nil && len(err.Error()) > 300 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
		})
	}
}
