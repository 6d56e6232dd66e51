// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package hosting

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsv1client "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	apiregistrationv1client "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/typed/apiregistration/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	hostingv1alpha1client "github.com/annex-dev/annex/pkg/generated/clientset/versioned/typed/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/annextest"
	"github.com/annex-dev/annex/pkg/test/clients"
	"github.com/annex-dev/annex/pkg/test/crds"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// fixture is a main cluster and the annex behind it, for one group.
type fixture struct {
	*testing.T
	group         string
	annex         *annextest.Annex
	mainCRDs      apiextensionsv1client.CustomResourceDefinitionInterface
	mainDiscovery discovery.DiscoveryInterface
	mainObjects   dynamic.Interface
	apiServices   apiregistrationv1client.APIServiceInterface

	annexCRDs       apiextensionsv1client.CustomResourceDefinitionInterface
	annexObjects    dynamic.Interface
	hostedResources hostingv1alpha1client.HostedResourceInterface
	stores          hostingv1alpha1client.StoreInterface
	migrations      hostingv1alpha1client.MigrationInterface
}

// newFixture allows annex to move a group.
func newFixture(t *testing.T, annex *annextest.Annex, group string) *fixture {
	t.Helper()
	f := newFixtureWithoutAccess(t, annex, group)
	expect.NoError(f, annex.AllowGroup(t.Context(), group))
	return f
}

// newFixtureWithoutAccess does not allow annex to move the group.
func newFixtureWithoutAccess(t *testing.T, annex *annextest.Annex, group string) *fixture {
	t.Helper()
	main, own := clients.For(t, mainCluster.Config), clients.For(t, annex.AnnexConfig)
	f := &fixture{
		T: t, group: group, annex: annex,
		mainCRDs: main.CRDs(), mainDiscovery: main.Kube.Discovery(), mainObjects: main.Dynamic, apiServices: main.APIServices,
		annexCRDs: own.CRDs(), annexObjects: own.Dynamic, hostedResources: own.HostedResources(), stores: own.Stores(), migrations: own.Hosting.HostingV1alpha1().Migrations(),
	}
	t.Cleanup(f.logConditions)
	return f
}

// logConditions logs the conditions of the group's HostedResources if the test has failed.
func (f *fixture) logConditions() {
	if !f.Failed() {
		return
	}
	resources, err := f.hostedResources.List(context.Background(), metav1.ListOptions{})
	if err != nil {
		f.Log(err)
		return
	}
	for _, resource := range resources.Items {
		if strings.HasSuffix(resource.Name, "."+f.group) {
			f.Logf("%s: %+v", resource.Name, resource.Status.Conditions)
		}
	}
}

// newCRD returns a CRD of the group. The first version is the storage version.
func (f *fixture) newCRD(plural string, versions ...string) *apiextensionsv1.CustomResourceDefinition {
	crd := crds.New(f.group, plural, versions...)
	for i, version := range versions {
		crd.Spec.Versions[i].Schema.OpenAPIV3Schema = &apiextensionsv1.JSONSchemaProps{
			Type:        "object",
			Description: "A " + crd.Spec.Names.Kind + " in version " + version + ".",
			Properties: map[string]apiextensionsv1.JSONSchemaProps{
				"spec": {Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{
					"size": {Type: "integer", Description: "How large it is.", Maximum: new(float64(9))},
				}},
			},
		}
	}
	return crd
}

