// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/etcdcluster"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// addStore creates a Store of a cluster, and waits until it is ready.
func (a *annex) addStore(t *testing.T, name string, cluster *etcdcluster.Cluster) {
	t.Helper()
	a.makeStore(t, name, cluster, time.Now().Add(time.Hour))
	a.waitForStore(t, name, metav1.ConditionTrue, "")
}

// addEtcd starts an etcd with one member, and creates a Store of it.
func (a *annex) addEtcd(t *testing.T, name string) *etcdcluster.Cluster {
	t.Helper()
	etcd := etcdcluster.Start(t, etcdcluster.Config{Members: 1})
	a.addStore(t, name, etcd)
	return etcd
}

// startWithStore starts annex, and installs Widgets on a Store with an etcd of its own.
func startWithStore(t *testing.T, store string) (*annex, *etcdcluster.Cluster, *resource) {
	t.Helper()
	a := startAnnex(t)
	etcd := a.addEtcd(t, store)
	return a, etcd, a.installOn(t, store)
}

// makeStore creates a Store of a cluster, with a client certificate that expires at
// notAfter.
func (a *annex) makeStore(t *testing.T, name string, cluster *etcdcluster.Cluster, notAfter time.Time) {
	t.Helper()
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "etcd-" + name, Namespace: hostingv1alpha1.NamespaceAnnexSystem},
		Data:       cluster.Authority.SecretData(t, notAfter),
	}
	expect.Create(t, a.Kube.CoreV1().Secrets(secret.Namespace), secret)
	store := &hostingv1alpha1.Store{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"name": name}},
		Spec: hostingv1alpha1.StoreSpec{Etcd: &hostingv1alpha1.EtcdStore{
			Endpoints: cluster.Endpoints(),
			TLS:       &hostingv1alpha1.EtcdTLS{SecretRef: hostingv1alpha1.SecretReference{Name: secret.Name}},
		}},
	}
	expect.Create(t, a.Stores(), store)
}

// patchStore changes a Store.
func (a *annex) patchStore(t *testing.T, name, patch string) {
	t.Helper()
	expect.Patch(t, a.Stores(), name, patch)
}

// waitForStore waits for the condition Ready of a Store, with words in its reason or message.
func (a *annex) waitForStore(t *testing.T, name string, status metav1.ConditionStatus, words string) *hostingv1alpha1.Store {
	t.Helper()
	return expect.Eventually(t, a.Stores(), name, fmt.Sprintf("store %s is Ready=%s %s", name, status, words), func(store *hostingv1alpha1.Store) bool {
		ready := meta.FindStatusCondition(store.Status.Conditions, hostingv1alpha1.StoreReady)
		return ready != nil && ready.Status == status && strings.Contains(ready.Reason+" "+ready.Message, words)
	})
}

