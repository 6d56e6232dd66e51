// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package hosting

import (
	"context"
	"fmt"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/dynamic"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/annextest"
	"github.com/annex-dev/annex/pkg/test/clients"
	"github.com/annex-dev/annex/pkg/test/crds"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/maincluster"
	"github.com/annex-dev/annex/pkg/test/poll"
)

func newProfile(groups ...string) *hostingv1alpha1.InjectionProfile {
	profile := &hostingv1alpha1.InjectionProfile{
		ObjectMeta: metav1.ObjectMeta{Name: "agent"},
		Spec: hostingv1alpha1.InjectionProfileSpec{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"inject": "yes"}},
			Containers:        []runtime.RawExtension{{Raw: []byte(`{"name":"agent","image":"agent:1"}`)}},
		},
	}
	for _, group := range groups {
		profile.Spec.Targets = append(profile.Spec.Targets, hostingv1alpha1.InjectionTarget{
			Resource: "jobs." + group, Templates: []hostingv1alpha1.InjectionTemplate{{Path: "spec.template"}},
		})
	}
	return profile
}

func newJobDefinition(group string) *apiextensionsv1.CustomResourceDefinition {
	crd := crds.New(group, "jobs")
	open := apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: new(true)}
	crd.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{crds.NewVersion("v1", true, &apiextensionsv1.JSONSchemaProps{
		Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": open},
	})}
	return crd
}

func newJob(group, kind, name string, containers ...string) *unstructured.Unstructured {
	var list []any
	for _, container := range containers {
		list = append(list, map[string]any{"name": container})
	}
	job := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"containers": list}}}}}
	job.SetAPIVersion(group + "/v1")
	job.SetKind(kind)
	job.SetName(name)
	return job
}

// containerNames are the containers of a job.
func containerNames(job *unstructured.Unstructured) string {
	list, _, _ := unstructured.NestedSlice(job.Object, "spec", "template", "spec", "containers")
	var found []string
	for _, item := range list {
		found = append(found, fmt.Sprint(item.(map[string]any)["name"]))
	}
	return strings.Join(found, " ")
}

