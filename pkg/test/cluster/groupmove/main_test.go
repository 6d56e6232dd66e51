// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package groupmove

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/annextest"
	"github.com/annex-dev/annex/pkg/test/clients"
	"github.com/annex-dev/annex/pkg/test/crds"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/maincluster"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// definition is a short name for signatures.
type definition = apiextensionsv1.CustomResourceDefinition

// mainCluster and sharedAnnex behind it are shared by all tests: each has a group of its own.
var (
	mainCluster *maincluster.Cluster
	sharedAnnex *annextest.Annex
)

func TestMain(m *testing.M) {
	os.Exit(maincluster.RunTests(withAnnex{m}, maincluster.Options{}, func(started *maincluster.Cluster) { mainCluster = started }))
}

// withAnnex runs tests beside an annex.
type withAnnex struct{ *testing.M }

// Run starts annex, runs the tests, and stops it.
func (w withAnnex) Run() int {
	code := 1
	if err := w.run(&code); err != nil {
		fmt.Fprintln(os.Stderr, "the shared annex:", err)
		return 1
	}
	return code
}

func (w withAnnex) run(code *int) (err error) {
	balancer, err := maincluster.NewLoadBalancer(maincluster.LoadBalancerOptions{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, balancer.Close()) }()
	ctx := context.Background()
	installation, err := annextest.Install(ctx, mainCluster, balancer)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "groupmove-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if sharedAnnex, err = installation.Launch(dir); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sharedAnnex.Shutdown()) }()
	if err := installation.WaitHosting(ctx); err != nil {
		return err
	}
	*code = w.M.Run()
	return nil
}

// fixture is a group of the main cluster with widgets, and the annex behind it.
type fixture struct {
	*testing.T
	group     string
	annex     *annextest.Annex
	main, own *clients.Clients
}

func newFixture(t *testing.T, annex *annextest.Annex, group string, change ...func(*definition)) *fixture {
	t.Helper()
	f := newFixtureWithoutRights(t, annex, group, change...)
	f.grant()
	return f
}

// newFixtureWithoutRights is for the commands, which grant annex the rights for the group.
func newFixtureWithoutRights(t *testing.T, annex *annextest.Annex, group string, change ...func(*definition)) *fixture {
	t.Helper()
	f := newUndefinedFixture(t, annex, group)
	crd := crds.New(group, "widgets", "v1")
	crd.Spec.Versions[0].Schema.OpenAPIV3Schema = &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: new(true)}
	crd.Spec.Versions[0].Subresources = &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}}
	for _, change := range change {
		change(crd)
	}
	expect.Create(t, f.main.CRDs(), crd)
	poll.UntilNoError(t, "the main cluster serves widgets", func() error {
		_, err := f.widgets().List(t.Context(), metav1.ListOptions{})
		return err
	})
	return f
}

// deleteDefinition deletes a definition of the main cluster when the test has ended.
func (f *fixture) deleteDefinition(name string) {
	err := f.main.CRDs().Delete(context.Background(), name, metav1.DeleteOptions{})
	if err == nil {
		err = wait.PollUntilContextTimeout(context.Background(), 100*time.Millisecond, poll.Timeout, true, func(ctx context.Context) (bool, error) {
			_, err := f.main.CRDs().Get(ctx, name, metav1.GetOptions{})
			return apierrors.IsNotFound(err), nil
		})
	}
	if err != nil {
		f.Logf("delete definition %s: %v", name, err)
	}
}

// newUndefinedFixture is a group without definitions.
func newUndefinedFixture(t *testing.T, annex *annextest.Annex, group string) *fixture {
	t.Helper()
	f := &fixture{T: t, group: group, annex: annex, main: clients.For(t, annex.Cluster.Config), own: clients.For(t, annex.AnnexConfig)}
	t.Cleanup(f.logMigrations)
	return f
}

// grant gives annex the rights that kubectl annex move gives, and others.
func (f *fixture) grant(others ...rbacv1.PolicyRule) {
	f.Helper()
	rule := func(group string, resources, verbs []string, names ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: verbs, ResourceNames: names}
	}
	all := []string{"get", "list", "watch", "create", "update", "patch", "delete"}
	definitions, err := f.main.CRDs().List(f.Context(), metav1.ListOptions{})
	expect.NoError(f, err)
	var names []string
	for i := range definitions.Items {
		if definitions.Items[i].Spec.Group == f.group {
			names = append(names, definitions.Items[i].Name)
		}
	}
	expect.Create(f, f.main.Kube.RbacV1().ClusterRoles(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "annex-hosted-" + f.group, Labels: map[string]string{hostingv1alpha1.AggregateLabel: "true"}},
		Rules: append([]rbacv1.PolicyRule{
			rule(f.group, []string{"*"}, all),
			rule("apiextensions.k8s.io", []string{"customresourcedefinitions"}, []string{"get", "update", "patch"}, names...),
			rule("admissionregistration.k8s.io", []string{"validatingadmissionpolicies", "validatingadmissionpolicybindings"}, all),
			rule("", []string{"configmaps"}, all),
		}, others...),
	})
}

