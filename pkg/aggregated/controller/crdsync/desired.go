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
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/typed/apiregistration/v1"

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

const (
	// automanagedLabel is upstream's: kube-apiserver keeps the APIServices of its
	// definitions with the value "true".
	automanagedLabel = "kube-aggregator.kubernetes.io/automanaged"
	automanaged      = "true"
)

// mainRoutes asks about and changes who answers the main cluster's requests.
type mainRoutes struct {
	mainAPIServices apiregistrationclient.APIServiceInterface
}

// listedBy are the plural names of the resources that annex wrote on an APIService.
func listedBy(current *apiService) []string {
	var plurals []string
	for _, resource := range strings.Split(current.Annotations[hostingv1alpha1.ResourcesAnnotation], ",") {
		plural, _, _ := strings.Cut(resource, ":")
		plurals = append(plurals, plural)
	}
	return plurals
}

// isMain asks the main cluster whether it answers for a group version itself.
func (m *mainRoutes) isMain(ctx context.Context, version schema.GroupVersion) (bool, error) {
	current, err := m.mainAPIServices.Get(ctx, version.Version+"."+version.Group, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	return current.Spec.Service == nil, nil
}

// giveBack makes an APIService of annex's what kube-apiserver makes for definitions
// of its own, and leaves it to kube-apiserver again. It changes only what was seen: one
// that has changed since may lead to annex for a newer reason.
func (m *mainRoutes) giveBack(ctx context.Context, current *apiService) error {
	local := current.DeepCopy()
	isOwn := func(key, _ string) bool { return strings.HasPrefix(key, ownPrefix) }
	maps.DeleteFunc(local.Labels, isOwn)
	maps.DeleteFunc(local.Annotations, isOwn)
	metav1.SetMetaDataLabel(&local.ObjectMeta, automanagedLabel, automanaged)
	local.Spec.Service, local.Spec.CABundle, local.Spec.InsecureSkipTLSVerify = nil, nil, false
	_, err := m.mainAPIServices.Update(ctx, local, metav1.UpdateOptions{FieldManager: fieldManager})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return wrap(err, "giving APIService %s back to the main cluster: %w", current.Name)
}
