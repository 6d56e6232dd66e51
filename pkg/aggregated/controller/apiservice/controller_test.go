// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiservice

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apiextensionsfake "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/fake"
	apiextensionsinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorfake "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/fake"
	aggregatorinformers "k8s.io/kube-aggregator/pkg/client/informers/externalversions"
	"k8s.io/utils/ptr"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/controller/framework/controllertest"
	annexfake "github.com/annex-dev/annex/pkg/generated/clientset/versioned/fake"
	annexinformers "github.com/annex-dev/annex/pkg/generated/informers/externalversions"
	"github.com/annex-dev/annex/pkg/test/expect"
)

const hostingName = "v1alpha1.hosting.annex.dev"

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

// fixture is a main cluster and an annex, as far as a controller sees them.
type fixture struct {
	t                *testing.T
	main             *aggregatorfake.Clientset
	mainDefinitions  *apiextensionsfake.Clientset
	annex            *annexfake.Clientset
	annexDefinitions *apiextensionsfake.Clientset
	bundle           *bundle

	mu sync.Mutex
	// stranger answers through the main cluster in annex's place.
	stranger types.UID
	unproven error
	// lags: the main cluster answers for every group itself, whatever it contains.
	lags    bool
	written []string
}

func newFixture(t *testing.T, mainObjects []runtime.Object, annexDefinitions, mainDefinitions []*definition) *fixture {
	w := &fixture{
		t:                t,
		main:             aggregatorfake.NewClientset(mainObjects...),
		mainDefinitions:  apiextensionsfake.NewClientset(objects(mainDefinitions)...),
		annexDefinitions: apiextensionsfake.NewClientset(objects(annexDefinitions)...),
		bundle:           &bundle{pem: "CA"},
	}
	annexObjects := []runtime.Object{&hostingv1alpha1.Store{ObjectMeta: metav1.ObjectMeta{Name: "default", UID: "store-uid"}}}
	for _, crd := range annexDefinitions {
		annexObjects = append(annexObjects, &hosted{ObjectMeta: metav1.ObjectMeta{Name: crd.Name}})
	}
	w.annex = annexfake.NewClientset(annexObjects...)
	w.main.PrependReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		switch a := action.(type) {
		case clienttesting.UpdateAction: // create looks the same
			if a.GetSubresource() == "" {
				w.written = append(w.written, w.verb(a)+" "+a.GetObject().(*apiService).Name)
			}
		case clienttesting.DeleteAction:
			w.written = append(w.written, "delete "+a.GetName())
		}
		return false, nil, nil
	})
	return w
}

// verb tells an update that does nothing but have the main cluster look again.
func (w *fixture) verb(action clienttesting.UpdateAction) string {
	after := action.GetObject().(*apiService)
	before, err := w.main.Tracker().Get(action.GetResource(), "", after.Name)
	if err == nil && before.(*apiService).Annotations[hostingv1alpha1.RecheckAnnotation] != after.Annotations[hostingv1alpha1.RecheckAnnotation] {
		return "nudge"
	}
	return action.GetVerb()
}

func objects(definitions []*definition) []runtime.Object {
	var all []runtime.Object
	for _, crd := range definitions {
		all = append(all, crd)
	}
	return all
}

// run runs a controller until stop is called or the test ends.
func (w *fixture) run() (stop func()) {
	w.t.Helper()
	mainInformers := aggregatorinformers.NewSharedInformerFactory(w.main, 0)
	mainDefinitions := apiextensionsinformers.NewSharedInformerFactory(w.mainDefinitions, 0)
	annexDefinitions := apiextensionsinformers.NewSharedInformerFactory(w.annexDefinitions, 0)
	annexHosting := annexinformers.NewSharedInformerFactory(w.annex, 0)
	c, err := New(Config{
		MainAPIServices:         w.main.ApiregistrationV1().APIServices(),
		ReadStoreThroughMain:    w.readStore,
		ServedBy:                w.answeredBy,
		AnnexDefinitions:        w.annexDefinitions.ApiextensionsV1().CustomResourceDefinitions(),
		AnnexHostedResources:    w.annex.HostingV1alpha1().HostedResources(),
		MainAPIServiceInformer:  mainInformers.Apiregistration().V1().APIServices(),
		MainDefinitionInformer:  mainDefinitions.Apiextensions().V1().CustomResourceDefinitions(),
		AnnexDefinitionInformer: annexDefinitions.Apiextensions().V1().CustomResourceDefinitions(),
		AnnexHostedInformer:     annexHosting.Hosting().V1alpha1().HostedResources(),
		AnnexStoreInformer:      annexHosting.Hosting().V1alpha1().Stores(),
		Service:                 ourService,
		CABundle:                w.bundle,
	})
	expect.NoError(w.t, err)
	stop = controllertest.Run(w.t, c, 3, mainInformers, mainDefinitions, annexDefinitions, annexHosting)
	synctest.Wait()
	return stop
}

