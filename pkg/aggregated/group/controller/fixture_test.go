// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsfake "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/fake"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	apiextensionsinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorfake "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/fake"
	apiregistrationclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/typed/apiregistration/v1"
	aggregatorinformers "k8s.io/kube-aggregator/pkg/client/informers/externalversions"

	"github.com/annex-dev/annex/pkg/aggregated/group"
	"github.com/annex-dev/annex/pkg/aggregated/group/grouptest"
	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/controller/framework/controllertest"
	annexfake "github.com/annex-dev/annex/pkg/generated/clientset/versioned/fake"
	hostingclient "github.com/annex-dev/annex/pkg/generated/clientset/versioned/typed/hosting/v1alpha1"
	annexinformers "github.com/annex-dev/annex/pkg/generated/informers/externalversions"
	"github.com/annex-dev/annex/pkg/test/expect"
)

const (
	groupName, widgets, gadgets = grouptest.Group, grouptest.Widgets, grouptest.Gadgets

	hostingName = "v1alpha1.hosting.annex.dev"
	v1Name      = "v1." + groupName
)

var (
	crd, labelled, versions = grouptest.CRD, grouptest.Labelled, grouptest.Versions

	widgetsV1 = schema.GroupVersionResource{Group: groupName, Version: "v1", Resource: "widgets"}
	service   = group.Service{Namespace: "annex-system", Name: "annex", Port: 443}
)

// bundle is a CABundleSource that a test can change.
type bundle struct {
	mu        sync.Mutex
	pem       string
	listeners []func()
}

func (b *bundle) CABundle() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return []byte(b.pem)
}

func (b *bundle) AddListener(listener func()) { b.listeners = append(b.listeners, listener) }

func (b *bundle) change(pem string) {
	b.mu.Lock()
	b.pem = pem
	b.mu.Unlock()
	for _, listener := range b.listeners {
		listener()
	}
}

// fixture is a controller between a main cluster and an annex that keep objects in memory.
type fixture struct {
	*testing.T
	mainClient, annexClient *apiextensionsfake.Clientset
	main, annex             apiextensionsclient.CustomResourceDefinitionInterface
	mainObjects             *dynamicfake.FakeDynamicClient
	aggregator              *aggregatorfake.Clientset
	apiServices             apiregistrationclient.APIServiceInterface
	annexObjects            *metadatafake.FakeMetadataClient
	hosting                 *annexfake.Clientset
	resources               hostingclient.HostedResourceInterface
	bundle                  *bundle

	mu sync.Mutex
	// stranger answers through the main cluster in annex's place.
	stranger types.UID
	unproven error
	// lags: the main cluster answers for every group itself, whatever it contains. hangs: it does not answer.
	lags, hangs bool
	written     []string
	unfrozen    int
	unfreezeErr error
}

func newFixture(t *testing.T, apiServices []runtime.Object, annexDefinitions ...*group.Definition) *fixture {
	scheme := metadatafake.NewTestScheme()
	expect.NoError(t, metav1.AddMetaToScheme(scheme))
	objects := []runtime.Object{&hostingv1alpha1.Store{ObjectMeta: metav1.ObjectMeta{Name: "default", UID: grouptest.Store}}}
	var definitions []runtime.Object
	for _, crd := range annexDefinitions {
		definitions = append(definitions, crd)
		objects = append(objects, &group.HostedResource{ObjectMeta: metav1.ObjectMeta{Name: crd.Name}})
	}
	f := &fixture{
		T: t, mainClient: apiextensionsfake.NewClientset(), annexClient: apiextensionsfake.NewClientset(definitions...),
		mainObjects:  dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{widgetsV1: "WidgetList"}),
		aggregator:   aggregatorfake.NewClientset(apiServices...),
		annexObjects: metadatafake.NewSimpleMetadataClient(scheme), hosting: annexfake.NewClientset(objects...), bundle: &bundle{pem: "CA"},
	}
	f.main, f.annex = f.mainClient.ApiextensionsV1().CustomResourceDefinitions(), f.annexClient.ApiextensionsV1().CustomResourceDefinitions()
	f.apiServices, f.resources = f.aggregator.ApiregistrationV1().APIServices(), f.hosting.HostingV1alpha1().HostedResources()
	f.mainObjects.PrependReactor("get", "stores", f.readStore)
	f.aggregator.PrependReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		switch a := action.(type) {
		case clienttesting.UpdateAction: // create looks the same
			if a.GetSubresource() == "" {
				f.written = append(f.written, f.verb(a)+" "+a.GetObject().(*group.APIService).Name)
			}
		case clienttesting.DeleteAction:
			f.written = append(f.written, "delete "+a.GetName())
		}
		return false, nil, nil
	})
	return f
}

