// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package hosting

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	hostingclient "github.com/annex-dev/annex/pkg/generated/clientset/versioned"
	"github.com/annex-dev/annex/pkg/test/annextest"
	"github.com/annex-dev/annex/pkg/test/etcdcluster"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// onAnotherStore adds a Store through the main cluster, places one resource on it, and kills
// its etcd. Only that resource becomes unavailable, with the reason. The shared APIService
// stays available.
func onAnotherStore(f *fixture) {
	etcd := etcdcluster.Start(f.T, etcdcluster.Config{Members: 1})
	mainHosting, err := hostingclient.NewForConfig(mainCluster.Config)
	expect.NoError(f, err)
	// Keep the resources of other cases off this Store.
	f.createStore(mainHosting, "far", etcd, func(spec *hostingv1alpha1.StoreSpec) { spec.Unschedulable = true })
	f.expectAuthorRefused(etcd, "etcd-far")
	placed := &hostingv1alpha1.HostedResource{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets." + f.group},
		Spec:       hostingv1alpha1.HostedResourceSpec{StoreName: "far"},
	}
	expect.Create(f, mainHosting.HostingV1alpha1().HostedResources(), placed)
	f.createInMain(hosted(f.newCRD("widgets", "v1")), hosted(f.newCRD("gadgets", "v1")))
	f.waitPublished("v1")
	f.createObject("widgets", "v1", "one")
	f.createObject("gadgets", "v1", "one")
	found, err := etcd.Client(f.T).Get(f.Context(), "/annex/"+f.group+"/widgets/default/one")
	expect.NoError(f, err)
	if len(found.Kvs) != 1 {
		f.Error("the object is not in its Store")
	}

	etcd.Members[0].Kill(f.T)
	poll.UntilDone(f, "the main cluster reports that the Store is unavailable", func() (bool, string) {
		ctx, cancel := context.WithTimeout(f.Context(), 20*time.Second)
		defer cancel()
		_, err := f.objects(f.mainObjects, "widgets", "v1").Get(ctx, "one", metav1.GetOptions{})
		return apierrors.IsServiceUnavailable(err) && strings.Contains(err.Error(), `store "far"`), fmt.Sprint(err)
	})
	f.waitForStore(mainHosting, "far", metav1.ConditionFalse, "Unreachable")
	f.createObject("gadgets", "v1", "two")
	f.waitForObject(f.mainObjects, "gadgets", "v1", "one")
	published := expect.Get(f, f.apiServices, "v1."+f.group)
	for _, condition := range published.Status.Conditions {
		if condition.Type == apiregistrationv1.Available && condition.Status != apiregistrationv1.ConditionTrue {
			f.Errorf("the APIService is not available: %s", condition.Message)
		}
	}
	resources, err := f.mainDiscovery.ServerResourcesForGroupVersion(f.group + "/v1")
	expect.NoError(f, err)
	if len(resources.APIResources) != 2 {
		f.Errorf("discovery has %v", resources.APIResources)
	}

	etcd.Members[0].Start(f.T)
	f.createObject("widgets", "v1", "two")
	f.waitForObject(f.mainObjects, "widgets", "v1", "one")
	f.waitForStore(mainHosting, "far", metav1.ConditionTrue, "")
}

// testScheduled: the scheduler places the resource of a CRD of the main cluster, whether or
// not annex syncs the CRD.
func testScheduled(t *testing.T) {
	annex := startAnnex(t)
	f := newFixture(t, annex, "scheduled.example.com")
	widgets := "widgets." + f.group
	stores := f.stores
	taint := `{"spec":{"taints":[{"key":"example.com/full","effect":"NoSchedule"}]}}`
	_, err := stores.Patch(f.Context(), hostingv1alpha1.DefaultStoreName, types.MergePatchType, []byte(taint), metav1.PatchOptions{})
	expect.NoError(f, err)
	other := newFixture(t, annex, "unscheduled.example.com")
	other.createInMain(other.newCRD("gadgets", "v1"), hosted(other.newCRD("widgets", "v1")))
	other.waitForCondition("widgets."+other.group, metav1.ConditionFalse, "GroupIncomplete")
	f.createInMain(hosted(f.newCRD("widgets", "v1")))
	f.waitForCondition(widgets, metav1.ConditionUnknown, "Moving")
	expect.Eventually(f, f.migrations, f.group+"-hosted", "the Migration waits for a Store", func(m *hostingv1alpha1.Migration) bool {
		complete := meta.FindStatusCondition(m.Status.Conditions, hostingv1alpha1.MigrationComplete)
		return complete != nil && strings.Contains(complete.Message, "is placed on a Store")
	})
	f.expectServedByMain("v1")

	etcd := etcdcluster.Start(t, etcdcluster.Config{Members: 1})
	mainHosting, err := hostingclient.NewForConfig(mainCluster.Config)
	expect.NoError(f, err)
	f.createStore(mainHosting, "near", etcd, func(*hostingv1alpha1.StoreSpec) {})
	f.waitPublished("v1")
	f.waitForSync(widgets)
	f.createObject("widgets", "v1", "one")
	for _, name := range []string{widgets, "widgets." + other.group} {
		expect.Eventually(f, f.hostedResources, name, name+" is on the Store without the taint", func(resource *hostingv1alpha1.HostedResource) bool {
			return resource.Spec.StoreName == "near"
		})
	}
}

// createStore creates a Store with certificates in a Secret of the main cluster, and a Role
// that allows annex to read it.
func (f *fixture) createStore(mainHosting hostingclient.Interface, name string, etcd *etcdcluster.Cluster, change func(*hostingv1alpha1.StoreSpec)) {
	f.Helper()
	mainKube := kube(f, mainCluster.Config)
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "etcd-" + name, Namespace: namespace},
		Data:       etcd.Authority.SecretData(f.T, time.Now().Add(time.Hour)),
	}
	expect.Create(f, mainKube.CoreV1().Secrets(namespace), secret)
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
	expect.Create(f, mainHosting.HostingV1alpha1().Stores(), store)
	f.waitForStore(mainHosting, name, metav1.ConditionFalse, "cannot get resource")
	annextest.AllowSecret(f, mainKube, secret.Name)
	f.Cleanup(func() {
		expect.Succeeds(f, mainKube.CoreV1().Secrets(namespace).Delete(context.Background(), secret.Name, metav1.DeleteOptions{}))
	})
	f.waitForStore(mainHosting, name, metav1.ConditionTrue, "")
}

// waitForStore waits until the condition Ready of a Store has a status and contains words.
func (f *fixture) waitForStore(mainHosting hostingclient.Interface, name string, status metav1.ConditionStatus, words string) {
	f.Helper()
	expect.Eventually(f, mainHosting.HostingV1alpha1().Stores(), name, fmt.Sprintf("store %s is Ready=%s %s", name, status, words), func(store *hostingv1alpha1.Store) bool {
		ready := meta.FindStatusCondition(store.Status.Conditions, hostingv1alpha1.StoreReady)
		return ready != nil && ready.Status == status && strings.Contains(ready.Reason+" "+ready.Message, words)
	})
}
