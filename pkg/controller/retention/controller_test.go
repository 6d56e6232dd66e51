// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package retention

import (
	"context"
	"errors"
	"fmt"
	"maps"
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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/controller/framework/controllertest"
	annexfake "github.com/annex-dev/annex/pkg/generated/clientset/versioned/fake"
	annexinformers "github.com/annex-dev/annex/pkg/generated/informers/externalversions"
	"github.com/annex-dev/annex/pkg/storage/archive"
	"github.com/annex-dev/annex/pkg/test/crds"
	"github.com/annex-dev/annex/pkg/test/expect"
)

const widgets = "widgets.example.com"

// fakeObjects stores objects in memory, and records requests.
type fakeObjects struct {
	t  *testing.T
	mu sync.Mutex
	// created has the creation time of each object, by name.
	created map[string]time.Time
	deleted []string
	lists   int
	// failing returns the error of a request.
	failing func(verb, name string) error
}

func (f *fakeObjects) add(names ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, name := range names {
		f.created[name] = time.Now()
	}
}

func (f *fakeObjects) failure(verb, name string) error {
	if f.failing == nil {
		return nil
	}
	return f.failing(verb, name)
}

// List implements Objects. A page has two objects.
func (f *fakeObjects) List(_ context.Context, _ schema.GroupVersionResource, _ int, next string) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.failure("list", ""); err != nil {
		return nil, err
	}
	if next == "" {
		f.lists++
	}
	var items []string
	more := ""
	for _, name := range slices.Sorted(maps.Keys(f.created)) {
		if name <= next {
			continue
		}
		if len(items) == 2 {
			more = items[1]
			break
		}
		items = append(items, name)
	}
	var encoded []string
	for _, name := range items {
		encoded = append(encoded, f.encode(name))
	}
	return fmt.Appendf(nil, `{"metadata": {"continue": %q}, "items": [%s]}`, more, strings.Join(encoded, ",")), nil
}

func (f *fakeObjects) encode(name string) string {
	return fmt.Sprintf(`{"metadata": {"namespace": "team", "name": %q, "uid": "uid-%s", "resourceVersion": "7", "creationTimestamp": %q}}`,
		name, name, f.created[name].UTC().Format(time.RFC3339))
}

// Get implements Objects.
func (f *fakeObjects) Get(_ context.Context, _ schema.GroupVersionResource, name types.NamespacedName) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return []byte(f.encode(name.Name)), f.failure("get", name.Name)
}

// Delete implements Objects.
func (f *fakeObjects) Delete(_ context.Context, _ schema.GroupVersionResource, name types.NamespacedName, uid types.UID, resourceVersion string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.failure("delete", name.Name); err != nil {
		return err
	}
	if uid != types.UID("uid-"+name.Name) || resourceVersion != "7" {
		f.t.Errorf("%s is deleted with UID %s and resource version %s", name, uid, resourceVersion)
	}
	delete(f.created, name.Name)
	f.deleted = append(f.deleted, name.Name)
	return nil
}

func (f *fakeObjects) wantDeleted(want ...string) {
	f.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	expect.Equal(f.t, want, f.deleted, "deleted")
}

// failWith replaces failing.
func (f *fakeObjects) failWith(failing func(verb, name string) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failing = failing
}

func (f *fakeObjects) listed() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lists
}

func (f *fakeObjects) deletions() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.deleted)
}

// fakeArchive records the names of archived objects.
type fakeArchive struct {
	records []archive.Record
	err     error
}

// Write implements Archive.
func (f *fakeArchive) Write(_ string, records []archive.Record) error {
	if f.err != nil {
		return f.err
	}
	f.records = append(f.records, records...)
	return nil
}

// fixture is a running controller.
type fixture struct {
	*Controller
	*fakeObjects
	annex    *annexfake.Clientset
	crds     *apiextensionsfake.Clientset
	recorder *events.FakeRecorder
	stop     func()
}

