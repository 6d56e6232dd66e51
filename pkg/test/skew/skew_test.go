// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build skew

package skew

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/clients"
	"github.com/annex-dev/annex/pkg/test/crds"
	"github.com/annex-dev/annex/pkg/test/etcdcluster"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
	"github.com/annex-dev/annex/pkg/test/process"
)

const (
	timeout = 3 * time.Minute
	// perKind is the number of objects that a version creates of each kind.
	perKind = 20
)

var (
	widgets = schema.GroupVersionResource{Group: "skew.example.com", Version: "v1", Resource: "widgets"}
	kinds   = map[schema.GroupVersionResource]string{
		widgets: "Widget", {Version: "v1", Resource: "configmaps"}: "ConfigMap", {Version: "v1", Resource: "secrets"}: "Secret",
	}
)

// annex is a running annex of a version.
type annex struct {
	*process.Annex
	*clients.Clients
	binary string
}

// inBothOrders runs a test with the previous release first, and with this one first.
func inBothOrders(t *testing.T, do func(t *testing.T, first, second string)) {
	t.Helper()
	newest, err := process.Bin(t.Context(), "annex")
	expect.NoError(t, err)
	previous, err := process.Bin(t.Context(), filepath.Join("previous", "annex"))
	expect.NoError(t, err)
	t.Run("upgrade", func(t *testing.T) { t.Parallel(); do(t, previous, newest) })
	t.Run("downgrade", func(t *testing.T) { t.Parallel(); do(t, newest, previous) })
}

