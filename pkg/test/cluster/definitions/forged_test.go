// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package definitions

import (
	"context"
	"fmt"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	hostingclient "github.com/annex-dev/annex/pkg/generated/clientset/versioned"
)

// forged: a user who may write definitions and HostedResources, and nothing else, has
// objects of the main cluster vanish neither from a group that nobody asked annex to
// take over nor from one that waits because of them.
func forged(w *fixture) {
	name := "widgets." + w.group
	w.define(w.crd("widgets", "v1"))
	for _, object := range []string{"one", "two", "three"} {
		w.create("widgets", "v1", object)
	}
	user := w.editor("forger")
	definitions := apiextensionsclient.NewForConfigOrDie(user).ApiextensionsV1().CustomResourceDefinitions()
	resources := hostingclient.NewForConfigOrDie(user).HostingV1alpha1().HostedResources()

	main, err := w.ofMain(w.Context(), name)
	w.no(err)
	forged := w.crd("widgets", "v1")
	forged.Annotations = map[string]string{
		"annex.dev/takeover": "cleared", hostingv1alpha1.DefinitionFromAnnotation: hostingv1alpha1.DefinitionFromMain,
		hostingv1alpha1.DefinitionUIDAnnotation: string(main.UID),
	}
	made, err := definitions.Create(w.Context(), forged, metav1.CreateOptions{})
	w.no(err)
	w.says(name, metav1.ConditionFalse, "NotLabelled")
	takeover := fmt.Sprintf(`{"status":{"takeover":{"definitionUID":%q,"definitionGeneration":1}}}`, made.UID)
	w.keepsItsObjects(name, "GroupInMain")

	// status is not theirs, and is left out of what they may write.
	_, err = resources.Patch(w.Context(), name, types.MergePatchType, []byte(takeover), metav1.PatchOptions{})
	w.no(err)
	_, err = resources.Patch(w.Context(), name, types.MergePatchType, []byte(takeover), metav1.PatchOptions{}, "status")
	if !apierrors.IsForbidden(err) {
		w.Errorf("write status: %v", err)
	}
	w.keepsItsObjects(name, "GroupInMain")

	w.label(name)
	w.says(name, metav1.ConditionFalse, "ObjectsExist")
	w.keepsItsObjects(name, "GroupInMain")
	own, err := w.annexHosting.HostingV1alpha1().HostedResources().Get(w.Context(), name, metav1.GetOptions{})
	w.no(err)
	if own.Status.Takeover != nil {
		w.Errorf("takeover %+v", own.Status.Takeover)
	}
}

// keepsItsObjects waits until a HostedResource says why it is not published, and fails
// unless the main cluster shows its three objects.
func (w *fixture) keepsItsObjects(name, reason string) {
	w.Helper()
	w.eventually(name+" is not published: "+reason, func(ctx context.Context) (bool, string) {
		resource, err := w.annexHosting.HostingV1alpha1().HostedResources().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		published := meta.FindStatusCondition(resource.Status.Conditions, hostingv1alpha1.HostedResourcePublished)
		return published != nil && published.Status == metav1.ConditionFalse && published.Reason == reason, fmt.Sprintf("%+v", published)
	})
	w.isMains("v1")
	list, err := w.in(w.mainObjects, "widgets", "v1").List(w.Context(), metav1.ListOptions{})
	w.no(err)
	if len(list.Items) != 3 {
		w.Errorf("the main cluster shows %d of its 3 objects", len(list.Items))
	}
}

// editor is a user of the main cluster, at annex's own endpoint, who may do everything
// with definitions and HostedResources, but not write their status.
func (w *fixture) editor(name string) *restclient.Config {
	w.Helper()
	rbac := kubernetes.NewForConfigOrDie(mainCluster.Config).RbacV1()
	_, err := rbac.ClusterRoles().Create(w.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"apiextensions.k8s.io"}, Resources: []string{"customresourcedefinitions"}, Verbs: []string{"*"}},
			{APIGroups: []string{hostingv1alpha1.GroupName}, Resources: []string{"hostedresources"}, Verbs: []string{"*"}},
		},
	}, metav1.CreateOptions{})
	w.no(err)
	_, err = rbac.ClusterRoleBindings().Create(w.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: name}},
	}, metav1.CreateOptions{})
	w.no(err)
	main, err := mainCluster.ConfigFor(name)
	w.no(err)
	user := restclient.CopyConfig(w.annex.AnnexConfig)
	user.CertData, user.KeyData = main.CertData, main.KeyData
	user.CertFile, user.KeyFile, user.BearerToken = main.CertFile, main.KeyFile, main.BearerToken
	w.eventually("the user may write definitions", func(ctx context.Context) (bool, string) {
		_, err := apiextensionsclient.NewForConfigOrDie(user).ApiextensionsV1().CustomResourceDefinitions().List(ctx, metav1.ListOptions{})
		return err == nil, strings.TrimSpace(fmt.Sprint(err))
	})
	return user
}
