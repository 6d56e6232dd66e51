// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package hosting

import (
	"fmt"
	"net/url"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	restclient "k8s.io/client-go/rest"

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
	mainKube := kube(f, mainCluster.Config)
	grant := func(name string, rule rbacv1.PolicyRule) {
		f.Helper()
		expect.Create(f, mainKube.RbacV1().ClusterRoles(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{rule}})
		expect.Create(f, mainKube.RbacV1().ClusterRoleBindings(), &rbacv1.ClusterRoleBinding{
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

// forged: a user with permissions on CRDs and HostedResources only cannot hide objects of the
// main cluster, neither in an unlabelled group nor in one whose takeover waits for them.
func forged(f *fixture) {
	name := "widgets." + f.group
	f.createInMain(f.newCRD("widgets", "v1"))
	for _, object := range []string{"one", "two", "three"} {
		f.createObject("widgets", "v1", object)
	}
	user := f.newEditor("forger")
	definitions := apiextensionsclient.NewForConfigOrDie(user).ApiextensionsV1().CustomResourceDefinitions()
	resources := hostingclient.NewForConfigOrDie(user).HostingV1alpha1().HostedResources()

	main := expect.Get(f, f.mainCRDs, name)
	forged := f.newCRD("widgets", "v1")
	forged.Annotations = map[string]string{
		"annex.dev/takeover": "cleared", hostingv1alpha1.DefinitionFromAnnotation: hostingv1alpha1.DefinitionFromMain,
		hostingv1alpha1.DefinitionUIDAnnotation: string(main.UID),
	}
	made, err := definitions.Create(f.Context(), forged, metav1.CreateOptions{})
	expect.NoError(f, err)
	f.waitForCondition(name, metav1.ConditionFalse, "NotLabelled")
	takeover := fmt.Sprintf(`{"status":{"takeover":{"definitionUID":%q,"definitionGeneration":1}}}`, made.UID)
	f.expectUnpublished(name, "GroupInMain")

	// The status in their write is dropped.
	expect.Patch(f, resources, name, takeover)
	_, err = resources.Patch(f.Context(), name, types.MergePatchType, []byte(takeover), metav1.PatchOptions{}, "status")
	if !apierrors.IsForbidden(err) {
		f.Errorf("write status: %v", err)
	}
	f.expectUnpublished(name, "GroupInMain")

	f.label(name)
	f.waitForCondition(name, metav1.ConditionFalse, "ObjectsExist")
	f.expectUnpublished(name, "GroupInMain")
	own := expect.Get(f, f.hostedResources, name)
	if own.Status.Takeover != nil {
		f.Errorf("takeover %+v", own.Status.Takeover)
	}
}

// expectUnpublished waits until a HostedResource is not published for a reason, and fails
// unless the main cluster serves its three objects.
func (f *fixture) expectUnpublished(name, reason string) {
	f.Helper()
	expect.Eventually(f, f.hostedResources, name, name+" is not published: "+reason, func(resource *hostingv1alpha1.HostedResource) bool {
		published := meta.FindStatusCondition(resource.Status.Conditions, hostingv1alpha1.HostedResourcePublished)
		return published != nil && published.Status == metav1.ConditionFalse && published.Reason == reason
	})
	f.expectServedByMain("v1")
	list, err := f.objects(f.mainObjects, "widgets", "v1").List(f.Context(), metav1.ListOptions{})
	expect.NoError(f, err)
	if len(list.Items) != 3 {
		f.Errorf("the main cluster serves %d of its 3 objects", len(list.Items))
	}
}

// newEditor logs in at annex's own endpoint as a user of the main cluster with all
// permissions on CRDs and HostedResources, except on their status.
func (f *fixture) newEditor(name string) *restclient.Config {
	f.Helper()
	rbac := kube(f, mainCluster.Config).RbacV1()
	_, err := rbac.ClusterRoles().Create(f.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"apiextensions.k8s.io"}, Resources: []string{"customresourcedefinitions"}, Verbs: []string{"*"}},
			{APIGroups: []string{hostingv1alpha1.GroupName}, Resources: []string{"hostedresources"}, Verbs: []string{"*"}},
		},
	}, metav1.CreateOptions{})
	expect.NoError(f, err)
	expect.Create(f, rbac.ClusterRoleBindings(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: name}},
	})
	main, err := mainCluster.ConfigFor(name)
	expect.NoError(f, err)
	user := restclient.CopyConfig(f.annex.AnnexConfig)
	user.CertData, user.KeyData = main.CertData, main.KeyData
	user.CertFile, user.KeyFile, user.BearerToken = main.CertFile, main.KeyFile, main.BearerToken
	poll.UntilDone(f, "the user may write CRDs", func() (bool, string) {
		_, err := apiextensionsclient.NewForConfigOrDie(user).ApiextensionsV1().CustomResourceDefinitions().List(f.Context(), metav1.ListOptions{})
		return err == nil, strings.TrimSpace(fmt.Sprint(err))
	})
	return user
}
