// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package serving

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsv1client "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	restclient "k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorv1client "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/typed/apiregistration/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/clients"
	"github.com/annex-dev/annex/pkg/test/crds"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// hostingName is the APIService of annex's own group.
const hostingName = "v1alpha1.hosting.annex.dev"

func apiServices(t testing.TB) aggregatorv1client.APIServiceInterface {
	t.Helper()
	return clients.For(t, mainCluster.Config).APIServices
}

func getAPIService(t testing.TB, name string) *apiregistrationv1.APIService {
	t.Helper()
	return expect.Get(t, apiServices(t), name)
}

// newDefinition returns a CRD of namespaced widgets.
func newDefinition(group string, versions ...string) *apiextensionsv1.CustomResourceDefinition {
	return crds.New(group, "widgets", versions...)
}

// define creates a CRD, in annex or in the main cluster, until the test ends.
func define(t testing.TB, config *restclient.Config, crd *apiextensionsv1.CustomResourceDefinition) {
	t.Helper()
	expect.Create(t, definitions(t, config), crd)
	t.Cleanup(func() {
		err := definitions(t, config).Delete(context.Background(), crd.Name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
}

func definitions(t testing.TB, config *restclient.Config) apiextensionsv1client.CustomResourceDefinitionInterface {
	t.Helper()
	return clients.For(t, config).CRDs()
}

// widgets returns a client for a group version, in namespace default.
func widgets(t testing.TB, config *restclient.Config, group, version string) dynamic.ResourceInterface {
	t.Helper()
	resource := schema.GroupVersionResource{Group: group, Version: version, Resource: "widgets"}
	return clients.For(t, config).Dynamic.Resource(resource).Namespace(metav1.NamespaceDefault)
}

func newWidget(group, version, name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": group + "/" + version, "kind": "Widget", "metadata": map[string]any{"name": name}, "spec": map[string]any{"size": "small"},
	}}
}

// waitPublished waits for the condition Published of a resource.
func waitPublished(t testing.TB, annexConfig *restclient.Config, name string, status metav1.ConditionStatus, reason string, mentions ...string) {
	t.Helper()
	expect.Eventually(t, clients.For(t, annexConfig).HostedResources(), name, fmt.Sprintf("%s is Published=%s %s", name, status, reason), func(found *hostingv1alpha1.HostedResource) bool {
		published := meta.FindStatusCondition(found.Status.Conditions, "Published")
		return published != nil && published.Status == status && published.Reason == reason &&
			expect.Missing(published.Message, mentions...) == ""
	})
}

// managedContent encodes the part of an APIService that annex manages, without the status and
// the fields that change with it.
func managedContent(t testing.TB, service *apiregistrationv1.APIService) string {
	t.Helper()
	kept := service.DeepCopy()
	kept.Status = apiregistrationv1.APIServiceStatus{}
	kept.ResourceVersion, kept.ManagedFields = "", nil
	encoded, err := json.Marshal(kept)
	expect.NoError(t, err)
	return string(encoded)
}