func (f *fixture) resource() schema.GroupVersionResource { return f.resourceOf("Widget") }

func (f *fixture) resourceOf(kind string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: f.group, Version: "v1", Resource: strings.ToLower(kind) + "s"}
}

func (f *fixture) widgets() dynamic.NamespaceableResourceInterface {
	return f.main.Dynamic.Resource(f.resource())
}

func (f *fixture) newWidget(namespace, name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": f.group + "/v1", "kind": "Widget",
		"metadata": map[string]any{"namespace": namespace, "name": name},
		"spec":     map[string]any{"value": int64(0)},
	}}
}

func (f *fixture) create(namespace, name string, change func(*unstructured.Unstructured)) *unstructured.Unstructured {
	f.Helper()
	widget := f.newWidget(namespace, name)
	if change != nil {
		change(widget)
	}
	created, err := f.widgets().Namespace(namespace).Create(f.Context(), widget, metav1.CreateOptions{})
	expect.NoError(f, err)
	return created
}

// nameOfOwned returns the name of the ConfigMap that a widget owns.
func (f *fixture) nameOfOwned(owner string) string { return owner + "." + f.group }

// configMap creates a ConfigMap that a widget owns.
func (f *fixture) configMap(owner *unstructured.Unstructured) *corev1.ConfigMap {
	f.Helper()
	return expect.Create(f, f.main.Kube.CoreV1().ConfigMaps(owner.GetNamespace()), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Name: f.nameOfOwned(owner.GetName()), OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, owner.GroupVersionKind())},
	}})
}

// migrate runs a Migration to its end.
func (f *fixture) migrate(operation hostingv1alpha1.MigrationOperation, change func(*hostingv1alpha1.Migration)) *hostingv1alpha1.Migration {
	f.Helper()
	migration := &hostingv1alpha1.Migration{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "m-"},
		Spec:       hostingv1alpha1.MigrationSpec{Group: f.group, Operation: operation},
	}
	if change != nil {
		change(migration)
	}
	created := expect.Create(f, f.own.Hosting.HostingV1alpha1().Migrations(), migration)
	return f.await(created.Name)
}

func (f *fixture) await(name string) *hostingv1alpha1.Migration {
	f.Helper()
	last := &hostingv1alpha1.Migration{}
	var failed error // a busy annex may not answer for a while
	err := wait.PollUntilContextTimeout(f.Context(), 250*time.Millisecond, migrationTimeout, true, func(ctx context.Context) (bool, error) {
		var found *hostingv1alpha1.Migration
		if found, failed = f.own.Hosting.HostingV1alpha1().Migrations().Get(ctx, name, metav1.GetOptions{}); failed == nil {
			last = found
		}
		return last.Status.Phase.Finished(), nil
	})
	if err != nil {
		f.Fatalf("wait for migration %s: %v (%v); it is %+v", name, err, failed, last.Status)
	}
	return last
}

func (f *fixture) mustMigrate(operation hostingv1alpha1.MigrationOperation, change func(*hostingv1alpha1.Migration)) *hostingv1alpha1.Migration {
	f.Helper()
	migration := f.migrate(operation, change)
	if migration.Status.Phase != hostingv1alpha1.MigrationCompleted {
		f.Fatalf("%s ended as %s: %s", operation, migration.Status.Phase, message(migration))
	}
	f.Logf("%s took %s; %d objects", operation, migration.Status.CompletionTime.Sub(migration.Status.StartTime.Time), migration.Status.Objects)
	return migration
}

func message(migration *hostingv1alpha1.Migration) string {
	complete := meta.FindStatusCondition(migration.Status.Conditions, hostingv1alpha1.MigrationComplete)
	if complete == nil {
		return "no condition"
	}
	return fmt.Sprintf("%s: %s", complete.Reason, complete.Message)
}

// logMigrations logs the Migrations of the group and their events if the test has failed.
func (f *fixture) logMigrations() {
	if !f.Failed() {
		return
	}
	events, err := f.main.Kube.EventsV1().Events(metav1.NamespaceDefault).List(context.Background(), metav1.ListOptions{})
	if err != nil {
		f.Error(err)
		return
	}
	for _, migration := range f.migrations() {
		f.Logf("%s %s: %+v", migration.Name, migration.Spec.Operation, migration.Status)
		for i := range events.Items {
			if event := &events.Items[i]; event.Regarding.UID == migration.UID {
				f.Logf("%s %s: %s", event.EventTime.Format("15:04:05.000"), event.Reason, event.Note)
			}
		}
	}
}

// migrations returns the Migrations of the group.
func (f *fixture) migrations() []hostingv1alpha1.Migration {
	f.Helper()
	all, err := f.own.Hosting.HostingV1alpha1().Migrations().List(context.Background(), metav1.ListOptions{})
	if err != nil {
		f.Error(err)
		return nil
	}
	return slices.DeleteFunc(all.Items, func(m hostingv1alpha1.Migration) bool { return m.Spec.Group != f.group })
}
