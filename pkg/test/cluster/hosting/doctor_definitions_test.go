// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package hosting

import (
	"encoding/base64"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsclientv1 "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	restclient "k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/annex-dev/annex/pkg/test/annextest"
	"github.com/annex-dev/annex/pkg/test/clients"
	"github.com/annex-dev/annex/pkg/test/crds"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

func base64Of(content []byte) string { return base64.StdEncoding.EncodeToString(content) }

func definitions(t *testing.T, config *restclient.Config) apiextensionsclientv1.CustomResourceDefinitionInterface {
	t.Helper()
	return clients.For(t, config).CRDs()
}

// crd returns a CRD named plural.group. The first version is the storage version.
func crd(name string, versions ...string) *apiextensionsv1.CustomResourceDefinition {
	plural, group, _ := strings.Cut(name, ".")
	if len(versions) == 0 {
		versions = []string{"v1"}
	}
	return crds.New(group, plural, versions...)
}

// servedByMain waits until the main cluster itself serves version v1 of a group.
func servedByMain(t *testing.T, group string) {
	t.Helper()
	poll.UntilDone(t, "the main cluster serves "+group, func() (bool, string) {
		path := "/openapi/v3/apis/" + group + "/v1"
		content, err := kube(t, mainCluster.Config).Discovery().RESTClient().Get().AbsPath(path).DoRaw(t.Context())
		if err != nil {
			return false, err.Error()
		}
		// v2 is one document.
		all, err := kube(t, mainCluster.Config).Discovery().RESTClient().Get().AbsPath("/openapi/v2").DoRaw(t.Context())
		if err != nil {
			return false, err.Error()
		}
		return strings.Contains(string(all), "/apis/"+group+"/v1/"), string(content)
	})
}

func groupNotAllowed(t *testing.T, annex *annextest.Annex) {
	const group = "letin.example.com"
	expect.Create(t, definitions(t, mainCluster.Config), hosted(crd("guests."+group)))
	found := waitForFinding(t, mainCluster, "groups-rbac", "FAIL", "list/watch guests."+group)
	waitForFinding(t, mainCluster, "resources", "FAIL", "guests."+group, "DefinitionSynced", "Forbidden")
	fix(t, mainCluster, found.Fix)
	expect.NoError(t, annex.WaitPublished(t.Context(), group, "v1"))
}

// invalidStorageVersion: the main cluster, which stores no objects, drops a version that annex
// has stored objects in. annex keeps them and its CRD.
func invalidStorageVersion(t *testing.T, annex *annextest.Annex) {
	const group, name = "stored.example.com", "widgets.stored.example.com"
	expect.NoError(t, annex.AllowGroup(t.Context(), group))
	expect.Create(t, definitions(t, mainCluster.Config), hosted(crd(name, "v1", "v2")))
	expect.NoError(t, annex.WaitPublished(t.Context(), group, "v1"))
	widgets := clients.For(t, mainCluster.Config).Dynamic.Resource(schema.GroupVersionResource{Group: group, Version: "v1", Resource: "widgets"}).Namespace(metav1.NamespaceDefault)
	widget := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": group + "/v1", "kind": "Widget", "metadata": map[string]any{"name": "one"},
	}}
	_, err := widgets.Create(t.Context(), widget, metav1.CreateOptions{})
	expect.NoError(t, err)
	write := func(patch string, subresource ...string) {
		t.Helper()
		expect.Patch(t, definitions(t, mainCluster.Config), name, patch, subresource...)
	}
	const schema = `"served":true,"schema":{"openAPIV3Schema":{"type":"object"}}`
	write(`{"spec":{"versions":[{"name":"v1","storage":false,` + schema + `},{"name":"v2","storage":true,` + schema + `}]}}`)
	waitForFinding(t, mainCluster, "resources", "ok")
	write(`{"status":{"storedVersions":["v2"]}}`, "status")
	write(`{"spec":{"versions":[{"name":"v2","storage":true,` + schema + `}]}}`)
	found := waitForFinding(t, mainCluster, "resources", "FAIL", name, "DefinitionSynced", "Rejected", "storedVersions")
	if found.Fix != "kubectl edit crd "+name {
		t.Errorf("the doctor prints the fix %q", found.Fix)
	}
	if _, err := widgets.Get(t.Context(), "one", metav1.GetOptions{}); err != nil {
		t.Errorf("the object in annex: %v", err)
	}
	write(`{"spec":{"versions":[{"name":"v1","storage":false,` + schema + `},{"name":"v2","storage":true,` + schema + `}]}}`)
}

