// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package definitions

import (
	"context"
	"net/url"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/annex-dev/annex/pkg/apis/hosting"
	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	hostingclient "github.com/annex-dev/annex/pkg/generated/clientset/versioned"
	"github.com/annex-dev/annex/pkg/test/etcdcluster"
)

// refusesToAuthor: the main cluster says which endpoints and Secrets the author of a
// Store may name, who has rights on Stores there and no others.
func (w *fixture) refusesToAuthor(etcd *etcdcluster.Cluster, secret string) {
	w.Helper()
	const user = "store-author"
	config, err := mainCluster.ConfigFor(user)
	w.no(err)
	author, err := hostingclient.NewForConfig(config)
	w.no(err)
	kube, err := kubernetes.NewForConfig(mainCluster.Config)
	w.no(err)
	grant := func(name string, rule rbacv1.PolicyRule) {
		w.Helper()
		_, err := kube.RbacV1().ClusterRoles().Create(w.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{rule}}, metav1.CreateOptions{})
		w.no(err)
		_, err = kube.RbacV1().ClusterRoleBindings().Create(w.Context(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
		}, metav1.CreateOptions{})
		w.no(err)
	}
	store := &hostingv1alpha1.Store{
		ObjectMeta: metav1.ObjectMeta{Name: "authors"},
		Spec: hostingv1alpha1.StoreSpec{Etcd: &hostingv1alpha1.EtcdStore{
			Endpoints: etcd.Endpoints(),
			TLS:       &hostingv1alpha1.EtcdTLS{SecretRef: hostingv1alpha1.SecretReference{Namespace: hosting.NamespaceAnnexSystem, Name: secret}},
		}},
	}
	// Answers of the main cluster are remembered for a while, so each is waited for.
	refused := func(words string) {
		w.Helper()
		w.eventually("a Store is refused: "+words, func(ctx context.Context) (bool, string) {
			_, err := author.HostingV1alpha1().Stores().Create(ctx, store, metav1.CreateOptions{})
			if err == nil {
				w.Fatal("the Store is made")
			}
			return apierrors.IsForbidden(err) && strings.Contains(err.Error(), words), err.Error()
		})
	}
	grant("store-author", rbacv1.PolicyRule{Verbs: []string{"create"}, APIGroups: []string{hosting.GroupName}, Resources: []string{"stores"}})
	endpoint, err := url.Parse(etcd.Endpoints()[0])
	w.no(err)
	refused(endpoint.Host + ` is not in annex's flag --store-endpoints`)
	grant("store-endpoints", rbacv1.PolicyRule{Verbs: []string{"use"}, APIGroups: []string{hosting.GroupName}, Resources: []string{"stores/endpoints"}})
	refused(hosting.NamespaceAnnexSystem + "/" + secret)
}

// ofACompiledInGroup: a definition of a group that annex serves without definitions is
// not followed, and annex says so.
func ofACompiledInGroup(w *fixture) {
	crd := hosted(w.crd("widgets", "v9"))
	crd.Annotations = map[string]string{apiextensionsv1.KubeAPIApprovedAnnotation: "unapproved, for a test"}
	w.define(crd)
	w.says(crd.Name, metav1.ConditionFalse, "Rejected", "compiled into annex")
	w.isMains("v9")
}
