// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package hosting

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsclientv1 "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/annextest"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// revokeGroups takes back what other tests have granted annex for groups.
func revokeGroups(t *testing.T) {
	t.Helper()
	rbac := kube(t, mainCluster.Config).RbacV1()
	bindings, err := rbac.RoleBindings(annextest.Namespace).List(t.Context(), metav1.ListOptions{})
	expect.NoError(t, err)
	for i := range bindings.Items {
		if name := bindings.Items[i].Name; strings.HasPrefix(name, "annex-hosted-") {
			expect.Delete(t, rbac.RoleBindings(annextest.Namespace), name)
		}
	}
	roles := rbac.ClusterRoles()
	expect.NoError(t, roles.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: hostingv1alpha1.AggregateLabel}))
	expect.Eventually(t, roles, "annex-hosted-groups", "no group is allowed", func(role *rbacv1.ClusterRole) bool { return len(role.Rules) == 0 })
}

// testRights logs in as annex.
func testRights(t *testing.T) {
	installation := annextest.InstallForTest(t, mainCluster)
	revokeGroups(t)
	config, err := clientcmd.BuildConfigFromFlags("", installation.MainKubeconfig)
	expect.NoError(t, err)
	config.QPS = -1
	t.Run("granted", func(t *testing.T) { testGranted(t, kube(t, config)) })
	t.Run("forbidden", func(t *testing.T) { testForbidden(t, kube(t, config)) })
	t.Run("specs of CRDs", func(t *testing.T) { testCRDSpecsAreReadOnly(t, definitions(t, config)) })
}

// testGranted compares annex's permissions in the main cluster with the manifests. It ignores
// permissions that every service account has.
func testGranted(t *testing.T, annex kubernetes.Interface) {
	nobody := unprivileged(t)
	reader := []string{"get/list/watch configmaps extension-apiserver-authentication"}
	everywhere := []string{
		"create tokenreviews.authentication.k8s.io", "create subjectaccessreviews.authorization.k8s.io",
		"get/list/watch namespaces", "get/list/watch services",
		"get/list/watch mutatingwebhookconfigurations.admissionregistration.k8s.io", "get/list/watch validatingwebhookconfigurations.admissionregistration.k8s.io",
		"get/list/watch mutatingadmissionpolicies.admissionregistration.k8s.io", "get/list/watch mutatingadmissionpolicybindings.admissionregistration.k8s.io",
		"get/list/watch validatingadmissionpolicies.admissionregistration.k8s.io", "get/list/watch validatingadmissionpolicybindings.admissionregistration.k8s.io",
		"get/list/watch flowschemas.flowcontrol.apiserver.k8s.io", "get/list/watch prioritylevelconfigurations.flowcontrol.apiserver.k8s.io",
		"get/list/watch resourcequotas", "update resourcequotas/status",
		"get/list/watch customresourcedefinitions.apiextensions.k8s.io", "update customresourcedefinitions/status.apiextensions.k8s.io",
		"create/delete/get/list/update/watch apiservices.apiregistration.k8s.io",
		"create/patch events.events.k8s.io",
		"get stores.hosting.annex.dev default",
	}
	own := []string{
		"create leases.coordination.k8s.io", "get/update leases.coordination.k8s.io annex-controllers",
		"create secrets", "get/list/update/watch secrets annex-serving-ca",
		"create configmaps", "get/update configmaps annex-serving-ca",
	}
	for name, want := range map[string][]string{
		metav1.NamespaceDefault: everywhere,
		metav1.NamespaceSystem:  slices.Concat(everywhere, reader),
		namespace:               slices.Concat(everywhere, own),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			everybodys := rules(t, nobody, name)
			got := slices.DeleteFunc(rules(t, annex, name), func(rule string) bool {
				return slices.Contains(everybodys, rule)
			})
			slices.Sort(got)
			slices.Sort(want)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("annex's rights (-want +got):\n%s", diff)
			}
		})
	}
}

// testCRDSpecsAreReadOnly: the permission on the status of CRDs, which annex needs for its
// finalizer, does not allow changes of their spec.
func testCRDSpecsAreReadOnly(t *testing.T, annex apiextensionsclientv1.CustomResourceDefinitionInterface) {
	expect.Create(t, definitions(t, mainCluster.Config), crd("locks.locked.example.com"))
	poll.UntilDone(t, "annex writes the status", func() (bool, string) {
		found, err := annex.Get(t.Context(), "locks.locked.example.com", metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		found.Finalizers = []string{"annex.dev/test"}
		found.Spec.PreserveUnknownFields = true
		found.Spec.Names.ShortNames = []string{"changed"}
		found.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.WebhookConverter}
		written, err := annex.UpdateStatus(t.Context(), found, metav1.UpdateOptions{})
		if err != nil {
			return false, err.Error()
		}
		if len(written.Finalizers) != 1 || written.Spec.PreserveUnknownFields || len(written.Spec.Names.ShortNames) > 0 ||
			written.Spec.Conversion.Strategy != apiextensionsv1.NoneConverter || written.Generation != 1 {
			t.Errorf("written: finalizers %v, spec %+v", written.Finalizers, written.Spec)
		}
		if _, err := annex.Update(t.Context(), written, metav1.UpdateOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("update it: %v", err)
		}
		written.Finalizers = nil
		_, err = annex.UpdateStatus(t.Context(), written, metav1.UpdateOptions{})
		return err == nil, fmt.Sprint(err)
	})
	expect.Delete(t, definitions(t, mainCluster.Config), "locks.locked.example.com")
}

