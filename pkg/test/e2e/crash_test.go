// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/annex-dev/annex/pkg/test/clients"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/freeport"
	"github.com/annex-dev/annex/pkg/test/poll"
	"github.com/annex-dev/annex/pkg/test/process"
)

var widgets = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}

// write is an acknowledged write.
type write struct {
	resource schema.GroupVersionResource
	name     string
	uid      string
	revision int64
}

// TestKillLosesNothing kills annex repeatedly during writes, and reads every acknowledged object
// after each start.
func TestKillLosesNothing(t *testing.T) {
	t.Parallel()
	dataDir := t.TempDir()
	configMaps := corev1.SchemeGroupVersion.WithResource("configmaps")
	var acknowledged []write
	for round := range 4 {
		s := startServerIn(t, dataDir)
		if round == 0 {
			s.kubectl.run(t, "apply", "-f", widgetCRD)
			s.kubectl.run(t, "wait", "--for=condition=Established", "-f", widgetCRD)
		}
		s.findAll(t, acknowledged)
		acknowledged = append(acknowledged, s.writeUntilKilled(t, round, widgets, configMaps)...)
	}
	s := startServerIn(t, dataDir)
	s.findAll(t, acknowledged)
	t.Logf("%d acknowledged writes survived", len(acknowledged))
	if len(acknowledged) < 100 {
		t.Errorf("only %d writes were acknowledged, want at least 100", len(acknowledged))
	}
}

// writeUntilKilled creates objects from several clients, kills the server meanwhile, and returns
// the acknowledged writes.
func (s *server) writeUntilKilled(t *testing.T, round int, resources ...schema.GroupVersionResource) []write {
	t.Helper()
	var (
		mu           sync.Mutex
		acknowledged []write
		count        atomic.Int64
		writers      sync.WaitGroup
	)
	enough := make(chan struct{})
	for worker := range 8 {
		resource := resources[worker%len(resources)]
		writers.Go(func() {
			for i := 0; ; i++ {
				object := &unstructured.Unstructured{Object: map[string]any{
					"apiVersion": resource.GroupVersion().String(),
					"kind":       map[string]string{"widgets": "Widget", "configmaps": "ConfigMap"}[resource.Resource],
					"metadata":   map[string]any{"name": fmt.Sprintf("r%d-w%d-%d", round, worker, i)},
				}}
				if resource == widgets {
					object.Object["spec"] = map[string]any{}
				}
				created, err := s.Dynamic.Resource(resource).Namespace("default").Create(t.Context(), object, metav1.CreateOptions{})
				if err != nil {
					return // the server was killed
				}
				revision, err := strconv.ParseInt(created.GetResourceVersion(), 10, 64)
				if err != nil {
					t.Errorf("resource version %q: %v", created.GetResourceVersion(), err)
					return
				}
				mu.Lock()
				acknowledged = append(acknowledged, write{resource: resource, name: created.GetName(), uid: string(created.GetUID()), revision: revision})
				mu.Unlock()
				if count.Add(1) == 60 {
					close(enough)
				}
			}
		})
	}
	select {
	case <-enough:
	case <-time.After(poll.Timeout):
		t.Errorf("only %d writes in %s", count.Load(), poll.Timeout)
	}
	s.Kill()
	writers.Wait()
	return acknowledged
}

// findAll fails if a write is lost, or if a resource version has decreased.
func (s *server) findAll(t *testing.T, writes []write) {
	t.Helper()
	found := map[schema.GroupVersionResource]map[string]unstructured.Unstructured{}
	for _, w := range writes {
		if found[w.resource] == nil {
			list, err := s.Dynamic.Resource(w.resource).Namespace("default").List(t.Context(), metav1.ListOptions{})
			expect.NoError(t, err, "list %s after a start", w.resource.Resource)
			found[w.resource] = map[string]unstructured.Unstructured{}
			for _, item := range list.Items {
				found[w.resource][item.GetName()] = item
			}
			if revision, err := strconv.ParseInt(list.GetResourceVersion(), 10, 64); err != nil || revision < w.revision {
				t.Errorf("the list of %s is at revision %q, but %d was acknowledged", w.resource.Resource, list.GetResourceVersion(), w.revision)
			}
		}
		object, ok := found[w.resource][w.name]
		switch {
		case !ok:
			t.Errorf("%s %s was acknowledged and is lost", w.resource.Resource, w.name)
		case string(object.GetUID()) != w.uid || object.GetResourceVersion() != strconv.FormatInt(w.revision, 10):
			t.Errorf("%s %s changed: uid %s, revision %s, want %+v", w.resource.Resource, w.name, object.GetUID(), object.GetResourceVersion(), w)
		}
	}
}

