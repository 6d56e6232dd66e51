// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package crdsync

import (
	"context"
	"maps"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/typed/apiregistration/v1"
	"k8s.io/utils/ptr"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

// ownPrefix is the prefix of annex's labels and annotations, which are not copied.
const ownPrefix = "annex.dev/"

// copiedAnnotations describe the schema. All others belong to the object in the main
// cluster.
var copiedAnnotations = []string{
	// A definition of a *.k8s.io group is rejected without it.
	apiextensionsv1.KubeAPIApprovedAnnotation,
	"controller-gen.kubebuilder.io/version",
}

// desired returns annex's definition for one of the main cluster. It keeps annex's own
// labels and annotations of the current one, if any.
func desired(main, current *definition) *definition {
	wanted := &definition{ObjectMeta: metav1.ObjectMeta{Name: main.Name}}
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
func setAnnotation(crd *definition, key, value string) {
	if value == "" {
		delete(crd.Annotations, key)
		return
	}
	metav1.SetMetaDataAnnotation(&crd.ObjectMeta, key, value)
}

// differs reports whether annex's definition must be written; a nil one must be created.
func differs(current, wanted *definition) bool {
	return current == nil || !sameSpec(current, wanted) ||
		!maps.Equal(current.Labels, wanted.Labels) || !maps.Equal(current.Annotations, wanted.Annotations)
}

func sameSpec(a, b *definition) bool {
	return a != nil && b != nil && equality.Semantic.DeepEqual(a.Spec, b.Spec)
}

const (
	// automanagedLabel is upstream's: kube-apiserver keeps the APIServices of its
	// definitions with the value "true".
	automanagedLabel = "kube-aggregator.kubernetes.io/automanaged"
	automanaged      = "true"
)

// mainRoutes changes the routes of the main cluster's requests.
type mainRoutes struct {
	mainAPIServices apiregistrationclient.APIServiceInterface
}

// listedBy returns the plural names in annex's annotation on an APIService.
func listedBy(current *apiService) []string {
	var plurals []string
	for _, resource := range strings.Split(current.Annotations[hostingv1alpha1.ResourcesAnnotation], ",") {
		plural, _, _ := strings.Cut(resource, ":")
		plurals = append(plurals, plural)
	}
	return plurals
}

// giveBack deletes an APIService of annex. kube-apiserver serves its version from the definitions then, and
// makes the local APIService within a second. If it were changed to a local one, kube-apiserver would keep
// what it discovered in annex, and no resource at all once annex has forgotten the group
// (discoveryManager.AddAPIService in k8s.io/kube-aggregator). It fails if the APIService has changed: it may
// point to annex for a new reason.
func (m *mainRoutes) giveBack(ctx context.Context, current *apiService) error {
	err := m.mainAPIServices.Delete(ctx, current.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{
		UID: ptr.To(current.UID), ResourceVersion: ptr.To(current.ResourceVersion),
	}})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return wrap(err, "give APIService %s back to the main cluster: %w", current.Name)
}