// testForbidden tries the most harmful requests with annex's token.
func testForbidden(t *testing.T, annex kubernetes.Interface) {
	secrets := kube(t, mainCluster.Config).CoreV1().Secrets(namespace)
	other := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{GenerateName: "another-"}}
	other = expect.Create(t, secrets, other)
	t.Cleanup(func() {
		expect.Succeeds(t, secrets.Delete(context.Background(), other.Name, metav1.DeleteOptions{}))
	})
	for name, try := range map[string]func(ctx context.Context) error{
		"get another Secret": func(ctx context.Context) error {
			_, err := annex.CoreV1().Secrets(namespace).Get(ctx, other.Name, metav1.GetOptions{})
			return err
		},
		"list Secrets": func(ctx context.Context) error {
			_, err := annex.CoreV1().Secrets(namespace).List(ctx, metav1.ListOptions{})
			return err
		},
		"list Secrets of all namespaces": func(ctx context.Context) error {
			_, err := annex.CoreV1().Secrets(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
			return err
		},
		"delete its own Secret": func(ctx context.Context) error {
			return annex.CoreV1().Secrets(namespace).Delete(ctx, "annex-serving-ca", metav1.DeleteOptions{})
		},
		"create a token": func(ctx context.Context) error {
			_, err := annex.CoreV1().Secrets(metav1.NamespaceSystem).Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "token"}}, metav1.CreateOptions{})
			return err
		},
		"run a pod": func(ctx context.Context) error {
			_, err := annex.CoreV1().Pods(namespace).Create(ctx, &corev1.Pod{}, metav1.CreateOptions{})
			return err
		},
		"allow itself a group": func(ctx context.Context) error {
			_, err := annex.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{
				ObjectMeta: metav1.ObjectMeta{Name: "more", Labels: map[string]string{"annex.dev/aggregate-to-annex": "true"}},
			}, metav1.CreateOptions{})
			return err
		},
		"change a namespace": func(ctx context.Context) error {
			return annex.CoreV1().Namespaces().Delete(ctx, metav1.NamespaceDefault, metav1.DeleteOptions{})
		},
		"change a quota": func(ctx context.Context) error {
			_, err := annex.CoreV1().ResourceQuotas(metav1.NamespaceDefault).Create(ctx, &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "q"}}, metav1.CreateOptions{})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := try(t.Context()); !apierrors.IsForbidden(err) {
				t.Errorf("annex may: %v", err)
			}
		})
	}
}

func login(t *testing.T, kubeconfig string) kubernetes.Interface {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	expect.NoError(t, err)
	config.QPS = -1
	return kube(t, config)
}

// unprivileged logs in as a service account without bindings.
func unprivileged(t *testing.T) kubernetes.Interface {
	t.Helper()
	accounts := kube(t, mainCluster.Config).CoreV1().ServiceAccounts(metav1.NamespaceDefault)
	_, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "unprivileged"}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	kubeconfig, err := mainCluster.ServiceAccountKubeconfig(t.Context(), metav1.NamespaceDefault, "unprivileged")
	expect.NoError(t, err)
	return login(t, kubeconfig)
}

// rules returns the permissions of a user in a namespace, split by resource and name.
func rules(t *testing.T, user kubernetes.Interface, in string) []string {
	t.Helper()
	review := expect.Create(t, user.AuthorizationV1().SelfSubjectRulesReviews(), &authorizationv1.SelfSubjectRulesReview{
		Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: in},
	})
	if review.Status.Incomplete {
		t.Fatalf("the rules are incomplete: %s", review.Status.EvaluationError)
	}
	var all []string
	for _, rule := range review.Status.ResourceRules {
		verbs := strings.Join(slices.Sorted(slices.Values(rule.Verbs)), "/")
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				line := fmt.Sprintf("%s %s", verbs, resource)
				if group != "" {
					line += "." + group
				}
				if len(rule.ResourceNames) == 0 {
					all = append(all, line)
				}
				for _, name := range rule.ResourceNames {
					all = append(all, line+" "+name)
				}
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}