func (w *fixture) readStore(context.Context) (types.UID, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stranger != "" {
		return w.stranger, w.unproven
	}
	return "store-uid", w.unproven
}

func (w *fixture) answeredBy(context.Context, schema.GroupVersion) (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lags {
		return "", nil
	}
	return ours.publishedBy(), nil
}

func (w *fixture) lag(lags bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lags = lags
}

func (w *fixture) get(name string) *apiService {
	w.t.Helper()
	current, err := w.main.ApiregistrationV1().APIServices().Get(w.t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	expect.NoError(w.t, err)
	return current
}

// wantPublished sets the condition Available of an APIService.
func (w *fixture) wantPublished(name string, status apiregistrationv1.ConditionStatus, message string) {
	w.t.Helper()
	current := w.get(name)
	if current == nil {
		w.t.Fatalf("there is no APIService %s", name)
	}
	current.Status.Conditions = []apiregistrationv1.APIServiceCondition{{Type: apiregistrationv1.Available, Status: status, Reason: "Checked", Message: message}}
	if _, err := w.main.ApiregistrationV1().APIServices().UpdateStatus(w.t.Context(), current, metav1.UpdateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	synctest.Wait()
}

// another client edits an APIService.
func (w *fixture) edit(name string, edit func(*apiService)) {
	w.t.Helper()
	current := w.get(name)
	edit(current)
	expect.Update(w.t, w.main.ApiregistrationV1().APIServices(), current)
	synctest.Wait()
}

// writes returns what was written to the main cluster since it was last called.
func (w *fixture) writes() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	written := w.written
	w.written = nil
	return written
}

func (w *fixture) wantWrites(what string, want ...string) {
	w.t.Helper()
	got := w.writes()
	slices.Sort(got)
	// A second attempt to delete, before the first is seen, finds nothing.
	got = slices.CompactFunc(got, func(a, b string) bool { return a == b && strings.HasPrefix(a, "delete ") })
	slices.Sort(want)
	expect.Equal(w.t, want, got, "%s: writes", what)
}

func (w *fixture) wantCondition(name, status, reason, message string) {
	w.t.Helper()
	got := expect.Get(w.t, w.annex.HostingV1alpha1().HostedResources(), name)
	condition := meta.FindStatusCondition(got.Status.Conditions, "Published")
	if condition == nil || string(condition.Status) != status || condition.Reason != reason || !strings.Contains(condition.Message, message) {
		w.t.Errorf("%s has %+v, want %s %s with %q", name, condition, status, reason, message)
	}
}

func wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// settled brings up a fixture to where the gate is open.
func (w *fixture) settled() {
	w.t.Helper()
	w.run()
	w.wantPublished(hostingName, apiregistrationv1.ConditionTrue, "")
	wait(DefaultSettlePeriod)
	w.writes()
}

func TestHostingComesFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t, nil, []*definition{crd(widgets, "v1", "v2"), crd("things.other.org", "v1")}, nil)
		w.unproven = errors.New("bad gateway")
		w.run()
		w.wantWrites("at start", "create "+hostingName)
		w.wantCondition(widgets, "False", "WaitingForAnnex", notCheckedMessage)
		wait(time.Minute)
		w.wantPublished(hostingName, apiregistrationv1.ConditionFalse, "connection refused")
		wait(time.Minute)
		w.wantCondition(widgets, "False", "WaitingForAnnex", "connection refused")
		w.wantWrites("while it is not reached", slices.Repeat([]string{"nudge " + hostingName}, maxRechecks)...)
		w.wantPublished(hostingName, apiregistrationv1.ConditionTrue, "")
		wait(time.Minute)
		w.wantCondition(widgets, "False", "WaitingForAnnex", "bad gateway")

		w.mu.Lock()
		w.stranger, w.unproven = "another-uid", nil
		w.mu.Unlock()
		wait(time.Minute)
		w.wantCondition(widgets, "False", "WaitingForAnnex", "Another annex answers")

		w.mu.Lock()
		w.stranger = ""
		w.mu.Unlock()
		wait(probeInterval)
		w.wantWrites("before it settled")
		wait(DefaultSettlePeriod - time.Second)
		w.wantPublished(hostingName, apiregistrationv1.ConditionFalse, "one bad moment")
		w.wantPublished(hostingName, apiregistrationv1.ConditionTrue, "")
		wait(DefaultSettlePeriod - time.Second)
		w.wantWrites("before it settled for long enough")
		wait(time.Second)
		w.wantWrites("settled", "create v1.example.com", "create v2.example.com", "create v1.other.org")

		w.wantPublished("v1.example.com", apiregistrationv1.ConditionTrue, "")
		w.wantCondition(widgets, "False", "Unavailable", "v2: "+notCheckedMessage)
		w.wantPublished("v2.example.com", apiregistrationv1.ConditionTrue, "")
		w.wantCondition(widgets, "True", "Published", "v2, v1")
		w.wantPublished("v1.example.com", apiregistrationv1.ConditionFalse, "no route to host")
		w.wantCondition(widgets, "False", "Unavailable", "no route to host")
		w.wantCondition("things.other.org", "False", "Unavailable", notCheckedMessage)
	})
}