// TestNeverNotFoundWhileStarting requests existing objects from the moment that the port is open:
// until everything is loaded the response is 503, never 404.
func TestNeverNotFoundWhileStarting(t *testing.T) {
	t.Parallel()
	dataDir := t.TempDir()
	s := startServerIn(t, dataDir)
	s.kubectl.run(t, "apply", "-f", widgetCRD)
	s.kubectl.run(t, "wait", "--for=condition=Established", "-f", widgetCRD)
	s.kubectl.feed(t, widget("default", "a", `{}`), "create", "-f", "-")
	s.Kill()

	port, err := freeport.Find(t.Context())
	expect.NoError(t, err)
	restarted, err := process.Start(programs.annex, dataDir, fmt.Sprintf("--secure-port=%d", port))
	expect.NoError(t, err)
	t.Cleanup(func() { stop(t, restarted) })
	// The certificates stay the same, so the client can be created before the server listens.
	config := rest.CopyConfig(s.Clients.Config)
	config.Host = "https://" + freeport.Address(port)
	admin, err := rest.HTTPClientFor(config)
	expect.NoError(t, err)
	paths := []string{
		"/apis/example.com/v1/namespaces/default/widgets/a",
		"/apis/example.com/v1beta1/namespaces/default/widgets",
		"/apis/example.com",
		"/api/v1/namespaces/default",
		"/apis/hosting.annex.dev/v1alpha1/stores/default",
		"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com",
	}
	allowed := []int{http.StatusOK, http.StatusServiceUnavailable, http.StatusTooManyRequests}
	answers := map[int]int{}
	poll.UntilDone(t, "all paths return 200", func() (bool, string) {
		good := 0
		for _, path := range paths {
			got, err := clients.Send(t.Context(), admin, http.MethodGet, config.Host+path, "")
			if err != nil {
				continue // not listening yet
			}
			code := got.Code
			answers[code]++
			if !slices.Contains(allowed, code) {
				t.Errorf("%s returns %d while annex starts", path, code)
			}
			if code == http.StatusOK {
				good++
			}
		}
		return good == len(paths), fmt.Sprint(answers)
	})
	t.Logf("responses while starting: %v", answers)
}

// TestTerminateDrains stops annex during requests: each is either refused or completed, and the
// process exits with code 0.
func TestTerminateDrains(t *testing.T) {
	t.Parallel()
	for name, signal := range map[string]syscall.Signal{"SIGTERM": syscall.SIGTERM, "SIGINT": syscall.SIGINT} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dataDir := t.TempDir()
			s := startServerIn(t, dataDir)
			ctx, cancel := context.WithTimeout(t.Context(), poll.Timeout)
			defer cancel()
			watch, err := s.Kube.CoreV1().ConfigMaps("default").Watch(ctx, metav1.ListOptions{})
			expect.NoError(t, err)
			defer watch.Stop()

			var written []string
			var writer sync.WaitGroup
			half := make(chan struct{})
			writer.Go(func() {
				for i := 0; ; i++ {
					name := fmt.Sprint("c", i)
					object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
					if _, err := s.Kube.CoreV1().ConfigMaps("default").Create(ctx, object, metav1.CreateOptions{}); err != nil {
						return
					}
					if written = append(written, name); i == 20 {
						close(half)
					}
				}
			})
			<-half
			stopped := time.Now()
			expect.NoError(t, s.Signal(signal))
			code, err := s.Wait(ctx)
			if err != nil || code != 0 {
				t.Errorf("annex exited with code %d (%v): %s", code, err, s.Stderr())
			}
			t.Logf("drained in %s", time.Since(stopped).Round(time.Millisecond))
			writer.Wait()

			again := startServerIn(t, dataDir)
			list, err := again.Kube.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{})
			expect.NoError(t, err)
			for _, name := range written {
				if !slices.ContainsFunc(list.Items, func(item corev1.ConfigMap) bool { return item.Name == name }) {
					t.Errorf("configmap %s was acknowledged and is lost", name)
				}
			}
		})
	}
}
