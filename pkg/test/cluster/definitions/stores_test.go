// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package definitions

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/annex-dev/annex/pkg/apis/hosting"
	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	hostingclient "github.com/annex-dev/annex/pkg/generated/clientset/versioned"
	"github.com/annex-dev/annex/pkg/test/annextest"
	"github.com/annex-dev/annex/pkg/test/etcdcluster"
)

// onAnotherStore: who knows only the main cluster adds a Store, puts one resource
// there, and loses its etcd. Only that resource is away, and through the main cluster
// it says why; the APIService, which others share, stays available.
func onAnotherStore(w *fixture) {
	etcd := etcdcluster.Start(w.T, etcdcluster.Config{Members: 1})
	mainHosting, err := hostingclient.NewForConfig(mainCluster.Config)
	w.no(err)
	// The resources of other stories are not to go down with it.
	w.addStore(mainHosting, "far", etcd, func(spec *hostingv1alpha1.StoreSpec) { spec.Unschedulable = true })
	w.refusesToAuthor(etcd, "etcd-far")
	placed := &hostingv1alpha1.HostedResource{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets." + w.group},
		Spec:       hostingv1alpha1.HostedResourceSpec{StoreName: "far"},
	}
	_, err = mainHosting.HostingV1alpha1().HostedResources().Create(w.Context(), placed, metav1.CreateOptions{})
	w.no(err)
	w.define(hosted(w.crd("widgets", "v1")), hosted(w.crd("gadgets", "v1")))
	w.published("v1")
	w.create("widgets", "v1", "one")
	w.create("gadgets", "v1", "one")
	found, err := etcd.Client(w.T).Get(w.Context(), "/annex/"+w.group+"/widgets/default/one")
	w.no(err)
	if len(found.Kvs) != 1 {
		w.Error("the object is not in its Store")
	}

	etcd.Members[0].Kill(w.T)
	w.eventually("the main cluster says that the Store is away", func(ctx context.Context) (bool, string) {
		ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		_, err := w.in(w.mainObjects, "widgets", "v1").Get(ctx, "one", metav1.GetOptions{})
		return apierrors.IsServiceUnavailable(err) && strings.Contains(err.Error(), `store "far"`), fmt.Sprint(err)
	})
	w.storeIs(mainHosting, "far", metav1.ConditionFalse, "Unreachable")
	w.create("gadgets", "v1", "two")
	w.has(w.mainObjects, "gadgets", "v1", "one")
	published, err := w.mainAPIServices.ApiregistrationV1().APIServices().Get(w.Context(), "v1."+w.group, metav1.GetOptions{})
	w.no(err)
	for _, condition := range published.Status.Conditions {
		if condition.Type == apiregistrationv1.Available && condition.Status != apiregistrationv1.ConditionTrue {
			w.Errorf("the APIService is not available: %s", condition.Message)
		}
	}
	resources, err := w.mainDefinitions.Discovery().ServerResourcesForGroupVersion(w.group + "/v1")
	w.no(err)
	if len(resources.APIResources) != 2 {
		w.Errorf("discovery knows %v", resources.APIResources)
	}

	etcd.Members[0].Start(w.T)
	w.create("widgets", "v1", "two")
	w.has(w.mainObjects, "widgets", "v1", "one")
	w.storeIs(mainHosting, "far", metav1.ConditionTrue, "")
}