// createHostedResource creates the HostedResource of a CRD in advance.
func (a *annex) createHostedResource(t *testing.T, name string, spec hostingv1alpha1.HostedResourceSpec) {
	t.Helper()
	hosted := &hostingv1alpha1.HostedResource{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
	expect.Create(t, a.HostedResources(), hosted)
}

// installOn installs Widgets on a Store.
func (a *annex) installOn(t *testing.T, store string) *resource {
	t.Helper()
	crd := newCRD(t, anySchema)
	a.createHostedResource(t, crd.Name, hostingv1alpha1.HostedResourceSpec{StoreName: store})
	r := a.installCRD(t, crd)
	r.waitForList(t)
	return r
}

// waitForList waits until the resource can be listed.
func (r *resource) waitForList(t *testing.T) {
	t.Helper()
	poll.UntilNoError(t, r.name+" can be listed", func() error {
		_, err := r.in("v1").List(t.Context(), metav1.ListOptions{})
		return err
	})
}

// hosted reads the HostedResource.
func (r *resource) hosted(t *testing.T) *hostingv1alpha1.HostedResource {
	t.Helper()
	return expect.Get(t, r.annex.HostedResources(), r.name)
}

// keysOf counts the objects of the resource that an etcd has.
func (r *resource) keysOf(t *testing.T, etcd *clientv3.Client) int64 {
	t.Helper()
	found, err := etcd.Get(t.Context(), "/annex/"+r.group+"/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	expect.NoError(t, err)
	return found.Count
}

// tryCreate creates a Widget with a deadline.
func (r *resource) tryCreate(t *testing.T, name string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := r.in("v1").Create(ctx, r.object(t, "v1", name, "spec: {}"), metav1.CreateOptions{})
	return err
}

// waitForUnavailable waits until writes are refused with 503 and the words.
func (r *resource) waitForUnavailable(t *testing.T, name string, words ...string) {
	t.Helper()
	poll.Until(t, "writes of "+r.name+" are refused", func() string {
		err := r.tryCreate(t, name)
		switch {
		case err == nil:
			// Tests count objects.
			if err := r.in("v1").Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
				return err.Error()
			}
			return "it was written"
		case !apierrors.IsServiceUnavailable(err):
			return err.Error()
		}
		return expect.MissingFrom(err, words...)
	})
}

// waitForCreate waits until an object can be created.
func (r *resource) waitForCreate(t *testing.T, name string) {
	t.Helper()
	poll.UntilNoError(t, name+" of "+r.name+" is created", func() error {
		if err := r.tryCreate(t, name); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
		return nil
	})
}

func TestStoresAddedAtRuntime(t *testing.T) {
	t.Parallel()
	a := startAnnex(t)
	first, second := a.addEtcd(t, "first"), a.addEtcd(t, "second")

	onFirst := a.installOn(t, "first")
	crd := newCRD(t, anySchema)
	a.createHostedResource(t, crd.Name, hostingv1alpha1.HostedResourceSpec{
		StoreSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"name": "second"}},
	})
	onSecond := a.installCRD(t, crd)
	onSecond.waitForList(t)
	if got := onSecond.hosted(t).Spec.StoreName; got != "second" {
		t.Errorf("placed on %q by a selector, want second", got)
	}
	for i := range 3 {
		onFirst.create(t, "v1", fmt.Sprintf("w%d", i), "spec: {on: first}")
		onSecond.create(t, "v1", fmt.Sprintf("w%d", i), "spec: {on: second}")
	}
	for _, c := range []struct {
		what string
		etcd *clientv3.Client
		want [2]int64
	}{
		{"the first etcd", first.Client(t), [2]int64{3, 0}},
		{"the second etcd", second.Client(t), [2]int64{0, 3}},
		{"annex's own etcd", a.etcd(t), [2]int64{0, 0}},
	} {
		if got := [2]int64{onFirst.keysOf(t, c.etcd), onSecond.keysOf(t, c.etcd)}; got != c.want {
			t.Errorf("%s has %v objects of the two resources, want %v", c.what, got, c.want)
		}
	}
	waitForNumbers(t, onFirst, "first", 3)
	waitForNumbers(t, onSecond, "second", 3)
	expectResourcesBlockDeletion(t, onFirst, "first")
}