// wrongServicePort: annex publishes a port that its Service lacks.
func wrongServicePort(t *testing.T, _ *annextest.Annex) {
	replaceService(t, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "annex", Namespace: namespace},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 443}}},
	})
	found := waitForFinding(t, mainCluster, "service", "FAIL", "which has 443")
	if found.Fix != "annex serve --publish-service=annex-system/annex:443" {
		t.Errorf("the doctor prints the fix %q", found.Fix)
	}
	poll.UntilDone(t, "the main cluster reports the wrong port", func() (bool, string) {
		r := doctor(t, mainCluster)
		_, ok := r.find("apiservice", "FAIL", "--publish-service has the wrong port", "ServicePortError")
		return ok, r.raw
	})
	restoreService(t)
}

func noService(t *testing.T, _ *annextest.Annex) {
	expect.Delete(t, kube(t, mainCluster.Config).CoreV1().Services(namespace), "annex")
	found := waitForFinding(t, mainCluster, "service", "FAIL", "there is no Service annex-system/annex")
	if found.Fix != "kubectl apply -k artifacts/deploy/base" {
		t.Errorf("the doctor prints the fix %q", found.Fix)
	}
	waitForFinding(t, mainCluster, "apiservice", "FAIL", "ServiceNotFound")
	restoreService(t)
}

func replaceService(t *testing.T, with *corev1.Service) {
	t.Helper()
	services := kube(t, mainCluster.Config).CoreV1().Services(namespace)
	if err := services.Delete(t.Context(), with.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	expect.Create(t, services, with)
}

// restoreService creates the Service of the tests again.
func restoreService(t *testing.T) {
	t.Helper()
	services := kube(t, mainCluster.Config).CoreV1().Services(namespace)
	if err := services.Delete(t.Context(), "annex", metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	expect.NoError(t, mainCluster.ExternalNameService(t.Context(), namespace, "annex"))
}

// twoAnnexes: another annex publishes a group already.
func twoAnnexes(t *testing.T, annex *annextest.Annex) {
	const group, name = "claimed.example.com", "v1.claimed.example.com"
	port := int32(443)
	claimed := &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"annex.dev/published-by": "other-system.annex"}},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: group, Version: "v1", GroupPriorityMinimum: 1000, VersionPriority: 100,
			Service:  &apiregistrationv1.ServiceReference{Namespace: "other-system", Name: "annex", Port: &port},
			CABundle: mainCluster.CA(),
		},
	}
	expect.Create(t, apiServices(t), claimed)
	expect.Create(t, definitions(t, annex.AnnexConfig), crd("apples."+group))
	waitForFinding(t, mainCluster, "published", "warn", `another annex publishes as "other-system.annex"`, name)
	waitForFinding(t, mainCluster, "resources", "FAIL", "apples."+group, "Published", "ForeignAPIService", "other-system")
	untouched := expect.Get(t, apiServices(t), name)
	if untouched.Spec.Service.Namespace != "other-system" {
		t.Errorf("annex overwrote the APIService of another: %v", untouched.Spec.Service)
	}
	expect.Delete(t, apiServices(t), name)
	expect.NoError(t, annex.WaitPublished(t.Context(), group, "v1"))
}

// otherAnnex runs the doctor for a second annex.
func otherAnnex(t *testing.T, _ *annextest.Annex) {
	r := doctor(t, mainCluster, "--publish-service=second-system/annex:443")
	if _, ok := r.find("service", "FAIL", "there is no namespace second-system"); !ok {
		t.Errorf("the doctor does not report the missing namespace:\n%s", r.raw)
	}
	found, ok := r.find("apiservice", "FAIL", `belongs to the annex that publishes as "annex-system.annex"`)
	if !ok {
		t.Fatalf("the doctor does not report the first annex:\n%s", r.raw)
	}
	if output, err := shell(t, mainCluster, found.Fix); err != nil {
		t.Errorf("%s: %v\n%s", found.Fix, err, output)
	}
}