// TestScheduled: a definition of the main cluster goes where the scheduler puts it,
// whether annex follows it or only says why not.
func TestScheduled(t *testing.T) {
	annex := annextest.Start(t, mainCluster)
	w := newFixture(t, annex, "scheduled.example.com")
	widgets := "widgets." + w.group
	stores := w.annexHosting.HostingV1alpha1().Stores()
	taint := `{"spec":{"taints":[{"key":"example.com/full","effect":"NoSchedule"}]}}`
	_, err := stores.Patch(w.Context(), hostingv1alpha1.DefaultStoreName, types.MergePatchType, []byte(taint), metav1.PatchOptions{})
	w.no(err)
	other := newFixture(t, annex, "unscheduled.example.com")
	other.define(other.crd("gadgets", "v1"), hosted(other.crd("widgets", "v1")))
	other.says("widgets."+other.group, metav1.ConditionFalse, "GroupIncomplete")
	w.define(hosted(w.crd("widgets", "v1")))
	w.says(widgets, metav1.ConditionUnknown, "TakingOver", "has no Store", "taint")
	w.isMains("v1")

	etcd := etcdcluster.Start(t, etcdcluster.Config{Members: 1})
	mainHosting, err := hostingclient.NewForConfig(mainCluster.Config)
	w.no(err)
	w.addStore(mainHosting, "near", etcd, func(*hostingv1alpha1.StoreSpec) {})
	w.published("v1")
	w.followed(widgets)
	w.create("widgets", "v1", "one")
	for _, name := range []string{widgets, "widgets." + other.group} {
		w.eventually(name+" is on the Store that takes it", func(ctx context.Context) (bool, string) {
			resource, err := w.annexHosting.HostingV1alpha1().HostedResources().Get(ctx, name, metav1.GetOptions{})
			return err == nil && resource.Spec.StoreName == "near", fmt.Sprintf("%v on %q", err, resource.Spec.StoreName)
		})
	}
}

// addStore makes a Store with certificates in a Secret of the main cluster. annex may
// read no Secret there that is not its own, until somebody allows it to.
func (w *fixture) addStore(mainHosting hostingclient.Interface, name string, etcd *etcdcluster.Cluster, change func(*hostingv1alpha1.StoreSpec)) {
	w.Helper()
	const namespace = hosting.NamespaceAnnexSystem
	kube, err := kubernetes.NewForConfig(mainCluster.Config)
	w.no(err)
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "etcd-" + name, Namespace: namespace},
		Data:       etcd.Authority.SecretData(w.T, time.Now().Add(time.Hour)),
	}
	_, err = kube.CoreV1().Secrets(namespace).Create(w.Context(), secret, metav1.CreateOptions{})
	w.no(err)
	store := &hostingv1alpha1.Store{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: hostingv1alpha1.StoreSpec{
			Etcd: &hostingv1alpha1.EtcdStore{
				Endpoints: etcd.Endpoints(),
				TLS:       &hostingv1alpha1.EtcdTLS{SecretRef: hostingv1alpha1.SecretReference{Name: secret.Name}},
			},
		},
	}
	change(&store.Spec)
	_, err = mainHosting.HostingV1alpha1().Stores().Create(w.Context(), store, metav1.CreateOptions{})
	w.no(err)
	w.storeIs(mainHosting, name, metav1.ConditionFalse, "cannot get resource")
	role := &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "annex-" + secret.Name, Namespace: namespace},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{secret.Name}, Verbs: []string{"get"}}},
	}
	_, err = kube.RbacV1().Roles(namespace).Create(w.Context(), role, metav1.CreateOptions{})
	w.no(err)
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name, Namespace: namespace},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: "annex", Namespace: namespace}},
	}
	_, err = kube.RbacV1().RoleBindings(namespace).Create(w.Context(), binding, metav1.CreateOptions{})
	w.no(err)
	w.storeIs(mainHosting, name, metav1.ConditionTrue, "")
}

// storeIs waits until the condition Ready of a Store is as wanted.
func (w *fixture) storeIs(mainHosting hostingclient.Interface, name string, status metav1.ConditionStatus, words string) {
	w.Helper()
	w.eventually(fmt.Sprintf("store %s is Ready=%s %s", name, status, words), func(ctx context.Context) (bool, string) {
		store, err := mainHosting.HostingV1alpha1().Stores().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		ready := meta.FindStatusCondition(store.Status.Conditions, hostingv1alpha1.StoreReady)
		if ready == nil {
			return false, "no condition"
		}
		said := fmt.Sprintf("%s %s: %s", ready.Status, ready.Reason, ready.Message)
		return ready.Status == status && strings.Contains(said, words), said
	})
}