// waitForNumbers waits until the status of the resource and of its Store count the objects.
func waitForNumbers(t *testing.T, r *resource, store string, objects int64) {
	t.Helper()
	poll.UntilDone(t, "numbers of "+r.name, func() (bool, string) {
		status := r.hosted(t).Status
		if status.Objects != objects || status.Bytes <= 0 || status.StoredBytes <= 0 {
			return false, fmt.Sprintf("hosted resource: %+v", status)
		}
		found, err := r.annex.Stores().Get(t.Context(), store, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		return found.Status.Objects == objects && found.Status.Resources == 1 && found.Status.ClusterID != "", fmt.Sprintf("store: %+v", found.Status)
	})
}

// expectResourcesBlockDeletion checks that a Store is deleted only after its resources.
func expectResourcesBlockDeletion(t *testing.T, r *resource, store string) {
	t.Helper()
	stores := r.annex.Stores()
	err := stores.Delete(t.Context(), store, metav1.DeleteOptions{})
	expect.Error(t, err, store, r.name)
	if !apierrors.IsConflict(err) && !apierrors.IsForbidden(err) {
		t.Errorf("delete a Store that holds a resource: %v", err)
	}
	r.waitForCreate(t, "after")
	r.deleteCRD(t)
	if err := r.annex.HostedResources().Delete(t.Context(), r.name, metav1.DeleteOptions{}); err == nil {
		t.Log("the HostedResource was deleted")
	}
	poll.Until(t, "store "+store+" is deleted", func() string {
		err := r.annex.HostedResources().Delete(t.Context(), r.name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return err.Error()
		}
		if err := stores.Delete(t.Context(), store, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return err.Error()
		}
		if _, err := stores.Get(t.Context(), store, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Sprintf("it is still there: %v", err)
		}
		return ""
	})
}

func TestStoreOutage(t *testing.T) {
	t.Parallel()
	a, etcd, r := startWithStore(t, "fragile")
	other := a.installOn(t, "default")
	created := r.create(t, "v1", "before", "spec: {}")
	events := r.watch(t, "v1", metav1.ListOptions{ResourceVersion: created.GetResourceVersion()})
	poll.UntilDone(t, "the watch cache has the object", func() (bool, string) {
		got := a.get(t, r.path("v1")+"?resourceVersion=0")
		return strings.Contains(string(got.Body), `"before"`), got.String()
	})

	etcd.Members[0].Kill(t)
	r.waitForUnavailable(t, "refused", "fragile")
	a.waitForStore(t, "fragile", metav1.ConditionFalse, "")
	if err := r.tryCreate(t, "refused"); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("a create gave %v", err)
	}
	a.get(t, r.path("v1")+"?resourceVersion=0").ExpectText(t, http.StatusOK, `"before"`, "a read from the watch cache")
	a.get(t, r.path("v1")).ExpectText(t, http.StatusServiceUnavailable, "fragile", "a read from etcd")
	expectOthersServed(t, a, r, other)

	etcd.Members[0].Start(t)
	r.waitForCreate(t, "after")
	r.create(t, "v1", "later", "spec: {}")
	a.waitForStore(t, "fragile", metav1.ConditionTrue, "")
	for _, want := range []string{"after", "later"} {
		event := nextEvent(t, events)
		if event.Type != watch.Added || !strings.Contains(describe(event), want) {
			t.Errorf("event %s, want ADDED %s", describe(event), want)
		}
	}
}

// expectOthersServed checks that only the resources of a Store are unavailable.
func expectOthersServed(t *testing.T, a *annex, down, other *resource) {
	t.Helper()
	other.create(t, "v1", "meanwhile", "spec: {}")
	a.newNamespace(t)
	for _, path := range []string{"/readyz", "/livez", "/api", "/apis", "/apis/" + down.group + "/v1", "/openapi/v3"} {
		a.get(t, path).Expect(t, http.StatusOK, "%s", path)
	}
	if got := a.get(t, "/apis"); !strings.Contains(string(got.Body), down.group) {
		t.Error("discovery lacks the group")
	}
}

func TestStoreDownAtStart(t *testing.T) {
	t.Parallel()
	a, etcd, r := startWithStore(t, "late")
	r.create(t, "v1", "kept", "spec: {}")
	other := a.installOn(t, "default")

	a = a.restart(t)
	r.annex, other.annex = a, a
	r.waitForList(t)
	r.wantNames(t, "after a restart", "kept")

	etcd.Members[0].Kill(t)
	a = a.restart(t)
	r.annex, other.annex = a, a
	r.waitForUnavailable(t, "refused", "late")
	expectOthersServed(t, a, r, other)
	etcd.Members[0].Start(t)
	r.waitForCreate(t, "after")
	r.wantNames(t, "when the Store is available", "after", "kept")
}

