// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package group

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	apiextensionshelpers "k8s.io/apiextensions-apiserver/pkg/apihelpers"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

const (
	// automanagedLabel is upstream's: kube-apiserver manages APIServices with it. The
	// value "true" is for definitions, "onstart" for built-in groups.
	automanagedLabel = "kube-aggregator.kubernetes.io/automanaged"
	automanaged      = "true"

	// groupPriority and versionPriority are kube-apiserver's values for definitions. They
	// are equal for all versions, which are then ordered by name: v2, v1, v1beta1.
	groupPriority   = 1000
	versionPriority = 100
)

// Service is the port of a Service through which the main cluster reaches annex.
type Service struct {
	Namespace, Name string
	Port            int32
}

// Identity distinguishes this annex from others. Without PublishedBy every APIService is another's.
type Identity struct {
	// PublishedBy is the label value of its APIServices.
	PublishedBy string
	// Store is the UID of its Store "default".
	Store types.UID
	// Service and CABundle are its address for the main cluster.
	Service  Service
	CABundle []byte
}

// desired returns the APIService of a group version, given the current one, if any. Users may order groups in
// discovery: priorities are kept, as are other labels and annotations.
func (i Identity) desired(version schema.GroupVersion, current *APIService) *APIService {
	wanted := &APIService{ObjectMeta: metav1.ObjectMeta{Name: APIServiceName(version)}}
	if current != nil {
		wanted = current.DeepCopy()
	}
	delete(wanted.Labels, automanagedLabel)
	metav1.SetMetaDataLabel(&wanted.ObjectMeta, hostingv1alpha1.PublishedByLabel, i.PublishedBy)
	metav1.SetMetaDataAnnotation(&wanted.ObjectMeta, hostingv1alpha1.PublishedStoreAnnotation, string(i.Store))
	spec := &wanted.Spec
	spec.Group, spec.Version = version.Group, version.Version
	spec.Service = &apiregistrationv1.ServiceReference{Namespace: i.Service.Namespace, Name: i.Service.Name, Port: new(i.Service.Port)}
	spec.CABundle = bytes.Clone(i.CABundle)
	spec.InsecureSkipTLSVerify = false
	if spec.GroupPriorityMinimum <= 0 {
		spec.GroupPriorityMinimum = groupPriority
	}
	if spec.VersionPriority <= 0 {
		spec.VersionPriority = versionPriority
	}
	return wanted
}

// desiredVersion returns the APIService of a version, annotated with its resources. The main
// cluster reads discovery when an APIService changes, and otherwise once a minute:
// without the annotation it would learn of a new kind in a published version only then.
func (s *State) desiredVersion(version string) *APIService {
	wanted := s.desired(s.GroupVersion(version), s.APIServices[version])
	var resources []string
	for _, crd := range s.Annex {
		if apiextensionshelpers.HasServedCRDVersion(crd, version) && isEstablished(crd) {
			// The generation covers short names, scope and subresources.
			resources = append(resources, fmt.Sprintf("%s:%d", crd.Spec.Names.Plural, crd.Generation))
		}
	}
	slices.Sort(resources)
	metav1.SetMetaDataAnnotation(&wanted.ObjectMeta, hostingv1alpha1.ResourcesAnnotation, strings.Join(resources, ","))
	return wanted
}

// isListed reports whether an APIService of annex has a resource in that annotation.
func isListed(current *APIService, plural string) bool {
	return slices.ContainsFunc(strings.Split(current.Annotations[hostingv1alpha1.ResourcesAnnotation], ","), func(resource string) bool {
		name, _, _ := strings.Cut(resource, ":")
		return name == plural
	})
}

// apiServiceDiffers reports whether annex has to write an APIService.
func apiServiceDiffers(current, wanted *APIService) bool {
	return !equality.Semantic.DeepEqual(current.Spec, wanted.Spec) || !sameMetadata(current, wanted)
}

// APIServiceName is the only name that an APIService of a group version may have.
func APIServiceName(version schema.GroupVersion) string { return version.Version + "." + version.Group }

// GroupVersion returns a version of the group.
func (s *State) GroupVersion(version string) schema.GroupVersion {
	return schema.GroupVersion{Group: s.Name, Version: version}
}