// start runs a controller with a HostedResource that deletes objects an hour after their creation.
func start(t *testing.T, change func(*hosted, *Config)) *fixture {
	t.Helper()
	crd := crds.New("example.com", "widgets", "v1")
	crd.UID, crd.Generation = "crd", 1
	resource := &hosted{
		ObjectMeta: metav1.ObjectMeta{Name: widgets, UID: "hosted", Generation: 1},
		Spec: hostingv1alpha1.HostedResourceSpec{Retention: &hostingv1alpha1.Retention{
			Rules: []hostingv1alpha1.RetentionRule{{Name: "old", AfterSeconds: hour}}, DeletionsPerSecond: 100,
		}},
		Status: hostingv1alpha1.HostedResourceStatus{
			DefinitionUID: "crd", Conditions: []metav1.Condition{{Type: hostingv1alpha1.HostedResourceReady, Status: metav1.ConditionTrue}},
		},
	}
	f := &fixture{fakeObjects: &fakeObjects{t: t, created: map[string]time.Time{}}, recorder: events.NewFakeRecorder(100)}
	config := Config{AnnexObjects: f.fakeObjects, Events: f.recorder}
	if change != nil {
		change(resource, &config)
	}
	f.annex, f.crds = annexfake.NewClientset(resource), apiextensionsfake.NewClientset(crd)
	annex := annexinformers.NewSharedInformerFactory(f.annex, 0)
	definitions := apiextensionsinformers.NewSharedInformerFactory(f.crds, 0)
	config.AnnexHostedResources = f.annex.HostingV1alpha1().HostedResources()
	config.HostedResources = annex.Hosting().V1alpha1().HostedResources()
	config.Definitions = definitions.Apiextensions().V1().CustomResourceDefinitions()
	config.WholeDefinition = config.Definitions.Lister().Get
	var err error
	f.Controller, err = New(config)
	expect.NoError(t, err)
	f.add("a", "b", "c", "d", "e")
	f.stop = controllertest.Run(t, f.Controller, 1, annex, definitions)
	controllertest.Advance(10 * time.Millisecond) // the first run
	return f
}

func (f *fixture) hosted() *hosted {
	f.t.Helper()
	return expect.Get(f.t, f.annex.HostingV1alpha1().HostedResources(), widgets)
}

// update changes the HostedResource, and its generation.
func (f *fixture) update(change func(*hosted)) {
	f.t.Helper()
	resource := f.hosted()
	resource.Generation++
	change(resource)
	expect.Update(f.t, f.annex.HostingV1alpha1().HostedResources(), resource)
	synctest.Wait()
}

// wantCondition checks a condition: its status, reason, and words of the message.
func (f *fixture) wantCondition(name string, status metav1.ConditionStatus, reason string, words ...string) {
	f.t.Helper()
	got := meta.FindStatusCondition(f.hosted().Status.Conditions, name)
	if got == nil || got.Status != status || got.Reason != reason || expect.Missing(got.Message, words...) != "" {
		f.t.Errorf("condition %s is %+v, want %s with reason %s and %q", name, got, status, reason, words)
	}
}

// events returns the events since the last call.
func (f *fixture) events() []string { return controllertest.Events(f.recorder) }

const (
	valid     = hostingv1alpha1.HostedResourceRetentionValid
	succeeded = hostingv1alpha1.HostedResourceRetentionSucceeded
)

