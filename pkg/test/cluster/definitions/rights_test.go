// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package definitions

import (
	"net/url"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	hostingclient "github.com/annex-dev/annex/pkg/generated/clientset/versioned"
	"github.com/annex-dev/annex/pkg/test/etcdcluster"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// expectAuthorRefused fails unless a user of the main cluster with permissions on Stores only
// is refused endpoints and Secrets.
func (f *fixture) expectAuthorRefused(etcd *etcdcluster.Cluster, secret string) {
	f.Helper()
	const user = "store-author"
	config, err := mainCluster.ConfigFor(user)
	expect.NoError(f, err)
	author, err := hostingclient.NewForConfig(config)
	expect.NoError(f, err)
	kube, err := kubernetes.NewForConfig(mainCluster.Config)
	expect.NoError(f, err)
	grant := func(name string, rule rbacv1.PolicyRule) {
		f.Helper()
		expect.Create(f, kube.RbacV1().ClusterRoles(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{rule}})
		expect.Create(f, kube.RbacV1().ClusterRoleBindings(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
		})
	}
	store := &hostingv1alpha1.Store{
		ObjectMeta: metav1.ObjectMeta{Name: "authors"},
		Spec: hostingv1alpha1.StoreSpec{Etcd: &hostingv1alpha1.EtcdStore{
			Endpoints: etcd.Endpoints(),
			TLS:       &hostingv1alpha1.EtcdTLS{SecretRef: hostingv1alpha1.SecretReference{Namespace: hostingv1alpha1.NamespaceAnnexSystem, Name: secret}},
		}},
	}
	// Decisions of the main cluster are cached for a while.
	refused := func(words string) {
		f.Helper()
		poll.UntilDone(f, "a Store is refused: "+words, func() (bool, string) {
			_, err := author.HostingV1alpha1().Stores().Create(f.Context(), store, metav1.CreateOptions{})
			if err == nil {
				f.Fatal("the Store was created")
			}
			return apierrors.IsForbidden(err) && strings.Contains(err.Error(), words), err.Error()
		})
	}
	grant("store-author", rbacv1.PolicyRule{Verbs: []string{"create"}, APIGroups: []string{hostingv1alpha1.GroupName}, Resources: []string{"stores"}})
	endpoint, err := url.Parse(etcd.Endpoints()[0])
	expect.NoError(f, err)
	refused(endpoint.Host + ` is not in annex's flag --store-endpoints`)
	grant("store-endpoints", rbacv1.PolicyRule{Verbs: []string{"use"}, APIGroups: []string{hostingv1alpha1.GroupName}, Resources: []string{"stores/endpoints"}})
	refused(hostingv1alpha1.NamespaceAnnexSystem + "/" + secret)
}

// ofACompiledInGroup: annex refuses CRDs of its compiled-in groups.
func ofACompiledInGroup(f *fixture) {
	crd := hosted(f.newCRD("widgets", "v9"))
	crd.Annotations = map[string]string{apiextensionsv1.KubeAPIApprovedAnnotation: "unapproved, for a test"}
	f.createInMain(crd)
	f.waitForCondition(crd.Name, metav1.ConditionFalse, "Rejected", "compiled into annex")
	f.expectServedByMain("v9")
}
