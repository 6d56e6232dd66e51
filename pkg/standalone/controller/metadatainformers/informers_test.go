// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package metadatainformers

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsfake "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/fake"
	apiextensionsinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/annex-dev/annex/pkg/controller/framework/controllertest"
	"github.com/annex-dev/annex/pkg/test/crds"
	"github.com/annex-dev/annex/pkg/test/expect"
)

var (
	configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	widgets    = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
)

// newDefinition returns the established definition of Widgets.
func newDefinition(uid types.UID) *apiextensionsv1.CustomResourceDefinition {
	crd := crds.Established(crds.New("example.com", "widgets", "v2", "v1", "v0"))
	crd.UID = uid
	crd.Spec.Versions[0].Storage, crd.Spec.Versions[1].Storage, crd.Spec.Versions[2].Served = false, true, false
	return crd
}

func newObject(apiVersion, kind, namespace, name, uid string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: apiVersion, Kind: kind},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(uid)},
	}
}

func newWidget(name, uid string) *metav1.PartialObjectMetadata {
	return newObject("example.com/v1", "Widget", "team", name, uid)
}

// recorder records events.
type recorder struct {
	mu    sync.Mutex
	lines []string
}

func (r *recorder) note(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, fmt.Sprintf(format, args...))
}

func (r *recorder) Added(resource Resource, o *Object) {
	r.note("added %s %s", resource.Resource, o.UID)
}

func (r *recorder) Updated(resource Resource, before, after *Object) {
	r.note("updated %s %s owners %d->%d", resource.Resource, after.UID, len(before.Owners), len(after.Owners))
}

func (r *recorder) Deleted(resource Resource, o *Object) {
	r.note("deleted %s %s", resource.Resource, o.UID)
}
func (r *recorder) Synced(resource Resource) {
	r.note("synced %s", resource.Resource)
}

func (r *recorder) Dropped(resource Resource, objects iter.Seq[*Object]) {
	r.note("dropped %s with %d", resource.Resource, len(slices.Collect(objects)))
}

// told returns what was noted since the last time, about one resource.
func (r *recorder) told(resource string) []string {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	var told, other []string
	for _, line := range r.lines {
		if strings.Contains(line, resource) {
			told = append(told, line)
		} else {
			other = append(other, line)
		}
	}
	r.lines = other
	return told
}

func (r *recorder) want(t *testing.T, resource string, want ...string) {
	t.Helper()
	expect.Equal(t, want, r.told(resource), "events of handlers")
}

// server fakes annex for Informers.
type server struct {
	*Informers
	recorder
	annexMetadata   *metadatafake.FakeMetadataClient
	annexExtensions *apiextensionsfake.Clientset
	lists           []*metav1.APIResourceList

	// answers guards what the server answers, where a test changes that.
	answers     sync.Mutex
	discoveries int
	discoverErr error
	silent      bool
	stored      func(schema.GroupResource) (int64, bool)
}

// startServer runs Informers until the test ends.
func startServer(t *testing.T, definitions []runtime.Object, objects []runtime.Object, prepare ...func(*server)) *server {
	t.Helper()
	scheme := metadatafake.NewTestScheme()
	expect.NoError(t, metav1.AddMetaToScheme(scheme))
	all := metav1.Verbs{"get", "list", "watch", "delete"}
	s := &server{
		annexMetadata:   metadatafake.NewSimpleMetadataClient(scheme, objects...),
		annexExtensions: apiextensionsfake.NewClientset(definitions...),
		lists: []*metav1.APIResourceList{
			{GroupVersion: "v1", APIResources: []metav1.APIResource{
				{Name: "configmaps", Kind: "ConfigMap", Namespaced: true, Verbs: all},
				{Name: "configmaps/status", Kind: "ConfigMap", Namespaced: true, Verbs: all},
				{Name: "events", Kind: "Event", Namespaced: true, Verbs: all},
				{Name: "tokenreviews", Kind: "TokenReview", Verbs: metav1.Verbs{"create"}},
			}},
			{GroupVersion: "example.com/v2", APIResources: []metav1.APIResource{{Name: "widgets", Kind: "Widget", Namespaced: true, Verbs: all}}},
		},
	}
	for _, p := range prepare {
		p(s)
	}
	factory := apiextensionsinformers.NewSharedInformerFactory(s.annexExtensions, 0)
	var err error
	s.Informers, err = New(Config{
		AnnexMetadata: s.annexMetadata,
		Discover: func(context.Context) ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
			s.answers.Lock()
			defer s.answers.Unlock()
			s.discoveries++
			return nil, s.lists, s.discoverErr
		},
		CustomResourceDefinitions: factory.Apiextensions().V1().CustomResourceDefinitions(),
		Stored:                    s.stored,
	})
	expect.NoError(t, err)
	if !s.silent {
		s.AddHandler(&s.recorder)
	}
	controllertest.Start(t, s.Run, factory)
	return s
}

