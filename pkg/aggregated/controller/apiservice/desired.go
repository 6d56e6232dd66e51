// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiservice

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	apiextensionshelpers "k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

const (
	// automanagedLabel is upstream's: kube-apiserver manages APIServices with it. The
	// value "true" is for definitions, "onstart" for built-in groups.
	automanagedLabel        = "kube-aggregator.kubernetes.io/automanaged"
	automanagedContinuously = "true"

	// groupPriority and versionPriority are kube-apiserver's values for definitions. They
	// are equal for all versions, which are then ordered by name: v2, v1, v1beta1.
	groupPriority   = 1000
	versionPriority = 100
)

// Short names for signatures.
type (
	apiService = apiregistrationv1.APIService
	hosted     = hostingv1alpha1.HostedResource
)

// hostingVersion is the group version whose APIService comes first.
var hostingVersion = hostingv1alpha1.SchemeGroupVersion

// Service is the port of a Service through which the main cluster reaches annex.
type Service struct {
	Namespace, Name string
	Port            int32
}

// owner is the manager of an APIService.
type owner int

const (
	// none means that there is no APIService.
	none owner = iota
	// annex owns APIServices with its label.
	annex
	// mainDefinitions means that kube-apiserver manages it for definitions of the main
	// cluster.
	mainDefinitions
	// mainBuiltIn means that the group is built into the main cluster.
	mainBuiltIn
	// foreign means that it has a Service, and is not annex's.
	foreign
)

// template holds what the APIServices of annex have in common.
type template struct {
	service  Service
	caBundle []byte
	// store is the UID of annex's Store "default".
	store types.UID
}

func (p template) publishedBy() string {
	return hostingv1alpha1.PublishedBy(p.service.Namespace, p.service.Name)
}

// ownerOf returns the owner of an APIService. One that has annex's Service but lacks the
// label is foreign: a user created it, or removed the label.
func (p template) ownerOf(current *apiService) owner {
	switch {
	case current == nil:
		return none
	case current.Labels[hostingv1alpha1.PublishedByLabel] == p.publishedBy():
		return annex
	case current.Spec.Service != nil:
		return foreign
	case current.Labels[automanagedLabel] == automanagedContinuously:
		return mainDefinitions
	default:
		return mainBuiltIn
	}
}

// desired returns the APIService of a group version, given the current one, if any. Users
// may order groups in discovery: priorities are kept, as are other labels and
// annotations.
func (p template) desired(version schema.GroupVersion, current *apiService) *apiService {
	wanted := &apiService{ObjectMeta: metav1.ObjectMeta{Name: apiServiceName(version)}}
	if current != nil {
		wanted = current.DeepCopy()
	}
	delete(wanted.Labels, automanagedLabel)
	metav1.SetMetaDataLabel(&wanted.ObjectMeta, hostingv1alpha1.PublishedByLabel, p.publishedBy())
	metav1.SetMetaDataAnnotation(&wanted.ObjectMeta, hostingv1alpha1.PublishedStoreAnnotation, string(p.store))
	spec := &wanted.Spec
	spec.Group, spec.Version = version.Group, version.Version
	spec.Service = &apiregistrationv1.ServiceReference{
		Namespace: p.service.Namespace,
		Name:      p.service.Name,
		Port:      ptr.To(p.service.Port),
	}
	spec.CABundle = bytes.Clone(p.caBundle)
	spec.InsecureSkipTLSVerify = false
	if spec.GroupPriorityMinimum <= 0 {
		spec.GroupPriorityMinimum = groupPriority
	}
	if spec.VersionPriority <= 0 {
		spec.VersionPriority = versionPriority
	}
	return wanted
}

// differs reports whether annex has to write an APIService.
func differs(current, wanted *apiService) bool {
	return !equality.Semantic.DeepEqual(current.Spec, wanted.Spec) ||
		!maps.Equal(current.Labels, wanted.Labels) ||
		!maps.Equal(current.Annotations, wanted.Annotations)
}

// apiServiceName is the only name that an APIService of a group version may have.
func apiServiceName(version schema.GroupVersion) string {
	return version.Version + "." + version.Group
}

// nameResources annotates an APIService with the resources of its version. The main
// cluster reads discovery when an APIService changes, and otherwise once a minute:
// without the annotation it would learn of a new kind in a published version only then.
func (v *view) nameResources(wanted *apiService, version string) {
	var resources []string
	for _, crd := range v.annexDefinitions {
		if apiextensionshelpers.HasServedCRDVersion(crd, version) && apiextensionshelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established) {
			// The generation covers short names, scope and subresources.
			resources = append(resources, fmt.Sprintf("%s:%d", crd.Spec.Names.Plural, crd.Generation))
		}
	}
	slices.Sort(resources)
	metav1.SetMetaDataAnnotation(&wanted.ObjectMeta, hostingv1alpha1.ResourcesAnnotation, strings.Join(resources, ","))
}