func TestStoresOfTwoReplicas(t *testing.T) {
	t.Parallel()
	own := etcdcluster.Start(t, etcdcluster.Config{Members: 1, Plain: true})
	etcd := etcdcluster.Start(t, etcdcluster.Config{Members: 1})
	flag := "--etcd-servers=" + own.Endpoints()[0]
	a, b := startAnnex(t, flag), startAnnex(t, flag)
	a.addStore(t, "shared", etcd)
	r := a.installOn(t, "shared")
	there := r.on(b)
	there.waitForList(t)
	events := there.watch(t, "v1", metav1.ListOptions{})
	for i := range 20 {
		through := []*resource{r, there}[i%2]
		name := fmt.Sprintf("w%02d", i)
		through.create(t, "v1", name, "spec: {}")
		if got := there.get(t, "v1", name); got.GetName() != name {
			t.Errorf("read %q", got.GetName())
		}
		if event := nextEvent(t, events); !strings.Contains(describe(event), name) {
			t.Errorf("event %s, want %s", describe(event), name)
		}
	}
	// The other replica becomes the leader, and updates the status of the Store.
	a.Stop(t)
	there.create(t, "v1", "last", "spec: {}")
	waitForNumbers(t, there, "shared", 21)
	etcd.Members[0].Kill(t)
	b.waitForStore(t, "shared", metav1.ConditionFalse, "")
}

// TestHostedResourceRecreatedOnAnotherStore deletes a HostedResource and recreates it on
// another Store while objects are written. No acknowledged object may be missing.
func TestHostedResourceRecreatedOnAnotherStore(t *testing.T) {
	t.Parallel()
	a := startAnnex(t)
	one := a.addEtcd(t, "one")
	a.addEtcd(t, "two")
	hosted := a.HostedResources()
	crd := newCRD(t, anySchema)
	first := &hostingv1alpha1.HostedResource{
		ObjectMeta: metav1.ObjectMeta{Name: crd.Name, Finalizers: []string{"example.com/hold"}},
		Spec:       hostingv1alpha1.HostedResourceSpec{StoreName: "one"},
	}
	expect.Create(t, hosted, first)
	expect.Delete(t, hosted, crd.Name)
	widgets := a.installCRD(t, crd)
	written, stopWriting := widgets.keepWriting(t)
	widgets.waitForHostedResource(t, "is not used", func(hosted *hostingv1alpha1.HostedResource) bool {
		ready := meta.FindStatusCondition(hosted.Status.Conditions, hostingv1alpha1.HostedResourceReady)
		return hosted.Status.DefinitionUID == "" && ready != nil && ready.Reason == "Terminating"
	})

	// The scheduler may recreate it first.
	a.patchStore(t, "one", `{"spec": {"unschedulable": true}}`)
	expect.Patch(t, hosted, crd.Name, `{"metadata": {"finalizers": null}}`)
	second := &hostingv1alpha1.HostedResource{ObjectMeta: metav1.ObjectMeta{Name: crd.Name}, Spec: hostingv1alpha1.HostedResourceSpec{StoreName: "two"}}
	if _, err := hosted.Create(t.Context(), second, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	for range 20 {
		<-written
	}
	acknowledged := sets.New(stopWriting()...)
	if missing := acknowledged.Difference(sets.New(widgets.names(t, "v1", metav1.ListOptions{})...)); missing.Len() > 0 {
		t.Errorf("of %d acknowledged objects, missing: %v", acknowledged.Len(), sets.List(missing))
	}
	if got := widgets.keysOf(t, one.Client(t)); got > 0 {
		t.Errorf("the first Store has %d objects", got)
	}

	// In use it cannot be deleted, whatever its finalizers are.
	expect.Patch(t, hosted, crd.Name, `{"metadata": {"finalizers": ["example.com/hold"]}}`)
	if err := hosted.Delete(t.Context(), crd.Name, metav1.DeleteOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("delete a HostedResource in use: %v", err)
	}
}

// keepWriting creates objects until it is stopped, and returns the names of the
// acknowledged ones. Each name is also sent.
func (r *resource) keepWriting(t *testing.T) (written <-chan string, stop func() []string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	sent, done := make(chan string), make(chan []string)
	go func() {
		var names []string
		defer func() { done <- names }()
		for i := 0; ctx.Err() == nil; i++ {
			name := fmt.Sprintf("w%06d", i)
			if err := r.tryCreate(t, name); err != nil {
				continue
			}
			names = append(names, name)
			select {
			case sent <- name:
			case <-ctx.Done():
			}
		}
	}()
	return sent, func() []string {
		cancel()
		return <-done
	}
}