// verb returns "nudge" for an update that only makes the main cluster check again, and the verb otherwise.
func (f *fixture) verb(action clienttesting.UpdateAction) string {
	after := action.GetObject().(*group.APIService)
	before, err := f.aggregator.Tracker().Get(action.GetResource(), "", after.Name)
	if err == nil && before.(*group.APIService).Annotations[hostingv1alpha1.RecheckAnnotation] != after.Annotations[hostingv1alpha1.RecheckAnnotation] {
		return "nudge"
	}
	return action.GetVerb()
}

// run runs a controller until stop is called or the test ends.
func (f *fixture) run() (stop func()) {
	f.Helper()
	aggregator := aggregatorinformers.NewSharedInformerFactory(f.aggregator, 0)
	main := apiextensionsinformers.NewSharedInformerFactory(f.mainClient, 0)
	annex := apiextensionsinformers.NewSharedInformerFactory(f.annexClient, 0)
	hosting := annexinformers.NewSharedInformerFactory(f.hosting, 0)
	c, err := New(Config{
		MainObjects: f.mainObjects, MainAPIServices: f.apiServices, MainDefinitions: f.main,
		MainDefinitionInformer: main.Apiextensions().V1().CustomResourceDefinitions(),
		MainAPIServiceInformer: aggregator.Apiregistration().V1().APIServices(),
		ServedBy:               f.servedBy, Unfreeze: f.unfreeze,
		AnnexObjects: f.annexObjects, AnnexDefinitions: f.annex, AnnexHostedResources: f.resources,
		AnnexMigrations:         f.hosting.HostingV1alpha1().Migrations(),
		AnnexDefinitionInformer: annex.Apiextensions().V1().CustomResourceDefinitions(),
		AnnexHostedInformer:     hosting.Hosting().V1alpha1().HostedResources(),
		AnnexStoreInformer:      hosting.Hosting().V1alpha1().Stores(),
		AnnexMigrationInformer:  hosting.Hosting().V1alpha1().Migrations(),
		Service:                 service, CABundle: f.bundle,
	})
	expect.NoError(f, err)
	stop = controllertest.Run(f.T, c, 3, aggregator, main, annex, hosting)
	synctest.Wait()
	return stop
}

// settled runs the controller until the gate is open.
func (f *fixture) settled() {
	f.Helper()
	f.run()
	f.setAvailable(hostingName, apiregistrationv1.ConditionTrue, "")
	wait(DefaultSettlePeriod)
	f.writes()
}

// readStore answers reads of annex's Store through the main cluster.
func (f *fixture) readStore(clienttesting.Action) (bool, runtime.Object, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	store := &unstructured.Unstructured{Object: map[string]any{}}
	store.SetUID(cmp.Or(f.stranger, grouptest.Store))
	return true, store, f.unproven
}

func (f *fixture) servedBy(ctx context.Context, _ schema.GroupVersion) (string, error) {
	f.mu.Lock()
	hangs, lags := f.hangs, f.lags
	f.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return "", ctx.Err()
	}
	if lags {
		return "", nil
	}
	return grouptest.PublishedBy, nil
}

func (f *fixture) unfreeze(context.Context, string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unfrozen++
	return f.unfreezeErr
}

// set changes a field of the fixture.
func (f *fixture) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// setAvailable sets the condition Available of an APIService.
func (f *fixture) setAvailable(name string, status apiregistrationv1.ConditionStatus, message string) {
	f.Helper()
	current := grouptest.Available(expect.Get(f, f.apiServices, name), status, "Checked", message)
	_, err := f.apiServices.UpdateStatus(f.Context(), current, metav1.UpdateOptions{})
	expect.NoError(f, err)
	synctest.Wait()
}

