// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package group

import (
	"maps"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

// ownPrefix is the prefix of annex's labels and annotations, which are not copied.
const ownPrefix = "annex.dev/"

// copiedAnnotations describe the schema. All others belong to the object in the main cluster.
var copiedAnnotations = []string{
	// A definition of a *.k8s.io group is rejected without it.
	apiextensionsv1.KubeAPIApprovedAnnotation,
	"controller-gen.kubebuilder.io/version",
}

// desired returns annex's definition for one of the main cluster. It keeps annex's own
// labels and annotations of the current one, if any.
func desired(main, current *Definition) *Definition {
	wanted := &Definition{ObjectMeta: metav1.ObjectMeta{Name: main.Name}}
	if current != nil {
		wanted = current.DeepCopy()
	}
	main.Spec.DeepCopyInto(&wanted.Spec)
	// An older main cluster may omit defaults that annex sets.
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
func setAnnotation(crd *Definition, key, value string) {
	if value == "" {
		delete(crd.Annotations, key)
		return
	}
	metav1.SetMetaDataAnnotation(&crd.ObjectMeta, key, value)
}

// differs reports whether annex's definition must be written; a nil one must be created.
func differs(current, wanted *Definition) bool {
	return current == nil || !sameSpec(current, wanted) || !sameMetadata(current, wanted)
}

func sameSpec(a, b *Definition) bool {
	return a != nil && b != nil && equality.Semantic.DeepEqual(a.Spec, b.Spec)
}

func sameMetadata(a, b metav1.Object) bool {
	return maps.Equal(a.GetLabels(), b.GetLabels()) && maps.Equal(a.GetAnnotations(), b.GetAnnotations())
}