// answer changes what the server answers from now on.
func (s *server) answer(change func()) {
	s.answers.Lock()
	defer s.answers.Unlock()
	change()
}

// discovered returns the number of discovery requests.
func (s *server) discovered() int {
	s.answers.Lock()
	defer s.answers.Unlock()
	return s.discoveries
}

// HasSynced reports whether all objects of all resources are known.
func (s *server) HasSynced() bool {
	states := s.States()
	return len(states) > 0 && !slices.ContainsFunc(states, func(state State) bool { return !state.Synced })
}

// pause lets time pass, more than any wait takes that is part of following.
func pause() {
	time.Sleep(time.Second)
	synctest.Wait()
}

func (s *server) define(t *testing.T, uid types.UID) {
	t.Helper()
	expect.Create(t, s.annexExtensions.ApiextensionsV1().CustomResourceDefinitions(), newDefinition(uid))
	pause()
}

func (s *server) undefine(t *testing.T) {
	t.Helper()
	expect.Delete(t, s.annexExtensions.ApiextensionsV1().CustomResourceDefinitions(), "widgets.example.com")
	pause()
}

func (s *server) do(t *testing.T, err error) {
	t.Helper()
	expect.NoError(t, err)
	pause()
}

func TestTellsWhatChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := startServer(t, []runtime.Object{newDefinition("d1")}, []runtime.Object{
			newObject("v1", "ConfigMap", "team", "a", "1"), newObject("v1", "ConfigMap", "other", "a", "2"),
		})
		pause()
		told := s.told("configmaps")
		slices.Sort(told)
		expect.Equal(t, []string{"added configmaps 1", "added configmaps 2", "synced configmaps"}, told, "events of handlers")
		s.want(t, "widgets", "synced widgets")
		if !s.HasSynced() || s.discovered() != 1 {
			t.Errorf("synced %t after %d discoveries, want all synced after one", s.HasSynced(), s.discovered())
		}

		tracker := s.annexMetadata.Tracker()
		widget := newWidget("w", "3")
		s.do(t, tracker.Create(widgets, widget, "team"))
		widget = widget.DeepCopy()
		widget.Annotations = map[string]string{"not": "kept"}
		s.do(t, tracker.Update(widgets, widget, "team"))
		widget = widget.DeepCopy()
		widget.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "a", UID: "1"}}
		s.do(t, tracker.Update(widgets, widget, "team"))
		if got := s.Get(widgets.GroupResource(), "team", "w"); got == nil || len(got.Owners) != 1 || got.Owners[0].UID != "1" {
			t.Errorf("kept is %+v, want the owner 1", got)
		}
		if got := s.Find(widgets.GroupResource(), "w", "3"); got == nil {
			t.Error("not found by name and UID")
		}
		if got := s.Find(widgets.GroupResource(), "w", "4"); got != nil {
			t.Errorf("found %+v with another UID", got)
		}
		// One of the same name takes its place.
		replaced := newWidget("w", "4")
		s.do(t, tracker.Update(widgets, replaced, "team"))
		s.do(t, tracker.Delete(widgets, "team", "w"))
		s.want(t, "widgets", "added widgets 3", "updated widgets 3 owners 0->1", "deleted widgets 3", "added widgets 4", "deleted widgets 4")
	})
}

func TestKnowsKinds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := startServer(t, []runtime.Object{newDefinition("d1")}, nil)
		pause()
		want := Resource{GroupVersionResource: widgets, Kind: "Widget", Namespaced: true}
		for kind, served := range map[string]bool{"Widget": true, "widget": true, "WIDGET": false, "WidgetList": false, "Widgets": false, "Gadget": false} {
			got, ok := s.ResourceFor(schema.GroupKind{Group: "example.com", Kind: kind})
			if ok != served || served && got != want {
				t.Errorf("kind %s: %+v, served %t, want %t", kind, got, ok, served)
			}
		}
		if got, ok := s.ResourceFor(schema.GroupKind{Kind: "Widget"}); ok {
			t.Errorf("the kind without its group is %+v", got)
		}
		var names []string
		for _, state := range s.States() {
			names = append(names, state.GroupResource().String())
			if !state.Current || state.Err != nil {
				t.Errorf("%s is %+v, want it current", state.GroupResource(), state)
			}
		}
		expect.Equal(t, []string{"configmaps", "widgets.example.com"}, names, "followed are")
	})
}