// testInjection: one profile, written through the main cluster, is applied to a resource of annex by
// annex and to a resource of the main cluster by `annex injector`. The injector has the rights of the
// manifests, and a certificate from the main cluster's API.
func testInjection(t *testing.T) {
	// Every run has names of its own: the main cluster outlives it.
	run := utilrand.String(5)
	in, out, signerName := "in-"+run, "out-"+run, "example.com/webhooks-"+run
	// hostedGroup is of annex, and localGroup of the main cluster.
	hostedGroup, localGroup := "hosted-"+run+".example.com", "local-"+run+".example.com"
	deleteDefinitions(t)
	annex := annextest.StartProcess(t, mainCluster, "--admission-control-config-file="+mainCluster.AdmissionConfig())
	main, own := clients.For(t, mainCluster.Config), clients.For(t, annex.AnnexConfig)
	output(t, mainCluster.Kubeconfig, "kubectl apply -k artifacts/deploy/injector")
	output(t, mainCluster.Kubeconfig, "kubectl apply --dry-run=server -f artifacts/deploy/injector/webhook.yaml")
	output(t, mainCluster.Kubeconfig, "kubectl create namespace "+in)
	output(t, mainCluster.Kubeconfig, "kubectl label namespace "+in+" inject=yes")
	output(t, mainCluster.Kubeconfig, "kubectl create namespace "+out)

	hosted, local := newJobDefinition(hostedGroup), newJobDefinition(localGroup)
	expect.Create(t, own.CRDs(), hosted)
	expect.Create(t, main.CRDs(), local)
	expect.NoError(t, annex.WaitPublished(t.Context(), hostedGroup, "v1"))
	profiles := main.Hosting.HostingV1alpha1().InjectionProfiles()
	expect.Create(t, profiles, newProfile(hostedGroup, localGroup))
	expect.Eventually(t, profiles, "agent", "annex reports that it does not serve one of the resources", func(profile *hostingv1alpha1.InjectionProfile) bool {
		ready := meta.FindStatusCondition(profile.Status.Conditions, hostingv1alpha1.InjectionProfileReady)
		return ready != nil && ready.Reason == "DefinitionMissing" && strings.Contains(ready.Message, "jobs."+localGroup)
	})

	jobs := func(group, namespace string) dynamic.ResourceInterface {
		return main.Dynamic.Resource(schema.GroupVersionResource{Group: group, Version: "v1", Resource: "jobs"}).Namespace(namespace)
	}
	create := func(group, namespace, name string, containers ...string) (*unstructured.Unstructured, error) {
		return jobs(group, namespace).Create(t.Context(), newJob(group, hosted.Spec.Names.Kind, name, containers...), metav1.CreateOptions{})
	}
	created, err := create(hostedGroup, in, "a", "main")
	expect.NoError(t, err)
	expect.Equal(t, "main agent", containerNames(created), "containers in annex")
	created, err = create(hostedGroup, out, "a", "main")
	expect.NoError(t, err)
	expect.Equal(t, "main", containerNames(created), "containers in annex, in another namespace of the main cluster")

	kubeconfig, err := mainCluster.ServiceAccountKubeconfig(t.Context(), annextest.Namespace, "annex-injector")
	expect.NoError(t, err)
	address := startInjector(t, "--kubeconfig="+kubeconfig, "--signer-name="+signerName, "--cert-dir="+t.TempDir(), "--certificate-hosts=127.0.0.1",
		"--client-ca-file="+mainCluster.ClientCA(), "--allowed-names="+maincluster.WebhookClientName)
	ca := newSigner(t)
	ca.signFirst(t, signerName, "system:serviceaccount:"+annextest.Namespace+":annex-injector")
	url := "https://" + address + "/mutate"
	configurations := main.Kube.AdmissionregistrationV1().MutatingWebhookConfigurations()
	configuration := expect.Create(t, configurations, &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "injection-"},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name:         "injector.annex.dev",
			ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: ca.bundle()},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{hostedGroup, localGroup}, APIVersions: []string{"*"}, Resources: []string{"jobs"}},
			}},
			AdmissionReviewVersions: []string{"v1"}, SideEffects: new(admissionregistrationv1.SideEffectClassNone),
			ReinvocationPolicy: new(admissionregistrationv1.IfNeededReinvocationPolicy), FailurePolicy: new(admissionregistrationv1.Fail),
		}},
	})
	t.Cleanup(func() {
		expect.Succeeds(t, configurations.Delete(context.Background(), configuration.Name, metav1.DeleteOptions{}))
	})
	poll.UntilDone(t, "the main cluster calls the webhook", func() (bool, string) {
		tried, err := jobs(localGroup, in).Create(t.Context(), newJob(localGroup, local.Spec.Names.Kind, "try", "main"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			return false, err.Error()
		}
		return containerNames(tried) == "main agent", containerNames(tried)
	})

	created, err = create(localGroup, in, "a", "main")
	expect.NoError(t, err)
	expect.Equal(t, "main agent", containerNames(created), "containers in the main cluster")
	expect.Contains(t, created.GetAnnotations()[hostingv1alpha1.InjectedAnnotation], `"profile":"agent"`)
	updated, err := jobs(localGroup, in).Update(t.Context(), created, metav1.UpdateOptions{})
	expect.NoError(t, err)
	expect.Equal(t, created.GetResourceVersion(), updated.GetResourceVersion(), "an update without a change writes nothing")
	created, err = create(localGroup, out, "a", "main")
	expect.NoError(t, err)
	expect.Equal(t, "main", containerNames(created), "containers in the main cluster, in another namespace")
	_, err = create(localGroup, in, "b", "agent")
	expect.Error(t, err, "spec.template.spec.containers[0].name", `InjectionProfile "agent"`)

	// annex calls the webhooks of the main cluster too: injected once.
	created, err = create(hostedGroup, in, "b", "main")
	expect.NoError(t, err)
	expect.Equal(t, "main agent", containerNames(created), "containers in annex, by plugin and webhook")
}
