// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/retry"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	applyhosting "github.com/annex-dev/annex/pkg/generated/applyconfiguration/hosting/v1alpha1"
	annexclient "github.com/annex-dev/annex/pkg/generated/clientset/versioned"
	hostinginformers "github.com/annex-dev/annex/pkg/generated/informers/externalversions"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// newStore creates a Store of an unreachable etcd; nothing is placed on it.
func (a *annex) newStore(t *testing.T, name string) *hostingv1alpha1.Store {
	t.Helper()
	store := &hostingv1alpha1.Store{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       hostingv1alpha1.StoreSpec{Etcd: &hostingv1alpha1.EtcdStore{Endpoints: []string{"http://127.0.0.1:1"}}},
	}
	return expect.Create(t, a.Stores(), store)
}

func TestStoreClientset(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	stores := a.Stores()
	created := a.newStore(t, "clientset")
	if created.Spec.Etcd.KeyPrefix != "/annex" || created.Generation != 1 || created.UID == "" {
		t.Errorf("created %+v", created)
	}
	var updated *hostingv1alpha1.Store
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		current, err := stores.Get(t.Context(), created.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		current.Spec.Unschedulable = true
		current.Status.Objects = 1000
		updated, err = stores.Update(t.Context(), current, metav1.UpdateOptions{})
		return err
	})
	expect.NoError(t, err)
	if !updated.Spec.Unschedulable || updated.Generation != 2 || updated.Status.Objects == 1000 {
		t.Errorf("updated %+v", updated)
	}
	var withStatus *hostingv1alpha1.Store
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		current, err := stores.Get(t.Context(), created.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		current.Spec.Unschedulable = false
		current.Status.Version = "9.9.9"
		withStatus, err = stores.UpdateStatus(t.Context(), current, metav1.UpdateOptions{})
		return err
	})
	expect.NoError(t, err)
	if !withStatus.Spec.Unschedulable || withStatus.Generation != 2 || withStatus.Status.Version != "9.9.9" {
		t.Errorf("with another status: %+v", withStatus)
	}

	_, err = stores.Patch(t.Context(), created.Name, types.MergePatchType, []byte(`{"spec": {"etcd": null, "embedded": {}}}`), metav1.PatchOptions{})
	expect.Error(t, err, "spec: Forbidden: may not change between `embedded` and `etcd`")
	_, err = stores.Patch(t.Context(), created.Name, types.MergePatchType, []byte(`{"spec": {"etcd": {"endpoints": ["ftp://x"]}}}`), metav1.PatchOptions{})
	expect.Error(t, err, `spec.etcd.endpoints[0]`, `"ftp"`)
	// Strategic merge uses the keys of lists.
	_, err = stores.Patch(t.Context(), created.Name, types.StrategicMergePatchType, []byte(`{"metadata": {"labels": {"disk": "fast"}}}`), metav1.PatchOptions{})
	expect.Succeeds(t, err, "strategic merge patch")
	picked, err := stores.List(t.Context(), metav1.ListOptions{LabelSelector: "disk=fast"})
	if err != nil || len(picked.Items) != 1 || picked.Items[0].Name != created.Name {
		t.Errorf("list by label: %v, %v", picked, err)
	}
	expect.Delete(t, stores, created.Name)
	// It is deleted once annex knows that nothing is placed on it.
	expect.Gone(t, stores, created.Name)
}

func TestStoreApply(t *testing.T) {
	t.Parallel()
	stores := sharedAnnex(t).Hosting.HostingV1alpha1().Stores()
	store := applyhosting.Store("applied").WithSpec(applyhosting.StoreSpec().
		WithEtcd(applyhosting.EtcdStore().WithEndpoints("http://127.0.0.1:1")).
		WithTaints(applyhosting.Taint().WithKey("slow").WithEffect(hostingv1alpha1.TaintEffectNoSchedule)))
	if _, err := stores.Apply(t.Context(), store, metav1.ApplyOptions{FieldManager: "alice"}); err != nil {
		t.Fatal(err)
	}
	taint := applyhosting.Store("applied").WithSpec(applyhosting.StoreSpec().
		WithTaints(applyhosting.Taint().WithKey("remote").WithEffect(hostingv1alpha1.TaintEffectPreferNoSchedule)))
	both, err := stores.Apply(t.Context(), taint, metav1.ApplyOptions{FieldManager: "bob"})
	expect.NoError(t, err)
	if len(both.Spec.Taints) != 2 {
		t.Errorf("taints of two managers: %+v", both.Spec.Taints)
	}
	_, err = stores.Apply(t.Context(), applyhosting.Store("applied").WithSpec(applyhosting.StoreSpec().
		WithEtcd(applyhosting.EtcdStore().WithKeyPrefix("/other"))), metav1.ApplyOptions{FieldManager: "bob", Force: true})
	if !apierrors.IsInvalid(err) {
		t.Errorf("another key prefix: got %v, want Invalid", err)
	}
	_, err = stores.Apply(t.Context(), applyhosting.Store("applied").WithSpec(applyhosting.StoreSpec().
		WithEtcd(applyhosting.EtcdStore().WithEndpoints("http://127.0.0.1:2"))), metav1.ApplyOptions{FieldManager: "bob"})
	expect.Succeeds(t, err, "add an endpoint to a set of another manager")
	fine, err := applyhosting.ExtractStore(both, "bob")
	if err != nil || len(fine.Spec.Taints) != 1 || *fine.Spec.Taints[0].Key != "remote" {
		t.Errorf("extracted %+v, %v", fine, err)
	}
}