func TestFollowsDefinitions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := startServer(t, nil, nil, func(s *server) { s.lists = s.lists[:1] })
		pause()
		s.define(t, "d1")
		s.do(t, s.annexMetadata.Tracker().Create(widgets, newWidget("w", "1"), "team"))
		s.want(t, "widgets", "synced widgets", "added widgets 1")

		// The objects go first, but may be seen to go last.
		s.undefine(t)
		s.do(t, s.annexMetadata.Tracker().Delete(widgets, "team", "w"))
		s.want(t, "widgets", "deleted widgets 1", "dropped widgets with 0")
		if _, served := s.State(widgets.GroupResource()); served {
			t.Error("widgets are followed after their definition went")
		}

		s.define(t, "d2")
		s.do(t, s.annexMetadata.Tracker().Create(widgets, newWidget("w", "2"), "team"))
		s.undefine(t)
		s.want(t, "widgets", "synced widgets", "added widgets 2")
		s.define(t, "d3")
		s.want(t, "widgets", "dropped widgets with 1", "added widgets 2", "synced widgets")
		s.undefine(t)
		time.Sleep(keepPeriod)
		s.want(t, "widgets", "dropped widgets with 1")
		if s.discovered() != 1 {
			t.Errorf("discovered %d times, want once", s.discovered())
		}
	})
}

// TestMissedDeletions: the server may end a watch with the definition, before it sent all deletions.
func TestMissedDeletions(t *testing.T) {
	t.Parallel()
	for left, want := range map[int64][]string{0: {"deleted widgets 1", "dropped widgets with 0"}, 1: {"dropped widgets with 1"}} {
		t.Run(fmt.Sprintf("%d objects are stored", left), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var stored atomic.Int64
				stored.Store(1)
				s := startServer(t, []runtime.Object{newDefinition("d1")}, []runtime.Object{newWidget("w", "1")}, func(s *server) {
					s.lists = s.lists[:1]
					s.stored = func(schema.GroupResource) (int64, bool) { return stored.Load(), true }
				})
				pause()
				s.want(t, "widgets", "added widgets 1", "synced widgets")
				s.undefine(t)
				stored.Store(left)
				time.Sleep(keepPeriod)
				s.want(t, "widgets", want...)
			})
		})
	}
}

func TestBrokenResourceHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var repaired atomic.Bool
		refuse := func(clienttesting.Action) (bool, runtime.Object, error) {
			return !repaired.Load(), nil, errors.New("conversion webhook failed")
		}
		s := startServer(t, []runtime.Object{newDefinition("d1")}, []runtime.Object{newWidget("w", "1")}, func(s *server) {
			s.annexMetadata.PrependReactor("list", "widgets", refuse)
		})
		pause()
		if s.HasSynced() {
			t.Error("all is synced although one cannot be read")
		}
		state, _ := s.State(widgets.GroupResource())
		if state.Synced || state.Current || state.Err == nil {
			t.Errorf("what cannot be read is %+v", state)
		}
		if state, _ := s.State(configMaps.GroupResource()); !state.Current {
			t.Errorf("what can be read is %+v", state)
		}
		select {
		case <-s.Settled().Done():
			t.Error("settled at once")
		default:
		}
		time.Sleep(settlePeriod)
		synctest.Wait()
		select {
		case <-s.Settled().Done():
		default:
			t.Error("not settled in time")
		}
		repaired.Store(true)
		time.Sleep(time.Minute)
		s.want(t, "widgets", "added widgets 1", "synced widgets")
		if !s.HasSynced() {
			t.Error("not all is synced although all can be read")
		}
	})
}

func TestRetriesDiscovery(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(*server){
		"an error":    func(s *server) { s.discoverErr = errors.New("not now") },
		"an omission": func(s *server) { s.lists = nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var lists []*metav1.APIResourceList
				s := startServer(t, nil, nil, func(s *server) {
					lists = s.lists
					prepare(s)
				})
				pause()
				if s.HasSynced() {
					t.Error("synced without knowing what there is")
				}
				s.answer(func() { s.discoverErr, s.lists = nil, lists })
				time.Sleep(time.Minute)
				s.want(t, "configmaps", "synced configmaps")
			})
		})
	}
}