func TestHealing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t, nil, []*definition{crd(widgets, "v1")}, nil)
		w.settled()
		wait(writeInterval)
		right := w.get("v1.example.com")
		for what, edit := range map[string]func(*apiService){
			"wrong port":    func(a *apiService) { a.Spec.Service.Port = ptr.To[int32](1) },
			"wrong service": func(a *apiService) { a.Spec.Service.Name = "other" },
			"wrong CA":      func(a *apiService) { a.Spec.CABundle = []byte("other") },
			"not verified":  func(a *apiService) { a.Spec.CABundle, a.Spec.InsecureSkipTLSVerify = nil, true },
			"local":         func(a *apiService) { a.Spec.CABundle, a.Spec.Service = nil, nil },
			"automanaged":   func(a *apiService) { metav1.SetMetaDataLabel(&a.ObjectMeta, automanagedLabel, "true") },
		} {
			w.edit("v1.example.com", edit)
			w.wantWrites(what, "update v1.example.com", "update v1.example.com")
			expect.Equal(t, right.Spec, w.get("v1.example.com").Spec, "%s: not put right", what)
			wait(writeInterval)
		}
		expect.Delete(t, w.main.ApiregistrationV1().APIServices(), "v1.example.com")
		synctest.Wait()
		w.wantWrites("deleted", "delete v1.example.com", "create v1.example.com")

		// Repeated changes are not reverted immediately each time.
		for range 100 {
			w.edit("v1.example.com", func(a *apiService) { a.Spec.Service.Port = ptr.To[int32](1) })
			wait(50 * time.Millisecond)
		}
		wait(time.Second)
		if again := len(w.writes()) - 100; again < 5 || again > 7 {
			t.Errorf("put right %d times in 6 s", again)
		}
		expect.Equal(t, right.Spec, w.get("v1.example.com").Spec, "not put right in the end")
		// Users may change priorities.
		w.edit("v1.example.com", func(a *apiService) { a.Spec.GroupPriorityMinimum = 1500 })
		w.wantWrites("another priority", "update v1.example.com")
	})
}

func TestCABundleGoesToHostingFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t, nil, []*definition{crd(widgets, "v1")}, nil)
		w.settled()
		wait(writeInterval)
		w.bundle.change("new CA")
		synctest.Wait()
		w.wantWrites("at once", "update "+hostingName)
		w.wantPublished(hostingName, apiregistrationv1.ConditionFalse, "x509: unknown authority")
		wait(time.Minute)
		w.wantWrites("while the new one does not work", slices.Repeat([]string{"nudge " + hostingName}, maxRechecks)...)
		w.bundle.change("right CA")
		synctest.Wait()
		w.wantPublished(hostingName, apiregistrationv1.ConditionTrue, "")
		wait(staleStatusPeriod + probeInterval)
		w.wantWrites("when it works", "update "+hostingName, "update v1.example.com")
		if got := string(w.get("v1.example.com").Spec.CABundle); got != "right CA" {
			t.Errorf("caBundle is %q", got)
		}
	})
}

func TestComingBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hosting := publishedAs(ours, hostingVersion, apiregistrationv1.ConditionFalse, "refused")
		v1 := publishedAs(ours, schema.GroupVersion{Group: group, Version: "v1"}, apiregistrationv1.ConditionFalse, "refused")
		definitions := []*definition{crd(widgets, "v1")}
		viewOf(definitions, nil).nameResources(v1, "v1")
		w := newFixture(t, []runtime.Object{hosting, v1}, definitions, nil)
		w.run()
		w.wantWrites("at once")
		wait(firstRecheckDelay)
		w.wantWrites("annex's own group first", "nudge "+hostingName)
		wait(2 * firstRecheckDelay)
		w.wantWrites("again", "nudge "+hostingName)
		w.wantPublished(hostingName, apiregistrationv1.ConditionTrue, "")
		w.wantWrites("the others as soon as annex is reached", "nudge v1.example.com")
		w.wantPublished("v1.example.com", apiregistrationv1.ConditionTrue, "")
		wait(time.Minute)
		w.wantWrites("when all is well")
		w.wantCondition(widgets, "True", "Published", "v1")
	})
}

func TestTheSecondAnnexPublishesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		first := publishedAs(template{service: Service{Namespace: "first", Name: "annex", Port: 443}, caBundle: []byte("CA")},
			hostingVersion, apiregistrationv1.ConditionTrue, "")
		w := newFixture(t, []runtime.Object{first}, []*definition{crd(widgets, "v1")}, nil)
		w.run()
		wait(time.Minute)
		w.wantWrites("the second annex")
		w.wantCondition(widgets, "False", "ForeignAPIService", "Service first/annex")
	})
}

func TestTakingOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t, []runtime.Object{localOf("v1")}, []*definition{crd(widgets, "v1")}, []*definition{labelled(crd(widgets, "v1"))})
		w.settled()
		wait(time.Minute)
		w.wantWrites("not cleared")
		w.wantCondition(widgets, "False", "GroupInMain", widgets)
		annexDefinitions := w.annexDefinitions.ApiextensionsV1().CustomResourceDefinitions()
		expect.Update(t, annexDefinitions, follower(crd(widgets, "v1")))
		wait(time.Minute)
		w.wantWrites("followed, not cleared")
		w.clear(takeover(follower(crd(widgets, "v1"))).Status.Takeover)
		w.wantWrites("cleared", "update v1.example.com")
		w.wantCondition(widgets, "False", "Unavailable", notCheckedMessage)
		w.lag(true)
		w.wantPublished("v1.example.com", apiregistrationv1.ConditionTrue, "")
		w.wantCondition(widgets, "False", "Unavailable", "")
		w.lag(false)
		wait(routingProbeInterval)
		w.wantCondition(widgets, "True", "Published", "v1")

		// As when whoever cleared it sees an object that slipped in.
		w.clear(nil)
		w.edit("v1.example.com", func(a *apiService) { *a = *localOf("v1") })
		wait(time.Minute)
		w.wantWrites("given back", "update v1.example.com")
		w.wantCondition(widgets, "False", "GroupInMain", widgets)
	})
}

// clear writes the takeover of the widgets.
func (w *fixture) clear(takeover *hostingv1alpha1.HostedResourceTakeover) {
	w.t.Helper()
	resources := w.annex.HostingV1alpha1().HostedResources()
	resource, err := resources.Get(w.t.Context(), widgets, metav1.GetOptions{})
	if err == nil {
		resource.Status.Takeover = takeover
		_, err = resources.UpdateStatus(w.t.Context(), resource, metav1.UpdateOptions{})
	}
	expect.NoError(w.t, err)
	synctest.Wait()
}

func TestAClearanceThatIsNoMoreIsNotUsed(t *testing.T) {
	t.Parallel()
	r := unwritten(t, cleared(crd(widgets, "v1")))
	v := viewOf([]*definition{cleared(crd(widgets, "v1"))}, []*definition{labelled(crd(widgets, "v1"))}, localOf("v1"))
	err := r.confirmAndWrite(t.Context(), v, schema.GroupVersion{Group: group, Version: "v1"}, decide(v, "v1", ours, opened))
	expect.Error(t, err, "no longer cleared")
}