func TestDeletesWhatIsDue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := start(t, nil)
		f.wantDeleted()
		f.wantCondition(valid, metav1.ConditionTrue, reasonFieldsFound, "Version v1")
		f.wantCondition(succeeded, metav1.ConditionTrue, reasonCompleted, "Deleted 0 objects")
		controllertest.Advance(30 * time.Minute)
		f.add("young")
		controllertest.Advance(31 * time.Minute)
		f.wantDeleted("a", "b", "c", "d", "e")
		status := f.hosted().Status.Retention
		if rule := status.Rules[0]; status.Deleted != 5 || rule.Deleted != 5 || rule.Due != 0 || rule.Matched != 6 {
			t.Errorf("the status is %+v", status)
		}
		if status.NextRunTime == nil || status.LastRunTime == nil || !status.NextRunTime.After(status.LastRunTime.Time) {
			t.Errorf("the last run is at %v, the next at %v", status.LastRunTime, status.NextRunTime)
		}
		f.wantCondition(succeeded, metav1.ConditionTrue, reasonCompleted)
		expect.Equal(t, []string{"Normal ObjectsDeleted Deleted 5 objects, 5 by rule old: team/a, team/b, team/c, team/d, team/e"}, f.events())

		// Without the retention its status is removed.
		f.update(func(h *hosted) { h.Spec.Retention = nil })
		controllertest.Advance(10 * time.Hour)
		f.wantDeleted("a", "b", "c", "d", "e")
		if after := f.hosted().Status; after.Retention != nil || meta.FindStatusCondition(after.Conditions, valid) != nil || len(after.Conditions) != 1 {
			t.Errorf("the status is %+v", after)
		}
	})
}

func TestDryRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := start(t, func(h *hosted, _ *Config) { h.Spec.Retention.DryRun = true })
		controllertest.Advance(2 * time.Hour)
		f.wantDeleted()
		f.wantCondition(succeeded, metav1.ConditionTrue, reasonDryRun, "Would delete 5 objects")
		status := f.hosted().Status.Retention
		expect.Equal(t, []string{"team/a", "team/b", "team/c", "team/d", "team/e"}, status.Rules[0].Examples)
		if status.Rules[0].Due != 5 || status.Deleted != 0 {
			t.Errorf("the status is %+v", status)
		}
		expect.Equal(t, []string{"Normal ObjectsDue Would delete 5 objects, 5 by rule old: team/a, team/b, team/c, team/d, team/e"}, f.events())
		f.update(func(h *hosted) { h.Spec.Retention.DryRun = false })
		controllertest.Advance(time.Minute)
		f.wantDeleted("a", "b", "c", "d", "e")
		expect.Equal(t, []string{"Normal ObjectsDeleted Deleted 5 objects, 5 by rule old: team/a, team/b, team/c, team/d, team/e"}, f.events())
		if examples := f.hosted().Status.Retention.Rules[0].Examples; len(examples) != 0 {
			t.Errorf("the examples are %v", examples)
		}
	})
}

// TestUnknownField has a rule whose field is not in the schema, and later a schema without it.
func TestUnknownField(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := start(t, func(h *hosted, _ *Config) {
			h.Spec.Retention.Rules = append(h.Spec.Retention.Rules, hostingv1alpha1.RetentionRule{
				Name: "done", Timestamp: &hostingv1alpha1.RetentionTimestamp{Path: ".status.doneAt"},
			})
		})
		setSchema := func(text string) {
			crd := expect.Get(t, f.crds.ApiextensionsV1().CustomResourceDefinitions(), widgets)
			crd.Generation++
			crd.Spec.Versions[0].Schema.OpenAPIV3Schema = parseSchema(t, text)
			expect.Update(t, f.crds.ApiextensionsV1().CustomResourceDefinitions(), crd)
			controllertest.Advance(time.Second)
		}
		f.wantCondition(valid, metav1.ConditionTrue, reasonFieldsFound)
		f.wantCondition(succeeded, metav1.ConditionTrue, reasonCompleted, "rule done applies to none of 5 objects")
		setSchema("{type: object, properties: {status: {type: object, properties: {finishedAt: {type: string}}}}}")
		controllertest.Advance(2 * time.Hour)
		f.wantDeleted()
		f.wantCondition(valid, metav1.ConditionFalse, reasonFieldNotFound,
			"Nothing is deleted, because of version v1: rule done: timestamp.path: the schema has no field .status.doneAt; .status has finishedAt")
		expect.Equal(t, 1, len(f.events()))
		setSchema("{type: object, properties: {status: {type: object, properties: {doneAt: {type: string}}}}}")
		controllertest.Advance(time.Minute)
		f.wantCondition(valid, metav1.ConditionTrue, reasonFieldsFound)
		f.wantDeleted("a", "b", "c", "d", "e")
	})
}

