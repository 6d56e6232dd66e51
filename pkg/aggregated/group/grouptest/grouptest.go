// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package grouptest makes the objects of an API group for tests.
package grouptest

import (
	"strings"
	"time"

	apiextensionshelpers "k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

const (
	// Group is the API group.
	Group = "example.com"
	// Widgets is a definition of the group.
	Widgets = "widgets." + Group
	// Gadgets is another.
	Gadgets = "gadgets." + Group

	// PublishedBy is the label value of annex's APIServices, whose Service is "annex" in "annex-system".
	PublishedBy = "annex-system.annex"
	// Store is the UID of annex's Store.
	Store = "store-uid"
)

// Change alters a definition.
type Change func(*apiextensionsv1.CustomResourceDefinition)

// CRD returns an established definition with version v1.
func CRD(name string, changes ...Change) *apiextensionsv1.CustomResourceDefinition {
	plural, group, _ := strings.Cut(name, ".")
	made := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Kind: strings.ToUpper(plural[:1]) + strings.TrimSuffix(plural[1:], "s")},
			Scope: apiextensionsv1.NamespaceScoped,
		},
	}
	Versions("v1")(made)
	apiextensionsv1.SetObjectDefaults_CustomResourceDefinition(made)
	Condition(apiextensionsv1.Established, apiextensionsv1.ConditionTrue, "")(made)
	for _, apply := range changes {
		apply(made)
	}
	return made
}

// Versions replaces the versions. One that begins with "-" is not served. The first is stored.
func Versions(names ...string) Change {
	return func(crd *apiextensionsv1.CustomResourceDefinition) {
		crd.Spec.Versions = nil
		for i, name := range names {
			plain, notServed := strings.CutPrefix(name, "-")
			crd.Spec.Versions = append(crd.Spec.Versions, apiextensionsv1.CustomResourceDefinitionVersion{Name: plain, Served: !notServed, Storage: i == 0})
		}
	}
}

// Condition sets a condition.
func Condition(kind apiextensionsv1.CustomResourceDefinitionConditionType, status apiextensionsv1.ConditionStatus, message string) Change {
	return func(crd *apiextensionsv1.CustomResourceDefinition) {
		apiextensionshelpers.SetCRDCondition(crd, apiextensionsv1.CustomResourceDefinitionCondition{Type: kind, Status: status, Message: message})
	}
}

// NotEstablished has the condition of a definition that is not served yet.
func NotEstablished(crd *apiextensionsv1.CustomResourceDefinition) {
	Condition(apiextensionsv1.Established, apiextensionsv1.ConditionFalse, "")(crd)
}

// Labelled adds the label by which annex follows a definition, and annex's finalizer.
func Labelled(crd *apiextensionsv1.CustomResourceDefinition) {
	metav1.SetMetaDataLabel(&crd.ObjectMeta, hostingv1alpha1.HostedLabel, "true")
	crd.Finalizers = append(crd.Finalizers, hostingv1alpha1.Finalizer(PublishedBy))
}

// WithoutFinalizer has no finalizers.
func WithoutFinalizer(crd *apiextensionsv1.CustomResourceDefinition) { crd.Finalizers = nil }

// Leaving is being deleted.
func Leaving(crd *apiextensionsv1.CustomResourceDefinition) {
	crd.DeletionTimestamp = new(metav1.NewTime(time.Unix(1, 0)))
}

// ShortName has another short name.
func ShortName(crd *apiextensionsv1.CustomResourceDefinition) {
	crd.Spec.Names.ShortNames = []string{"new"}
}

// Annotated has an annotation.
func Annotated(key, value string) Change {
	return func(crd *apiextensionsv1.CustomResourceDefinition) {
		metav1.SetMetaDataAnnotation(&crd.ObjectMeta, key, value)
	}
}

// Follower is a definition of annex that follows the main cluster's.
func Follower(crd *apiextensionsv1.CustomResourceDefinition) {
	Annotated(hostingv1alpha1.DefinitionFromAnnotation, hostingv1alpha1.DefinitionFromMain)(crd)
}

// Local is the APIService that kube-apiserver keeps for definitions.
func Local(group, version string) *apiregistrationv1.APIService {
	made := &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: version + "." + group, Labels: map[string]string{"kube-aggregator.kubernetes.io/automanaged": "true"}},
		Spec:       apiregistrationv1.APIServiceSpec{Group: group, Version: version, GroupPriorityMinimum: 1000, VersionPriority: 100},
	}
	return Available(made, apiregistrationv1.ConditionTrue, "Local", "")
}

// Elsewhere is an APIService with a Service.
func Elsewhere(group, version, namespace, name string) *apiregistrationv1.APIService {
	made := Local(group, version)
	made.Labels, made.Status = nil, apiregistrationv1.APIServiceStatus{}
	made.Spec.Service = &apiregistrationv1.ServiceReference{Namespace: namespace, Name: name, Port: new(int32(443))}
	return made
}

// Published is an APIService of annex that the main cluster finds available.
func Published(group, version, resources string) *apiregistrationv1.APIService {
	made := Elsewhere(group, version, "annex-system", "annex")
	made.UID, made.ResourceVersion = "uid", "7"
	made.Labels = map[string]string{hostingv1alpha1.PublishedByLabel: PublishedBy}
	made.Annotations = map[string]string{hostingv1alpha1.PublishedStoreAnnotation: Store, hostingv1alpha1.ResourcesAnnotation: resources}
	made.Spec.CABundle = []byte("CA")
	return Available(made, apiregistrationv1.ConditionTrue, "Checked", "")
}

// Available sets the condition of that name.
func Available(of *apiregistrationv1.APIService, status apiregistrationv1.ConditionStatus, reason, message string) *apiregistrationv1.APIService {
	of.Status.Conditions = []apiregistrationv1.APIServiceCondition{{Type: apiregistrationv1.Available, Status: status, Reason: reason, Message: message}}
	return of
}