func TestRemoving(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		old := template{service: ourService, caBundle: []byte("CA"), store: "old-data"}
		kept := publishedAs(old, schema.GroupVersion{Group: "kept.org", Version: "v1"}, apiregistrationv1.ConditionTrue, "")
		left := publishedAs(ours, schema.GroupVersion{Group: "left.org", Version: "v1"}, apiregistrationv1.ConditionTrue, "")
		w := newFixture(t, []runtime.Object{kept, left}, []*definition{crd(widgets, "v1"), crd(gadgets, "v1", "v2")}, nil)
		w.run()
		w.wantWrites("what was left behind", "delete v1.left.org", "create "+hostingName)
		w.wantPublished(hostingName, apiregistrationv1.ConditionTrue, "")
		wait(DefaultSettlePeriod)
		w.wantWrites("settled", "create v1.example.com", "create v2.example.com")

		annexDefinitions := w.annexDefinitions.ApiextensionsV1().CustomResourceDefinitions()
		expect.Delete(t, annexDefinitions, gadgets)
		synctest.Wait()
		w.wantWrites("one of two definitions gone", "delete v2.example.com")
		w.wantCondition(gadgets, "False", "NotServed", gadgets)
		expect.Delete(t, annexDefinitions, widgets)
		synctest.Wait()
		w.wantWrites("both definitions gone", "delete v1.example.com")
	})
}

// unwritten returns a reconciler that must not write to the main cluster, with
// definitions in annex's API whose takeover is not cleared.
func unwritten(t *testing.T, live ...*definition) *reconciler {
	main := aggregatorfake.NewClientset()
	main.PrependReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		t.Errorf("%s in the main cluster", action.GetVerb())
		return true, nil, nil
	})
	return &reconciler{
		annexDefinitions:     apiextensionsfake.NewClientset(objects(live)...).ApiextensionsV1().CustomResourceDefinitions(),
		annexHostedResources: annexfake.NewClientset(resource(widgets)).HostingV1alpha1().HostedResources(),
		mainAPIServices:      main.ApiregistrationV1().APIServices(),
	}
}

func TestALaggingCacheRemovesNothing(t *testing.T) {
	t.Parallel()
	expect.NoError(t, unwritten(t, crd(widgets, "v1")).remove(t.Context(), viewOf(nil, nil, available("v1")), "v1"))
}

func TestNothingIsRemovedWhileDefinitionsAreUnknown(t *testing.T) {
	t.Parallel()
	r := unwritten(t)
	failing := apiextensionsfake.NewClientset()
	failing.PrependReactor("list", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("shutting down")
	})
	r.annexDefinitions = failing.ApiextensionsV1().CustomResourceDefinitions()
	if err := r.remove(t.Context(), viewOf(nil, nil, available("v1")), "v1"); err == nil {
		t.Error("no error")
	}
}

func TestStoppingChangesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t, nil, []*definition{crd(widgets, "v1")}, nil)
		stop := w.run()
		w.wantPublished(hostingName, apiregistrationv1.ConditionTrue, "")
		wait(DefaultSettlePeriod)
		w.writes()
		before := w.get("v1.example.com")
		stop()
		w.wantWrites("stopped")
		expect.Equal(t, before, w.get("v1.example.com"), "changed")
		// The next term has nothing to write, and waits for nothing to mend.
		w.run()
		w.edit("v1.example.com", func(a *apiService) { a.Spec.CABundle = []byte("other") })
		w.wantWrites("next term", "update v1.example.com", "update v1.example.com")
	})
}

func TestAnAPIServiceThatIsNotWritten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t, nil, []*definition{crd(widgets, "v1")}, nil)
		w.main.PrependReactor("create", "apiservices", func(action clienttesting.Action) (bool, runtime.Object, error) {
			name := action.(clienttesting.CreateAction).GetObject().(*apiService).Name
			if name == hostingName {
				return false, nil, nil
			}
			return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "apiservices"}, name, errors.New("no such right"))
		})
		w.settled()
		w.wantCondition(widgets, "False", "WriteFailed", "no such right")
	})
}

func TestWithoutCertificatesNothingIsPublished(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t, nil, []*definition{crd(widgets, "v1")}, nil)
		w.bundle.change("")
		w.run()
		wait(time.Minute)
		w.wantWrites("without")
		w.wantCondition(widgets, "False", "WaitingForAnnex", "certificates")
		w.bundle.change("CA")
		synctest.Wait()
		w.wantWrites("with", "create "+hostingName)
	})
}