// edit changes an APIService like another client.
func (f *fixture) edit(name string, edit func(*group.APIService)) {
	f.Helper()
	current := expect.Get(f, f.apiServices, name)
	edit(current)
	expect.Update(f, f.apiServices, current)
	synctest.Wait()
}

// writes returns what was written to the main cluster's APIServices since it was last called.
func (f *fixture) writes() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	written := f.written
	f.written = nil
	return written
}

func (f *fixture) wantWrites(what string, want ...string) {
	f.Helper()
	got := f.writes()
	slices.Sort(got)
	// A second attempt to delete, before the first is seen, finds nothing.
	got = slices.CompactFunc(got, func(a, b string) bool { return a == b && strings.HasPrefix(a, "delete ") })
	slices.Sort(want)
	expect.Equal(f, want, got, "%s: writes", what)
}

func (f *fixture) wantPublished(name, status, reason, message string) {
	f.Helper()
	condition := meta.FindStatusCondition(expect.Get(f, f.resources, name).Status.Conditions, "Published")
	if condition == nil || string(condition.Status) != status || condition.Reason != reason || !strings.Contains(condition.Message, message) {
		f.Errorf("%s has %+v, want %s %s with %q", name, condition, status, reason, message)
	}
}

func (f *fixture) wantSynced(name, reason string) {
	f.Helper()
	if condition := group.SyncedOf(expect.Get(f, f.resources, name)); condition == nil || condition.Reason != reason {
		f.Errorf("hosted resource %s has %+v, want reason %s", name, condition, reason)
	}
}

// define makes a definition in the main cluster, and redefine changes it.
func (f *fixture) define(crd *group.Definition) {
	f.Helper()
	expect.Create(f, f.main, crd)
	wait(time.Second)
}

func (f *fixture) redefine(crd *group.Definition) {
	f.Helper()
	expect.Update(f, f.main, crd)
	wait(time.Second)
}

// isRecorded reports whether the takeover of the widgets is recorded.
func (f *fixture) isRecorded() bool {
	f.Helper()
	of := expect.Get(f, f.resources, widgets).Status.Takeover
	return of != nil && *of == group.TakeoverOf(expect.Get(f, f.annex, widgets))
}

// establish does what annex's server does with a definition.
func (f *fixture) establish(name string) {
	f.Helper()
	crd := expect.Get(f, f.annex, name)
	grouptest.Condition(apiextensionsv1.Established, apiextensionsv1.ConditionTrue, "")(crd)
	_, err := f.annex.UpdateStatus(f.Context(), crd, metav1.UpdateOptions{})
	expect.NoError(f, err)
	wait(time.Second)
}

// ordered is the Migration that the labels order.
func (f *fixture) ordered() *group.Migration {
	f.Helper()
	return expect.Get(f, f.hosting.HostingV1alpha1().Migrations(), groupName+"-hosted")
}

// progress does what the migration controller does.
func (f *fixture) progress(phase hostingv1alpha1.MigrationPhase) {
	f.Helper()
	migration := f.ordered()
	now := metav1.Now()
	migration.Status.StartTime, migration.Status.Phase = &now, phase
	migration.Status.Resources = []hostingv1alpha1.MigrationResourceStatus{{Name: widgets}}
	_, err := f.hosting.HostingV1alpha1().Migrations().UpdateStatus(f.Context(), migration, metav1.UpdateOptions{})
	expect.NoError(f, err)
	wait(time.Second)
}

// prepare makes annex follow the widgets for a Migration.
func (f *fixture) prepare() {
	f.Helper()
	f.define(crd(widgets, labelled))
	f.progress(hostingv1alpha1.MigrationPending)
	f.establish(widgets)
}

// setHosted makes the group one that annex serves.
func (f *fixture) setHosted() {
	f.Helper()
	f.prepare()
	f.progress(hostingv1alpha1.MigrationSwitching)
	f.setAvailable(v1Name, apiregistrationv1.ConditionTrue, "")
	f.progress(hostingv1alpha1.MigrationCompleted)
	f.wantSynced(widgets, group.ReasonSynced)
	f.wantPublished(widgets, "True", "Published", "v1")
	f.writes()
}

func widget(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": groupName + "/v1", "kind": "Widget", "metadata": map[string]any{"name": name, "namespace": "ns"},
	}}
}

func wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}
