// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package crdsync

import (
	"maps"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

// ownPrefix is that of annex's labels and annotations, which are not copied.
const ownPrefix = "annex.dev/"

// copiedAnnotations are those that say something about the schema. All others are
// their authors' notes on the object in the main cluster.
var copiedAnnotations = []string{
	// Without it a definition of a *.k8s.io group is refused.
	apiextensionsv1.KubeAPIApprovedAnnotation,
	"controller-gen.kubebuilder.io/version",
}

// desired is annex's definition that follows one of the main cluster's. The
// current one, if any, keeps what is annex's own.
func desired(main, current *definition) *definition {
	wanted := &definition{ObjectMeta: metav1.ObjectMeta{Name: main.Name}}
	if current != nil {
		wanted = current.DeepCopy()
	}
	main.Spec.DeepCopyInto(&wanted.Spec)
	// The main cluster may be of a version that leaves out what annex fills in.
	apiextensionsv1.SetObjectDefaults_CustomResourceDefinition(wanted)

	isCopied := func(key, _ string) bool { return !strings.HasPrefix(key, ownPrefix) }
	maps.DeleteFunc(wanted.Labels, isCopied)
	for key, value := range main.Labels {
		if isCopied(key, value) {
			metav1.SetMetaDataLabel(&wanted.ObjectMeta, key, value)
		}
	}
	for _, key := range copiedAnnotations {
		setAnnotation(wanted, key, main.Annotations[key])
	}
	setAnnotation(wanted, hostingv1alpha1.DefinitionFromAnnotation, hostingv1alpha1.DefinitionFromMain)
	setAnnotation(wanted, hostingv1alpha1.DefinitionUIDAnnotation, string(main.UID))
	return wanted
}

// setAnnotation sets an annotation, or removes it if the value is empty.
func setAnnotation(crd *definition, key, value string) {
	if value == "" {
		delete(crd.Annotations, key)
		return
	}
	metav1.SetMetaDataAnnotation(&crd.ObjectMeta, key, value)
}

// differs reports whether a definition of annex's has to be written to become
// another; a nil one has to be made.
func differs(current, wanted *definition) bool {
	return current == nil || !sameSpec(current, wanted) ||
		!maps.Equal(current.Labels, wanted.Labels) || !maps.Equal(current.Annotations, wanted.Annotations)
}

func sameSpec(a, b *definition) bool {
	return a != nil && b != nil && equality.Semantic.DeepEqual(a.Spec, b.Spec)
}
