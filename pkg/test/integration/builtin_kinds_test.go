// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	toolsevents "k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/record"

	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

func TestSystemNamespaces(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	for _, name := range []string{"default", "kube-system", "kube-public", "annex-system"} {
		namespace, err := a.Kube.CoreV1().Namespaces().Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Error(err)
			continue
		}
		if namespace.Status.Phase != corev1.NamespaceActive || namespace.Labels[corev1.LabelMetadataName] != name {
			t.Errorf("namespace %s: %+v", name, namespace)
		}
	}
	err := a.Kube.CoreV1().Namespaces().Delete(t.Context(), "kube-system", metav1.DeleteOptions{})
	expect.Error(t, err, `namespaces "kube-system" is forbidden: this namespace may not be deleted`)
	active, err := a.Kube.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{FieldSelector: "status.phase=Active"})
	if err != nil || len(active.Items) < 4 {
		t.Errorf("active namespaces: %v, %v", active, err)
	}
}

func TestObjectsNeedTheirNamespace(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	_, err := a.Kube.CoreV1().ConfigMaps("nowhere").Create(t.Context(), config, metav1.CreateOptions{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("got %v, want NotFound", err)
	}
	expect.Error(t, err, `namespaces "nowhere" not found`)
	widgets := a.installCRD(t, newCRD(t, anySchema))
	widgets.namespace = "nowhere"
	_, err = widgets.in("v1").Create(t.Context(), widgets.object(t, "v1", "a", "spec: {}"), metav1.CreateOptions{})
	expect.Error(t, err, `namespaces "nowhere" not found`)
}

func TestConfigMaps(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	configs := a.Kube.CoreV1().ConfigMaps(a.newNamespace(t))
	apply := func(manager string, force bool, data map[string]string) (*corev1.ConfigMap, error) {
		return configs.Apply(t.Context(), applycorev1.ConfigMap("a", "").WithNamespace("").WithData(data), metav1.ApplyOptions{FieldManager: manager, Force: force})
	}
	if _, err := apply("alice", false, map[string]string{"a": "1", "b": "1"}); err != nil {
		t.Fatal(err)
	}
	_, err := apply("bob", false, map[string]string{"b": "2"})
	expect.Error(t, err, `conflict with "alice"`, ".data.b")
	if _, err := apply("bob", true, map[string]string{"b": "2"}); err != nil {
		t.Fatal(err)
	}
	merged, err := apply("alice", false, map[string]string{"c": "3"})
	expect.NoError(t, err)
	if diff := cmp.Diff(map[string]string{"b": "2", "c": "3"}, merged.Data); diff != "" {
		t.Errorf("data (-want +got):\n%s", diff)
	}

	patched, err := configs.Patch(t.Context(), "a", types.JSONPatchType, []byte(`[{"op": "test", "path": "/data/b", "value": "2"}, {"op": "remove", "path": "/data/b"}]`), metav1.PatchOptions{})
	if err != nil || len(patched.Data) != 1 {
		t.Errorf("JSON patch: %v, %v", patched, err)
	}
	stale := patched.DeepCopy()
	stale.ResourceVersion = merged.ResourceVersion
	if _, err := configs.Update(t.Context(), stale, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("update of an old version: got %v, want a conflict", err)
	}
	patched.Immutable = new(bool)
	*patched.Immutable = true
	patched, err = configs.Update(t.Context(), patched, metav1.UpdateOptions{})
	expect.NoError(t, err)
	patched.Data["c"] = "4"
	_, err = configs.Update(t.Context(), patched, metav1.UpdateOptions{})
	expect.Error(t, err, "field is immutable when `immutable` is set")

	generated, err := configs.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "gen-"}}, metav1.CreateOptions{})
	if err != nil || !strings.HasPrefix(generated.Name, "gen-") || len(generated.Name) != len("gen-")+5 {
		t.Errorf("a generated name: %v, %v", generated, err)
	}
	uid := types.UID("other")
	err = configs.Delete(t.Context(), generated.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	if !apierrors.IsConflict(err) {
		t.Errorf("deletion of another object of that name: got %v, want a conflict", err)
	}
}