func TestWaitsUntilTheResourceIsReady(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*hosted){
		"not ready":          func(h *hosted) { h.Status.Conditions[0].Status = metav1.ConditionFalse },
		"moving":             func(h *hosted) { h.Finalizers = []string{hostingv1alpha1.MigrationFinalizer} },
		"another definition": func(h *hosted) { h.Status.DefinitionUID = "other" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := start(t, func(h *hosted, _ *Config) { change(h) })
				controllertest.Advance(2 * time.Hour)
				f.wantDeleted()
				if f.listed() != 0 {
					t.Errorf("the objects were listed %d times", f.listed())
				}
				f.update(func(h *hosted) {
					h.Finalizers, h.Status.DefinitionUID = nil, "crd"
					h.Status.Conditions[0].Status = metav1.ConditionTrue
				})
				controllertest.Advance(time.Minute)
				f.wantDeleted("a", "b", "c", "d", "e")
			})
		})
	}
}

// TestStopsAtOnce changes the retention while objects are deleted.
func TestStopsAtOnce(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(f *fixture){
		"dry run": func(f *fixture) { f.update(func(h *hosted) { h.Spec.Retention.DryRun = true }) },
		"removed": func(f *fixture) { f.update(func(h *hosted) { h.Spec.Retention = nil }) },
		"stop":    func(f *fixture) { f.stop() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := start(t, func(h *hosted, _ *Config) { h.Spec.Retention.DeletionsPerSecond = 1 })
				controllertest.Advance(time.Hour + 1500*time.Millisecond)
				change(f)
				controllertest.Advance(time.Hour)
				f.wantDeleted("a", "b")
			})
		})
	}
}

func TestFailedDeletions(t *testing.T) {
	t.Parallel()
	resource := schema.GroupResource{Group: "example.com", Resource: "widgets"}
	tests := map[string]struct {
		err    error
		reason string
		words  string
		// deleted are those before the failure ends.
		deleted []string
	}{
		"refused":     {apierrors.NewForbidden(resource, "c", errors.New("no")), reasonDeletionFailed, "1 object could not be deleted, the first because of: widgets.example.com \"c\" is forbidden: no", []string{"a", "b", "d", "e"}},
		"unavailable": {apierrors.NewServiceUnavailable("away"), reasonDeletionFailed, "away", []string{"a", "b"}},
		"connection":  {errors.New("connection refused"), reasonDeletionFailed, "connection refused", []string{"a", "b"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := start(t, nil)
				failing := true
				f.failWith(func(verb, name string) error {
					if failing && verb == "delete" && name == "c" {
						return test.err
					}
					return nil
				})
				controllertest.Advance(time.Hour + time.Second)
				f.wantDeleted(test.deleted...)
				f.wantCondition(succeeded, metav1.ConditionFalse, test.reason, test.words)
				f.fakeObjects.mu.Lock()
				failing = false
				f.fakeObjects.mu.Unlock()
				controllertest.Advance(10 * time.Minute)
				if deleted := f.deletions(); len(deleted) != 5 {
					t.Errorf("deleted %v", deleted)
				}
				f.wantCondition(succeeded, metav1.ConditionTrue, reasonCompleted)
			})
		})
	}
}

func TestChangedObjectsAreComparedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := start(t, nil)
		conflicts := 0
		f.failWith(func(verb, name string) error {
			if verb == "delete" && name == "c" && conflicts == 0 {
				conflicts++
				return apierrors.NewConflict(schema.GroupResource{Resource: "widgets"}, name, errors.New("the resource version differs"))
			}
			return nil
		})
		controllertest.Advance(time.Hour + time.Second)
		f.wantDeleted("a", "b", "d", "e")
		f.wantCondition(succeeded, metav1.ConditionTrue, reasonCompleted, "1 object changed meanwhile")
		controllertest.Advance(10 * time.Minute)
		f.wantDeleted("a", "b", "d", "e", "c")
	})
}

