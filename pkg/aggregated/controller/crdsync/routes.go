// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package crdsync

import (
	"context"
	"maps"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/typed/apiregistration/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

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