func TestDefaultStoreCannotBeDeleted(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	stores := a.Stores()
	err := stores.Delete(t.Context(), hostingv1alpha1.DefaultStoreName, metav1.DeleteOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("got %v, want Forbidden", err)
	}
	expect.Error(t, err, `stores.hosting.annex.dev "default" is forbidden: this Store always exists`)

	// Stores of the shared server are in use, so another deletes the collection.
	own := startAnnex(t)
	own.newStore(t, "other")
	ownStores := own.Stores()
	err = ownStores.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{})
	poll.UntilDone(t, "only the Store default is left", func() (bool, string) {
		list, listErr := ownStores.List(t.Context(), metav1.ListOptions{})
		done := listErr == nil && len(list.Items) == 1 && list.Items[0].Name == hostingv1alpha1.DefaultStoreName
		return done, fmt.Sprintf("after all were deleted (%v) there are %v (%v)", err, list, listErr)
	})
}

func TestHostingInformers(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	factory := hostinginformers.NewSharedInformerFactory(a.Hosting, 0)
	informer := factory.Hosting().V1alpha1().Stores()
	var mu sync.Mutex
	var seen []string
	note := func(event string, object any) {
		if store, ok := object.(*hostingv1alpha1.Store); ok && store.Name == "informed" {
			mu.Lock()
			defer mu.Unlock()
			if entry := event + " " + fmt.Sprint(store.Spec.Unschedulable); !slices.Contains(seen, entry) {
				seen = append(seen, entry)
			}
		}
	}
	_, err := informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { note("add", object) },
		UpdateFunc: func(_, object any) { note("update", object) },
		DeleteFunc: func(object any) { note("delete", object) },
	})
	expect.NoError(t, err)
	factory.StartWithContext(t.Context())
	for kind, synced := range factory.WaitForCacheSync(t.Context().Done()) {
		if !synced {
			t.Fatalf("the informer of %s did not sync", kind)
		}
	}
	if _, err := informer.Lister().Get(hostingv1alpha1.DefaultStoreName); err != nil {
		t.Errorf("the lister: %v", err)
	}
	stores := a.Stores()
	a.newStore(t, "informed")
	expect.Patch(t, stores, "informed", `{"spec": {"unschedulable": true}}`)
	expect.Delete(t, stores, "informed")
	poll.UntilDone(t, "the informer receives the deletion", func() (bool, string) {
		mu.Lock()
		defer mu.Unlock()
		return slices.Contains(seen, "delete true") && slices.Contains(seen, "update true") && seen[0] == "add false", fmt.Sprint(seen)
	})
	if _, err := informer.Lister().Get("informed"); !apierrors.IsNotFound(err) {
		t.Errorf("the lister still has it: %v", err)
	}
	if all, err := informer.Lister().List(labels.Everything()); err != nil || len(all) == 0 {
		t.Errorf("the lister lists %v, %v", all, err)
	}
}

func TestHostedResourceClientset(t *testing.T) {
	t.Parallel()
	hosted := sharedAnnex(t).Hosting.HostingV1alpha1().HostedResources()
	const name = "plans.future.example.com"
	events, err := hosted.Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	expect.NoError(t, err)
	defer events.Stop()
	created := expect.Create(t, hosted, &hostingv1alpha1.HostedResource{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       hostingv1alpha1.HostedResourceSpec{StoreName: hostingv1alpha1.DefaultStoreName, Priority: 7},
	})
	if created.Spec.SchedulerName != hostingv1alpha1.DefaultSchedulerName {
		t.Errorf("created %+v", created.Spec)
	}
	if event := nextEvent(t, events); event.Type != watch.Added || event.Object.(*hostingv1alpha1.HostedResource).UID != created.UID {
		t.Errorf("the watch received %v", event)
	}
	_, err = hosted.Patch(t.Context(), name, types.MergePatchType, []byte(`{"spec": {"storeName": "other"}}`), metav1.PatchOptions{})
	expect.Error(t, err, "spec.storeName")
	_, err = hosted.Create(t.Context(), &hostingv1alpha1.HostedResource{ObjectMeta: metav1.ObjectMeta{Name: "nodots"}}, metav1.CreateOptions{})
	expect.Error(t, err, `HostedResource.hosting.annex.dev "nodots" is invalid: metadata.name`)
	expect.Eventually(t, hosted, name, "it is pending", func(current *hostingv1alpha1.HostedResource) bool {
		return current.Status.Phase == hostingv1alpha1.HostedResourcePending && meta.IsStatusConditionFalse(current.Status.Conditions, hostingv1alpha1.HostedResourceReady)
	})
}