// Typed clients of kubectl and controllers request protobuf.
func TestProtobuf(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	namespace := a.newNamespace(t)
	config := restclient.CopyConfig(a.AnnexConfig)
	config.AcceptContentTypes, config.ContentType = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf
	annexKube, err := kubernetes.NewForConfig(config)
	expect.NoError(t, err)
	configs := annexKube.CoreV1().ConfigMaps(namespace)
	factory := informers.NewSharedInformerFactoryWithOptions(annexKube, 0, informers.WithNamespace(namespace))
	informer := factory.Core().V1().ConfigMaps()
	synced := informer.Informer().HasSynced
	factory.Start(t.Context().Done())
	if !cache.WaitForCacheSync(t.Context().Done(), synced) {
		t.Fatal("the informer did not sync")
	}
	data := map[string]string{"key": "value"}
	expect.Create(t, configs, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Data: data})
	poll.Until(t, "the informer has it", func() string {
		got, err := informer.Lister().ConfigMaps(namespace).Get("a")
		if err != nil {
			return err.Error()
		}
		return cmp.Diff(data, got.Data)
	})
	_, err = configs.Get(t.Context(), "none", metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("an error in protobuf: %v", err)
	}
	for path, prefix := range map[string]string{"configmaps": "k8s\x00", "configmaps/a": "k8s\x00"} {
		got := a.get(t, "/api/v1/namespaces/"+namespace+"/"+path, "Accept", runtime.ContentTypeProtobuf)
		if got.Code != http.StatusOK || !strings.HasPrefix(string(got.Body), prefix) {
			t.Errorf("%s: %d %q", path, got.Code, got.Body)
		}
	}
	if stored := etcdValue(t, a.etcd(t), "/annex/configmaps/"+namespace+"/a"); !strings.HasPrefix(string(stored), "k8s\x00") {
		t.Errorf("etcd holds %q, want protobuf", stored)
	}
	// Custom resources have no protobuf encoding.
	widgets := a.installCRD(t, newCRD(t, anySchema))
	a.get(t, widgets.path("v1"), "Accept", runtime.ContentTypeProtobuf).Expect(t, http.StatusNotAcceptable, "a custom resource as protobuf")
}

func TestEventsInBothGroups(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	namespace := a.newNamespace(t)
	config := expect.Create(t, a.Kube.CoreV1().ConfigMaps(namespace), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "subject"}})

	// Recorders of both API groups, as controllers use them.
	old := record.NewBroadcaster(record.WithContext(t.Context()))
	old.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: a.Kube.CoreV1().Events(namespace)})
	t.Cleanup(old.Shutdown)
	old.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "old"}).Event(config, corev1.EventTypeWarning, "Spoken", "by the old recorder")
	current := toolsevents.NewBroadcaster(&toolsevents.EventSinkImpl{Interface: a.Kube.EventsV1()})
	current.StartRecordingToSink(t.Context().Done())
	t.Cleanup(current.Shutdown)
	current.NewRecorder(scheme.Scheme, "example.com/new").Eventf(config, nil, corev1.EventTypeNormal, "Written", "Writing", "by the new recorder")

	poll.Until(t, "both groups show both events", func() string {
		core, err := a.Kube.CoreV1().Events(namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=subject"})
		if err != nil {
			return err.Error()
		}
		events, err := a.Kube.EventsV1().Events(namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "regarding.name=subject"})
		if err != nil {
			return err.Error()
		}
		var inCore, inEvents []string
		for _, event := range core.Items {
			inCore = append(inCore, event.Reason+" "+event.Message)
		}
		for _, event := range events.Items {
			inEvents = append(inEvents, event.Reason+" "+event.Note)
		}
		slices.Sort(inCore)
		slices.Sort(inEvents)
		want := []string{"Spoken by the old recorder", "Written by the new recorder"}
		return cmp.Diff(want, inCore) + cmp.Diff(want, inEvents)
	})
	warnings, err := a.Kube.CoreV1().Events(namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "type=Warning"})
	if err != nil || len(warnings.Items) != 1 || warnings.Items[0].Source.Component != "old" {
		t.Errorf("warnings: %v, %v", warnings, err)
	}
	_, err = a.Kube.EventsV1().Events(namespace).Create(t.Context(), &eventsv1.Event{ObjectMeta: metav1.ObjectMeta{Name: "incomplete"}}, metav1.CreateOptions{})
	if !apierrors.IsInvalid(err) {
		t.Errorf("an incomplete event: got %v, want Invalid", err)
	}
}

func TestEventsExpire(t *testing.T) {
	t.Parallel()
	a := startAnnex(t, "--event-ttl=1s")
	event := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: "short", Namespace: "default"},
		InvolvedObject: corev1.ObjectReference{Kind: "ConfigMap", Namespace: "default", Name: "x"}, Reason: "Tested", Type: corev1.EventTypeNormal,
	}
	expect.Create(t, a.Kube.CoreV1().Events("default"), event)
	expect.Gone(t, a.Kube.CoreV1().Events("default"), "short")
}