func TestFailedList(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := start(t, func(_ *hosted, config *Config) {
			objects, _ := config.AnnexObjects.(*fakeObjects)
			objects.failing = func(verb, _ string) error {
				if verb == "list" && objects.lists == 0 {
					objects.lists++
					return apierrors.NewInternalError(errors.New("broken"))
				}
				return nil
			}
		})
		f.wantCondition(succeeded, metav1.ConditionFalse, reasonListFailed, "broken")
		controllertest.Advance(2 * time.Hour)
		f.wantDeleted("a", "b", "c", "d", "e")
		f.wantCondition(succeeded, metav1.ConditionTrue, reasonCompleted)
	})
}

func TestArchive(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		archive *fakeArchive
		reason  string
		words   string
	}{
		"kept":           {&fakeArchive{}, reasonCompleted, "Deleted 5 objects"},
		"failed":         {&fakeArchive{err: errors.New("disk full")}, reasonArchiveFailed, "nothing is deleted: archive 5 objects of widgets.example.com: disk full"},
		"not configured": {nil, reasonArchiveNotConfigured, "the server has no --archive-dir"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := start(t, func(h *hosted, config *Config) {
					h.Spec.Retention.Archive = true
					if test.archive != nil {
						config.Archive = test.archive
					}
				})
				// The archive has an object before it is deleted.
				f.failWith(func(verb, name string) error {
					if verb == "delete" && !slices.ContainsFunc(test.archive.records, func(r archive.Record) bool {
						return strings.Contains(string(r.Object), fmt.Sprintf(`"name": %q`, name)) && r.Rule == "old" && r.Resource == widgets
					}) {
						t.Errorf("%s is deleted and not archived", name)
					}
					return nil
				})
				controllertest.Advance(time.Hour + time.Second)
				f.wantCondition(succeeded, map[bool]metav1.ConditionStatus{true: "True", false: "False"}[test.reason == reasonCompleted], test.reason, test.words)
				if test.reason == reasonCompleted {
					f.wantDeleted("a", "b", "c", "d", "e")
					expect.Equal(t, int64(5), f.hosted().Status.Retention.Archived)
					return
				}
				f.wantDeleted()
			})
		})
	}
}

// TestChangesCauseARun counts how often objects are listed.
func TestChangesCauseARun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := start(t, func(h *hosted, _ *Config) { h.Spec.Retention.Rules[0].AfterSeconds = 24 * hour })
		controllertest.Advance(time.Second)
		if f.listed() != 1 {
			t.Fatalf("the objects were listed %d times", f.listed())
		}
		for range 100 {
			f.UsageChanged(schema.ParseGroupResource(widgets))
			f.UsageChanged(schema.ParseGroupResource("others.example.com"))
			f.AllUsageChanged()
		}
		controllertest.Advance(maxInterval - 2*time.Second)
		if f.listed() != 1 {
			t.Errorf("the objects were listed %d times within %s", f.listed(), maxInterval)
		}
		controllertest.Advance(2 * time.Second)
		if f.listed() != 2 {
			t.Errorf("the objects were listed %d times after %s, want 2", f.listed(), maxInterval)
		}
	})
}

// TestContinuesTheStatus begins with the status of a previous leader.
func TestContinuesTheStatus(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := start(t, func(h *hosted, _ *Config) {
			h.Status.Retention = &hostingv1alpha1.RetentionStatus{Deleted: 10, Rules: []hostingv1alpha1.RetentionRuleStatus{{Name: "old", Deleted: 7}}}
		})
		controllertest.Advance(time.Hour + time.Second)
		status := f.hosted().Status.Retention
		if status.Deleted != 15 || len(status.Rules) != 1 || status.Rules[0].Deleted != 12 {
			t.Errorf("the status is %+v", status)
		}
	})
}