func start(t *testing.T, binary, dataDir string, flags ...string) *annex {
	t.Helper()
	started, err := process.Start(binary, dataDir, flags...)
	expect.NoError(t, err)
	t.Cleanup(func() {
		started.Kill()
		if t.Failed() {
			t.Logf("stderr of %s:\n%s", binary, started.Stderr())
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	expect.NoError(t, started.WaitReady(ctx))
	config, err := started.Config()
	expect.NoError(t, err)
	return &annex{Annex: started, Clients: clients.For(t, config), binary: binary}
}

// define creates the CRD of a resource, and waits until it is served.
func (a *annex) define(t *testing.T, resource schema.GroupVersionResource) {
	t.Helper()
	expect.Create(t, a.CRDs(), crds.New(resource.Group, resource.Resource, resource.Version))
	a.waitServed(t, resource)
}

func (a *annex) waitServed(t *testing.T, resource schema.GroupVersionResource) {
	t.Helper()
	poll.UntilNoError(t, resource.Resource+" are served", func() error {
		_, err := a.Dynamic.Resource(resource).List(t.Context(), metav1.ListOptions{})
		return err
	})
}

// objects are the objects that were acknowledged, by resource and name.
type objects map[string]*unstructured.Unstructured

// write creates objects of each kind, and changes and deletes earlier ones.
func (a *annex) write(t *testing.T, acknowledged objects, prefix string) {
	t.Helper()
	for resource, kind := range kinds {
		client := a.Dynamic.Resource(resource).Namespace("default")
		for key, object := range acknowledged {
			switch {
			case object.GetKind() != kind || object.GetLabels()["changed"] != "":
			case object.GetName()[len(object.GetName())-1] == '0':
				expect.NoError(t, client.Delete(t.Context(), object.GetName(), metav1.DeleteOptions{}))
				delete(acknowledged, key)
			default:
				changed := object.DeepCopy()
				changed.SetLabels(map[string]string{"changed": prefix})
				changed, err := client.Update(t.Context(), changed, metav1.UpdateOptions{})
				expect.NoError(t, err)
				acknowledged[key] = changed
			}
		}
		for i := range perKind {
			object := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": resource.GroupVersion().String(), "kind": kind,
				"metadata": map[string]any{"name": fmt.Sprintf("%s-%d", prefix, i)},
			}}
			created, err := client.Create(t.Context(), object, metav1.CreateOptions{})
			expect.NoError(t, err)
			acknowledged[resource.Resource+"/"+created.GetName()] = created
		}
	}
}

// wantAll fails unless annex has each object as it was acknowledged, and no other.
func (a *annex) wantAll(t *testing.T, acknowledged objects) {
	t.Helper()
	for resource, kind := range kinds {
		list, err := a.Dynamic.Resource(resource).Namespace("default").List(t.Context(), metav1.ListOptions{})
		expect.NoError(t, err)
		left := objects{}
		for key, object := range acknowledged {
			if object.GetKind() == kind {
				left[key] = object
			}
		}
		for i := range list.Items {
			got := &list.Items[i]
			key := resource.Resource + "/" + got.GetName()
			switch want := left[key]; {
			case got.GetName() == "kube-root-ca.crt": // annex's own
			case want == nil:
				t.Errorf("%s was not acknowledged, or was deleted", key)
			default:
				if want.GetResourceVersion() == "" {
					got.SetResourceVersion("")
				}
				expect.Equal(t, want.Object, got.Object, key+" in "+a.binary)
			}
			delete(left, key)
		}
		for key := range left {
			t.Errorf("%s is missing in %s", key, a.binary)
		}
	}
}

// TestDataDirectory starts the versions one after the other on a data directory. Each is stopped or killed.
func TestDataDirectory(t *testing.T) {
	t.Parallel()
	inBothOrders(t, func(t *testing.T, first, second string) {
		dir, acknowledged := t.TempDir(), objects{}
		for round, binary := range []string{first, second, first, second} {
			a := start(t, binary, dir)
			if round == 0 {
				a.define(t, widgets)
			}
			a.waitServed(t, widgets)
			a.wantAll(t, acknowledged)
			a.write(t, acknowledged, fmt.Sprintf("round-%d", round))
			a.wantAll(t, acknowledged)
			if round%2 == 0 {
				expect.NoError(t, a.Stop(timeout))
			} else {
				a.Kill()
			}
		}
	})
}

// TestReplicas runs both versions on one etcd. One begins as the leader, and the other takes over.
func TestReplicas(t *testing.T) {
	t.Parallel()
	inBothOrders(t, func(t *testing.T, first, second string) {
		etcd := etcdcluster.Start(t, etcdcluster.Config{Members: 1, Plain: true})
		flag := "--etcd-servers=" + etcd.Endpoints()[0]
		a := start(t, first, t.TempDir(), flag)
		a.define(t, widgets)
		b := start(t, second, t.TempDir(), flag)
		b.waitServed(t, widgets)
		acknowledged := objects{}
		for round, replica := range []*annex{a, b, a} {
			replica.write(t, acknowledged, fmt.Sprintf("round-%d", round))
			a.wantAll(t, acknowledged)
			b.wantAll(t, acknowledged)
		}
		a.Kill()
		b.write(t, acknowledged, "alone")
		b.wantAll(t, acknowledged)
		// The new leader assigns the resources of a new CRD.
		b.define(t, widgets.GroupVersion().WithResource("gadgets"))
	})
}

// TestMigration moves a resource between Stores. The version that leads is killed, and the other one completes.
func TestMigration(t *testing.T) {
	t.Parallel()
	inBothOrders(t, func(t *testing.T, first, second string) {
		etcd, west := etcdcluster.Start(t, etcdcluster.Config{Members: 1, Plain: true}), etcdcluster.Start(t, etcdcluster.Config{Members: 1, Plain: true})
		flag := "--etcd-servers=" + etcd.Endpoints()[0]
		a := start(t, first, t.TempDir(), flag)
		a.define(t, widgets)
		acknowledged := objects{}
		for round := range 5 {
			a.write(t, acknowledged, fmt.Sprintf("before-%d", round))
		}
		expect.Create(t, a.Stores(), &hostingv1alpha1.Store{
			ObjectMeta: metav1.ObjectMeta{Name: "west"},
			Spec:       hostingv1alpha1.StoreSpec{Etcd: &hostingv1alpha1.EtcdStore{Endpoints: west.Endpoints()}},
		})
		migrations := a.Hosting.HostingV1alpha1().Migrations()
		name := widgets.GroupResource().String()
		// Slow enough to be killed within.
		expect.Create(t, migrations, &hostingv1alpha1.Migration{
			ObjectMeta: metav1.ObjectMeta{Name: "west"}, Spec: hostingv1alpha1.MigrationSpec{Resource: name, StoreName: "west", ObjectsPerSecond: 5},
		})
		expect.Eventually(t, migrations, "west", "copies", func(m *hostingv1alpha1.Migration) bool {
			return m.Status.Phase == hostingv1alpha1.MigrationCopying && m.Status.CopiedObjects > 0
		})
		a.Kill()
		b := start(t, second, t.TempDir(), flag)
		b.waitServed(t, widgets)
		b.write(t, acknowledged, "during")
		expect.Eventually(t, b.Hosting.HostingV1alpha1().Migrations(), "west", "is complete", func(m *hostingv1alpha1.Migration) bool {
			return m.Status.Phase == hostingv1alpha1.MigrationCompleted
		})
		if got := expect.Get(t, b.HostedResources(), name).Spec.StoreName; got != "west" {
			t.Errorf("widgets are on the Store %q, want west", got)
		}
		for _, object := range acknowledged {
			object.SetResourceVersion("") // a move raises it
		}
		b.wantAll(t, acknowledged)
		c := start(t, first, t.TempDir(), flag)
		c.waitServed(t, widgets)
		c.wantAll(t, acknowledged)
	})
}

// TestCommands backs a server up with the other version's command, restores the backup with this one's, and reads the
// status.
func TestCommands(t *testing.T) {
	t.Parallel()
	inBothOrders(t, func(t *testing.T, first, second string) {
		a, acknowledged := start(t, first, t.TempDir()), objects{}
		a.define(t, widgets)
		a.write(t, acknowledged, "saved")
		file := filepath.Join(t.TempDir(), "backup")
		for _, args := range [][]string{{"top"}, {"status"}, {"backup", "--resource", widgets.GroupResource().String(), file}} {
			run(t, second, a, args...)
		}
		empty := start(t, second, t.TempDir())
		run(t, second, empty, "restore", file) // with its CRD
		empty.waitServed(t, widgets)
		list, err := empty.Dynamic.Resource(widgets).Namespace("default").List(t.Context(), metav1.ListOptions{})
		expect.NoError(t, err)
		expect.Equal(t, perKind, len(list.Items), "widgets that were restored")
	})
}

func run(t *testing.T, binary string, against *annex, args ...string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), binary, append(args, "--kubeconfig="+against.Kubeconfig)...)
	if output, err := command.CombinedOutput(); err != nil {
		t.Errorf("%s %q: %v\n%s", binary, args, err, output)
	}
}