func TestLeaderElection(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	namespace := a.newNamespace(t)
	run := func(ctx context.Context, identity string, leading chan<- string) <-chan struct{} {
		elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: &resourcelock.LeaseLock{
				LeaseMeta: metav1.ObjectMeta{Namespace: namespace, Name: "lock"}, Client: a.Kube.CoordinationV1(),
				LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
			},
			LeaseDuration: time.Minute, RenewDeadline: 50 * time.Second, RetryPeriod: 100 * time.Millisecond, ReleaseOnCancel: true,
			Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) { leading <- identity }, OnStoppedLeading: func() {}},
		})
		expect.NoError(t, err)
		done := make(chan struct{})
		go func() {
			defer close(done)
			elector.Run(ctx)
		}()
		return done
	}
	next := func(leading <-chan string) string {
		select {
		case identity := <-leading:
			return identity
		case <-time.After(poll.Timeout):
			return "none"
		}
	}
	leading := make(chan string, 2)
	first, stopFirst := context.WithCancel(t.Context())
	firstDone := run(first, "first", leading)
	if got := next(leading); got != "first" {
		t.Fatalf("%s leads", got)
	}
	second, stopSecond := context.WithCancel(t.Context())
	secondDone := run(second, "second", leading)
	lease, err := a.Kube.CoordinationV1().Leases(namespace).Get(t.Context(), "lock", metav1.GetOptions{})
	if err != nil || *lease.Spec.HolderIdentity != "first" {
		t.Errorf("the lease: %v, %v", lease, err)
	}
	stopFirst()
	<-firstDone
	if got := next(leading); got != "second" {
		t.Errorf("after the first stopped, %s leads", got)
	}
	stopSecond()
	<-secondDone
}

// Invalid requests get the messages of Kubernetes.
func TestMalformedRequests(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	namespace := a.newNamespace(t)
	path := "/api/v1/namespaces/" + namespace + "/configmaps"
	tests := map[string]struct {
		path, contentType, body string
		code                    int
		want                    string
	}{
		"not JSON":           {path, "application/json", "{", http.StatusBadRequest, "the object provided is unrecognized"},
		"not YAML":           {path, "application/yaml", "a: [", http.StatusBadRequest, "yaml"},
		"another kind":       {path, "application/json", `{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x"}}`, http.StatusBadRequest, "cannot be handled as a ConfigMap"},
		"invalid name":       {path, "application/json", `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "Not Valid"}}`, http.StatusUnprocessableEntity, "a lowercase RFC 1123 subdomain must consist of"},
		"no name":            {path, "application/json", `{"apiVersion": "v1", "kind": "ConfigMap"}`, http.StatusUnprocessableEntity, "name or generateName is required"},
		"wrong type":         {path, "application/json", `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"a": 1}}`, http.StatusBadRequest, "cannot unmarshal number into Go struct field ConfigMap.data of type string"},
		"another namespace":  {path, "application/json", `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "namespace": "other"}}`, http.StatusBadRequest, "the namespace of the provided object does not match the namespace sent on the request"},
		"media type":         {path, "text/plain", "x", http.StatusUnsupportedMediaType, "the body of the request was in an unknown format"},
		"no resource":        {"/api/v1/namespaces/" + namespace + "/pods", "application/json", "{}", http.StatusNotFound, "the server could not find the requested resource"},
		"body too large":     {path, "application/json", `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"a": "` + strings.Repeat("x", 18<<20) + `"}}`, http.StatusRequestEntityTooLarge, "limit is 3145728"},
		"too large for kind": {path, "application/json", `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"a": "` + strings.Repeat("x", 2<<20) + `"}}`, http.StatusUnprocessableEntity, "Too long"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := a.request(t, http.MethodPost, test.path, test.body, "Content-Type", test.contentType)
			var status metav1.Status
			got.Into(t, &status)
			if got.Code != test.code || status.Kind != "Status" || !strings.Contains(status.Message, test.want) {
				t.Errorf("got %s, want %d with %q", got, test.code, test.want)
			}
		})
	}
	a.request(t, http.MethodPatch, path+"/none", "{}", "Content-Type", string(types.MergePatchType)).Expect(t, http.StatusNotFound, "patch of nothing")
	a.request(t, http.MethodPut, "/api/v1/namespaces", "{}").Expect(t, http.StatusMethodNotAllowed, "a method that is not served")
}
