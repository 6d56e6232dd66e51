// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiservice

import (
	"fmt"
	"slices"
	"strings"

	apiextensionshelpers "k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

// nameResources writes on an APIService what annex serves in its version. The main
// cluster looks what a server has whenever its APIService changes, and otherwise
// once a minute: without this a kind that comes into a version that is published
// already would be unknown to users for that long.
func (v *view) nameResources(wanted *apiService, version string) {
	var resources []string
	for _, crd := range v.annexDefinitions {
		if apiextensionshelpers.HasServedCRDVersion(crd, version) && apiextensionshelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established) {
			// Short names, scope and subresources are looked up too.
			resources = append(resources, fmt.Sprintf("%s:%d", crd.Spec.Names.Plural, crd.Generation))
		}
	}
	slices.Sort(resources)
	metav1.SetMetaDataAnnotation(&wanted.ObjectMeta, hostingv1alpha1.ResourcesAnnotation, strings.Join(resources, ","))
}