// Discovery may still list a custom resource whose definition just went.
func TestForgetsWhatDiscoveryListedWrongly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := startServer(t, nil, nil, func(s *server) {
			gone := func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, apierrors.NewNotFound(widgets.GroupResource(), "")
			}
			s.annexMetadata.PrependReactor("list", "widgets", gone)
		})
		pause()
		if _, served := s.State(widgets.GroupResource()); !served {
			t.Error("what discovery listed is not followed")
		}
		s.answer(func() { s.lists = s.lists[:1] })
		time.Sleep(time.Minute)
		synctest.Wait()
		if _, served := s.State(widgets.GroupResource()); served || !s.HasSynced() {
			t.Errorf("followed: %t, synced: %t, want what is not there forgotten", served, s.HasSynced())
		}
	})
}

// A custom resource without objects costs the server nothing.
func TestSleepsUntilThereAreObjects(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var objects atomic.Int64
		var known atomic.Bool
		s := startServer(t, []runtime.Object{newDefinition("d1")}, nil, func(s *server) {
			s.stored = func(schema.GroupResource) (int64, bool) { return objects.Load(), known.Load() }
		})
		pause()
		if state, _ := s.State(widgets.GroupResource()); state.Synced || state.Current {
			t.Errorf("before it is known whether there are objects it is %+v", state)
		}
		known.Store(true)
		s.AllUsageChanged()
		pause()
		if state, _ := s.State(widgets.GroupResource()); !state.Synced || !state.Current {
			t.Errorf("without objects it is %+v", state)
		}
		for _, action := range s.annexMetadata.Actions() {
			if action.GetResource() == widgets {
				t.Errorf("without objects there was a %s", action.GetVerb())
			}
		}
		objects.Store(1)
		if state, _ := s.State(widgets.GroupResource()); state.Current {
			t.Errorf("before the first object is seen it is %+v", state)
		}
		expect.NoError(t, s.annexMetadata.Tracker().Create(widgets, newWidget("w", "1"), "team"))
		s.UsageChanged(configMaps.GroupResource())
		s.UsageChanged(widgets.GroupResource())
		pause()
		s.want(t, "widgets", "synced widgets", "added widgets 1")
		if state, _ := s.State(widgets.GroupResource()); !state.Current {
			t.Errorf("with an object it is %+v", state)
		}
		s.UsageChanged(widgets.GroupResource())
		s.undefine(t)
		s.UsageChanged(widgets.GroupResource())
		s.want(t, "widgets")
	})
}

func TestRunsForNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := startServer(t, nil, nil, func(s *server) { s.silent = true })
		pause()
		if s.discovered() != 0 || len(s.annexMetadata.Actions()) != 0 {
			t.Error("objects were read without a handler")
		}
	})
}

// TestPhases has what happens to a resource, and whether its objects are current afterwards.
func TestPhases(t *testing.T) {
	t.Parallel()
	list, replaced := func(f *follower) { f.set(listing) }, (*follower).replaced
	opened, closed := (*follower).opened, (*follower).closed
	for name, test := range map[string]struct {
		events          []func(*follower)
		synced, current bool
	}{
		"listing":                 {[]func(*follower){list}, false, false},
		"listed":                  {[]func(*follower){list, replaced}, true, false},
		"watched":                 {[]func(*follower){list, replaced, opened}, true, true},
		"watch ended":             {[]func(*follower){list, replaced, opened, closed}, true, false},
		"watched again":           {[]func(*follower){list, replaced, opened, closed, opened}, true, true},
		"listed again":            {[]func(*follower){list, replaced, opened, closed, list}, true, false},
		"streaming":               {[]func(*follower){list, opened}, false, false},
		"streamed":                {[]func(*follower){list, opened, replaced}, true, true},
		"stream ended too early":  {[]func(*follower){list, opened, closed, replaced}, true, false},
		"stream ended afterwards": {[]func(*follower){list, opened, replaced, closed}, true, false},
	} {
		f := newFollower(served{}, nil)
		for _, happens := range test.events {
			happens(f)
		}
		if state := f.state(); state.Synced != test.synced || state.Current != test.current {
			t.Errorf("%s: synced %t, current %t, want %t, %t", name, state.Synced, state.Current, test.synced, test.current)
		}
	}
}
