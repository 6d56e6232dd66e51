// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	extensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/annextest"
	"github.com/annex-dev/annex/pkg/test/maincluster"
)

const pollInterval = 50 * time.Millisecond

func runHosted(ctx context.Context, dir string) (outcomes []outcome, err error) {
	cluster, err := maincluster.Start(ctx, maincluster.Options{
		Controllers: []string{"*"},
		// A test waits for a compaction.
		APIServerFlags: []string{"--etcd-compaction-interval=30s"},
	})
	if err != nil {
		return nil, err
	}
	defer func() {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, "main-cluster.log"), []byte(cluster.Logs()), 0o600), cluster.Stop())
	}()
	balancer, err := maincluster.NewLoadBalancer(maincluster.LoadBalancerOptions{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, balancer.Close()) }()
	installation, err := annextest.Install(ctx, cluster, balancer)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(installation.AllowGroup(ctx, "*"), labelDefinitions(ctx, cluster.Config)); err != nil {
		return nil, err
	}
	annex, err := installation.LaunchProcess(ctx, filepath.Join(cluster.Dir, "annex"))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stopAnnex(annex.Process, dir)) }()
	if err := installation.WaitHosting(ctx); err != nil {
		return nil, err
	}
	proxy, err := startProxy(cluster.Config)
	if err != nil {
		return nil, err
	}
	defer proxy.server.Close()
	kubeconfig, err := proxy.writeKubeconfig(dir)
	if err != nil {
		return nil, err
	}
	outcomes, err = runEndToEnd(ctx, dir, kubeconfig, hostedExceptions)
	return append(outcomes, proxy.outcome()), err
}

// labelDefinitions makes the main cluster label every new CRD for annex, and waits until it
// does.
func labelDefinitions(ctx context.Context, mainConfig *restclient.Config) error {
	const name = "annex-hosts-everything"
	mainClient, err := kubernetes.NewForConfig(mainConfig)
	if err != nil {
		return err
	}
	mainExtensions, err := extensionsclient.NewForConfig(mainConfig)
	if err != nil {
		return err
	}
	policy := &admissionregistrationv1.MutatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
			ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
			MatchConstraints: &admissionregistrationv1.MatchResources{
				ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
					Rule: admissionregistrationv1.Rule{
						APIGroups: []string{apiextensionsv1.GroupName}, APIVersions: []string{"v1"}, Resources: []string{"customresourcedefinitions"},
					},
				}}},
			},
			Mutations: []admissionregistrationv1.Mutation{{
				PatchType: admissionregistrationv1.PatchTypeApplyConfiguration,
				ApplyConfiguration: &admissionregistrationv1.ApplyConfiguration{
					Expression: fmt.Sprintf(`Object{metadata: Object.metadata{labels: {%q: "true"}}}`, hostingv1alpha1.HostedLabel),
				},
			}},
		},
	}
	binding := &admissionregistrationv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: name},
	}
	if _, err := mainClient.AdmissionregistrationV1().MutatingAdmissionPolicies().Create(ctx, policy, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create the policy that labels CRDs: %w", err)
	}
	if _, err := mainClient.AdmissionregistrationV1().MutatingAdmissionPolicyBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create the binding of the policy that labels CRDs: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, serverTimeout)
	defer cancel()
	return wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		created, err := mainExtensions.ApiextensionsV1().CustomResourceDefinitions().Create(ctx, probe(), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			return false, fmt.Errorf("check whether CRDs are labelled: %w", err)
		}
		return created.Labels[hostingv1alpha1.HostedLabel] != "", nil
	})
}

// probe is a CRD that is never stored.
func probe() *apiextensionsv1.CustomResourceDefinition {
	anything := true
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "probes.upstream.annex.dev"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "upstream.annex.dev",
			Scope: apiextensionsv1.ClusterScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "probes", Singular: "probe", Kind: "Probe", ListKind: "ProbeList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{
					OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &anything},
				},
			}},
		},
	}
}