func TestHostingTables(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	tests := map[string]struct {
		want []string
		row  string
	}{
		"stores":          {[]string{"Name", "Ready", "Objects", "Size", "Age"}, "default"},
		"hostedresources": {[]string{"Name", "Store", "Phase", "Objects", "Age"}, ""},
		"migrations":      {[]string{"Name", "Resource", "From", "To", "Phase", "Copied", "Age"}, ""},
		"staticsources":   {[]string{"Name", "Location", "Read", "Applied", "Orphaned", "Age"}, ""},
	}
	for name, test := range tests {
		var table metav1.Table
		a.get(t, "/apis/hosting.annex.dev/v1alpha1/"+name, "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").Into(t, &table)
		var columns []string
		for _, column := range table.ColumnDefinitions {
			columns = append(columns, column.Name)
			if column.Description == "" {
				t.Errorf("%s: the column %s has no description", name, column.Name)
			}
		}
		for _, want := range test.want {
			if !slices.Contains(columns, want) {
				t.Errorf("%s: columns %v lack %s", name, columns, want)
			}
		}
		if test.row != "" && !slices.ContainsFunc(table.Rows, func(row metav1.TableRow) bool { return row.Cells[0] == test.row }) {
			t.Errorf("%s: no row %s in %v", name, test.row, table.Rows)
		}
	}
}

// Clients may use protobuf. Objects that are stored as JSON, as by an annex without protobuf of
// its own kinds, are read beside others, and are protobuf after the next write.
func TestHostingProtobuf(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	config := restclient.CopyConfig(a.AnnexConfig)
	config.AcceptContentTypes, config.ContentType = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf
	annexHosting, err := annexclient.NewForConfig(config)
	expect.NoError(t, err)
	hosted := annexHosting.HostingV1alpha1().HostedResources()
	const (
		name = "plans.protobuf.example.com"
		path = "/apis/hosting.annex.dev/v1alpha1/hostedresources"
		key  = "/annex/hosting.annex.dev/hostedresources/"
	)
	events, err := hosted.Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	expect.NoError(t, err)
	defer events.Stop()
	_, err = a.etcd(t).Put(t.Context(), key+name, `{"kind":"HostedResource","apiVersion":"hosting.annex.dev/v1alpha1",
		"metadata":{"name":"`+name+`","uid":"u","creationTimestamp":"2026-01-02T03:04:05Z"},
		"spec":{"priority":7,"requests":{"objects":"100k"}},"status":{"objects":0}}`)
	expect.NoError(t, err)
	read, isHosted := nextEvent(t, events).Object.(*hostingv1alpha1.HostedResource)
	if !isHosted {
		t.Fatal("the watch did not receive a HostedResource")
	}
	requested := read.Spec.Requests[hostingv1alpha1.ResourceObjects]
	if requested.String() != "100k" || read.Spec.Priority != 7 || read.Spec.SchedulerName != hostingv1alpha1.DefaultSchedulerName {
		t.Errorf("the watch received %v", read)
	}
	other := expect.Create(t, hosted, &hostingv1alpha1.HostedResource{ObjectMeta: metav1.ObjectMeta{Name: "others.protobuf.example.com"}})
	list, err := hosted.List(t.Context(), metav1.ListOptions{})
	has := func(name string) bool {
		return slices.ContainsFunc(list.Items, func(item hostingv1alpha1.HostedResource) bool { return item.Name == name })
	}
	if err != nil || !has(name) || !has(other.Name) {
		t.Errorf("listed %v, %v", list, err)
	}
	expect.Patch(t, hosted, name, `{"spec": {"priority": 8}}`)
	for _, name := range []string{name, other.Name} {
		if stored := etcdValue(t, a.etcd(t), key+name); !strings.HasPrefix(string(stored), "k8s\x00") {
			t.Errorf("etcd holds %q, want protobuf", stored)
		}
	}

	const metadata = ";as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
	for _, accept := range []string{runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf + metadata} {
		got := a.get(t, path, "Accept", accept)
		if got.Code != http.StatusOK || !strings.HasPrefix(string(got.Body), "k8s\x00") || !strings.Contains(string(got.Body), name) {
			t.Errorf("%s: %s", accept, got)
		}
	}
	if got := a.request(t, http.MethodPost, path, "k8s\x00junk", "Content-Type", runtime.ContentTypeProtobuf); got.Code != http.StatusBadRequest {
		t.Errorf("create with damaged protobuf: %s", got)
	}
	a.get(t, path+"/"+name, "Accept", "application/yaml").ExpectText(t, http.StatusOK, "priority: 8\n", "as YAML")
	for _, name := range []string{name, other.Name} {
		expect.Delete(t, hosted, name)
	}
}

func TestDynamicClientReadsStores(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	unstructured, err := a.Dynamic.Resource(hostingv1alpha1.SchemeGroupVersion.WithResource("stores")).Get(t.Context(), "default", metav1.GetOptions{})
	expect.NoError(t, err)
	typed := expect.Get(t, a.Stores(), "default")
	if diff := cmp.Diff(string(typed.UID), string(unstructured.GetUID())); diff != "" || unstructured.GetKind() != "Store" {
		t.Errorf("the dynamic client reads %v", unstructured)
	}
}