func hosted(crd *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.CustomResourceDefinition {
	metav1.SetMetaDataLabel(&crd.ObjectMeta, hostingv1alpha1.HostedLabel, "true")
	return crd
}

// createInMain creates CRDs in the main cluster.
func (f *fixture) createInMain(all ...*apiextensionsv1.CustomResourceDefinition) {
	f.Helper()
	for _, crd := range all {
		expect.Create(f, f.mainCRDs, crd)
	}
}

// applyInMain applies a CRD to the main cluster as `kubectl apply --server-side` does.
func (f *fixture) applyInMain(crd *apiextensionsv1.CustomResourceDefinition) {
	f.Helper()
	crd = crd.DeepCopy()
	crd.TypeMeta = metav1.TypeMeta{APIVersion: apiextensionsv1.SchemeGroupVersion.String(), Kind: "CustomResourceDefinition"}
	content, err := json.Marshal(crd)
	expect.NoError(f, err)
	_, err = f.mainCRDs.Patch(f.Context(), crd.Name, types.ApplyPatchType, content,
		metav1.PatchOptions{FieldManager: "chart", Force: new(true)})
	expect.NoError(f, err)
}

// patchInMain merges JSON into a CRD of the main cluster.
func (f *fixture) patchInMain(name, patch string, subresources ...string) {
	f.Helper()
	expect.Patch(f, f.mainCRDs, name, patch, subresources...)
}

func (f *fixture) label(name string) {
	f.Helper()
	f.patchInMain(name, `{"metadata":{"labels":{"annex.dev/hosted":"true"}}}`)
}

// waitPublished waits until the main cluster proxies requests for a version to annex.
func (f *fixture) waitPublished(version string) {
	f.Helper()
	expect.NoError(f, f.annex.WaitPublished(f.Context(), f.group, version))
}

// expectServedByMain waits until kube-apiserver manages an APIService itself, which it makes anew.
func (f *fixture) expectServedByMain(version string) {
	f.Helper()
	expect.Eventually(f, f.apiServices, version+"."+f.group, "the APIService is the main cluster's own", func(found *apiregistrationv1.APIService) bool {
		return found.Spec.Service == nil && found.Labels["kube-aggregator.kubernetes.io/automanaged"] == "true" && found.Labels[hostingv1alpha1.PublishedByLabel] == ""
	})
}

// waitForCondition waits until the condition DefinitionSynced of a HostedResource has a
// status, a reason, and words in its message.
func (f *fixture) waitForCondition(name string, status metav1.ConditionStatus, reason string, words ...string) {
	f.Helper()
	expect.Eventually(f, f.hostedResources, name, fmt.Sprintf("%s is DefinitionSynced=%s %s %q", name, status, reason, words), func(resource *hostingv1alpha1.HostedResource) bool {
		condition := meta.FindStatusCondition(resource.Status.Conditions, hostingv1alpha1.HostedResourceDefinitionSynced)
		return condition != nil && condition.Status == status && condition.Reason == reason && expect.Missing(condition.Message, words...) == ""
	})
}

func (f *fixture) waitForSync(name string) {
	f.Helper()
	f.waitForCondition(name, metav1.ConditionTrue, "Synced")
}

func (f *fixture) newObject(plural, version, name string) *unstructured.Unstructured {
	kind := strings.ToUpper(plural[:1]) + strings.TrimSuffix(plural[1:], "s")
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": f.group + "/" + version, "kind": kind,
		"metadata": map[string]any{"name": name, "namespace": metav1.NamespaceDefault},
		"spec":     map[string]any{"size": int64(3)},
	}}
}

func (f *fixture) objects(client dynamic.Interface, plural, version string) dynamic.ResourceInterface {
	return client.Resource(schema.GroupVersionResource{Group: f.group, Version: version, Resource: plural}).Namespace(metav1.NamespaceDefault)
}

// createObject creates an object through the main cluster, which may refuse requests
// while it switches the group.
func (f *fixture) createObject(plural, version, name string) {
	f.Helper()
	poll.UntilNoError(f, "create "+plural+" "+name, func() error {
		_, err := f.objects(f.mainObjects, plural, version).Create(f.Context(), f.newObject(plural, version, name), metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil // the answer to an earlier attempt was lost
		}
		return err
	})
}

// waitForObject waits until an object can be read.
func (f *fixture) waitForObject(client dynamic.Interface, plural, version, name string) {
	f.Helper()
	poll.UntilNoError(f, "get "+plural+" "+name, func() error {
		_, err := f.objects(client, plural, version).Get(f.Context(), name, metav1.GetOptions{})
		return err
	})
}

// expectInMainEtcd fails unless the main cluster's etcd holds this many objects of the group.
func (f *fixture) expectInMainEtcd(want int) {
	f.Helper()
	keys, err := mainCluster.EtcdKeys(f.Context(), "/registry/"+f.group+"/")
	expect.NoError(f, err)
	if len(keys) != want {
		f.Errorf("the main cluster's etcd holds %d objects of the group, want %d: %q", len(keys), want, keys)
	}
}
