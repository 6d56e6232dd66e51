// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package controllers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/annex-dev/annex/pkg/aggregated/maincopy"
	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/storage/move"
	"github.com/annex-dev/annex/pkg/test/annextest"
	"github.com/annex-dev/annex/pkg/test/clients"
	"github.com/annex-dev/annex/pkg/test/crds"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/maincluster"
	"github.com/annex-dev/annex/pkg/test/poll"
)

const namespace = metav1.NamespaceDefault

// TestMainCopy runs the tests of pkg/aggregated/maincopy with a second kube-apiserver that stands in for
// annex: it has objects with the same UIDs, and requests of the main cluster can be routed to it.
func TestMainCopy(t *testing.T) {
	runGroup(t, startStandIn(t), []groupedTest[*maincluster.Cluster]{
		{"sync survives restarts", testSyncSurvivesRestarts},
		// It reads the objects of all groups, which fails while another test changes a definition.
		{"owners", testOwners},
	}, []groupedTest[*maincluster.Cluster]{
		{"sync", testSync},
		{"sync opens again", testSyncOpensAgain},
		{"sync of a replaced process", testSyncOfReplaced},
		{"sync of many objects", testSyncManyObjects},
		{"sync of unchanged objects", testSyncUnchanged},
		{"sync under load", testSyncUnderLoad},
		{"freeze", testFreeze},
		{"copy is reserved", testCopyIsReserved},
		{"deleted namespaces", testDeletedNamespaces},
		{"delete all", testDeleteAll},
		{"raise revision", testRaiseRevision},
		{"open and close", testOpenAndClose},
		{"end watches", testEndWatches},
	})
}

func startStandIn(t testing.TB) *maincluster.Cluster {
	t.Helper()
	// Those that kube-apiserver has not finalized would still be in its OpenAPI documents.
	t.Cleanup(func() { expect.Succeeds(t, annextest.DeleteDefinitions(context.Background(), mainCluster)) })
	return maincluster.StartForTest(t, maincluster.Options{Controllers: []string{maincluster.NoControllers}})
}

// fixture is a group that both clusters define, and annex's clients with its rights.
type fixture struct {
	group   string
	standIn *maincluster.Cluster
	copy    *maincopy.Copy
	// main and annex are administrators' clients.
	main, annex *clients.Clients
	// records has a *pairRecord for each resource.
	records sync.Map
}

func newFixture(t testing.TB, standIn *maincluster.Cluster, group string, definitions ...*apiextensionsv1.CustomResourceDefinition) *fixture {
	t.Helper()
	f := &fixture{group: group, standIn: standIn, main: clients.For(t, mainCluster.Config), annex: clients.For(t, standIn.Config)}
	if len(definitions) == 0 {
		definitions = []*apiextensionsv1.CustomResourceDefinition{newCopiedDefinition(group, "widgets")}
	}
	// Objects with finalizers would keep the definitions, after the cleanups below.
	t.Cleanup(func() {
		expect.Succeeds(t, mainCluster.DeleteEtcdKeys(context.Background(), "/registry/"+group+"/"))
	})
	var names []string
	for _, definition := range definitions {
		names = append(names, definition.Name)
		for _, side := range []*clients.Clients{f.main, f.annex} {
			expect.Create(t, side.CRDs(), definition.DeepCopy())
			t.Cleanup(func() {
				err := side.CRDs().Delete(context.Background(), definition.Name, metav1.DeleteOptions{})
				if err != nil && !apierrors.IsNotFound(err) {
					t.Error(err)
				}
			})
			poll.UntilNoError(t, definition.Name+" is served", func() error {
				_, err := side.Dynamic.Resource(resourceOf(definition)).List(t.Context(), metav1.ListOptions{})
				return err
			})
		}
	}
	user := "annex-of-" + group
	f.allow(t, user, names)
	config, err := mainCluster.ConfigFor(user)
	expect.NoError(t, err)
	f.copy, err = maincopy.New(maincopy.Config{Main: config, Annex: f.standIn.Config, Settle: time.Second})
	expect.NoError(t, err)
	return f
}

// allow grants what `annex move` does, and what it needs of rbac.yaml.
func (f *fixture) allow(t testing.TB, user string, definitions []string) {
	t.Helper()
	meta := metav1.ObjectMeta{Name: user}
	subjects := []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}}
	rules := slices.Concat(maincopy.MoveRules(f.group, definitions...), maincopy.OwnerRules(), []rbacv1.PolicyRule{
		{APIGroups: []string{apiextensionsv1.GroupName}, Resources: []string{"customresourcedefinitions"}, Verbs: []string{"get", "list"}},
		{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"list"}},
		{APIGroups: []string{"apiregistration.k8s.io"}, Resources: []string{"apiservices"}, Verbs: []string{"get"}},
	})
	mainKube := f.main.Kube
	_, err := mainKube.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: hostingv1alpha1.NamespaceAnnexSystem}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	expect.Create(t, mainKube.RbacV1().ClusterRoles(), &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules})
	expect.Create(t, mainKube.RbacV1().ClusterRoleBindings(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta, Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
	})
	expect.Create(t, mainKube.RbacV1().Roles(hostingv1alpha1.NamespaceAnnexSystem), &rbacv1.Role{ObjectMeta: meta, Rules: maincopy.NamespaceRules()})
	expect.Create(t, mainKube.RbacV1().RoleBindings(hostingv1alpha1.NamespaceAnnexSystem), &rbacv1.RoleBinding{
		ObjectMeta: meta, Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user},
	})
}

// newCopiedDefinition has status as a subresource, and a list that is merged by name.
func newCopiedDefinition(group, plural string, versions ...string) *apiextensionsv1.CustomResourceDefinition {
	if len(versions) == 0 {
		versions = []string{"v1"}
	}
	crd := crds.New(group, plural, versions...)
	preserve := true
	for i := range crd.Spec.Versions {
		crd.Spec.Versions[i].Subresources = &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}}
		crd.Spec.Versions[i].Schema.OpenAPIV3Schema.Properties = map[string]apiextensionsv1.JSONSchemaProps{
			"spec": {Type: "object", XPreserveUnknownFields: &preserve, Properties: map[string]apiextensionsv1.JSONSchemaProps{
				"parts": {Type: "array", XListType: new("map"), XListMapKeys: []string{"name"}, Items: &apiextensionsv1.JSONSchemaPropsOrArray{
					Schema: &apiextensionsv1.JSONSchemaProps{
						Type: "object", XPreserveUnknownFields: &preserve, Required: []string{"name"},
						Properties: map[string]apiextensionsv1.JSONSchemaProps{"name": {Type: "string"}},
					},
				}},
			}},
		}
	}
	return crd
}

func resourceOf(definition *apiextensionsv1.CustomResourceDefinition) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: definition.Spec.Group, Version: definition.Spec.Versions[0].Name, Resource: definition.Spec.Names.Plural}
}

// objects returns a client for objects in a version.
func (f *fixture) objects(client *clients.Clients, plural, version string) dynamic.ResourceInterface {
	return client.Dynamic.Resource(schema.GroupVersionResource{Group: f.group, Version: version, Resource: plural}).Namespace(namespace)
}

// inMain is for the main cluster's copy.
func (f *fixture) inMain(plural string) dynamic.ResourceInterface {
	return f.objects(f.main, plural, hostingv1alpha1.MainCopyVersion)
}

func (f *fixture) inAnnex(plural string) dynamic.ResourceInterface {
	return f.objects(f.annex, plural, "v1")
}

func (f *fixture) newObject(kind, name string, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": f.group + "/v1", "kind": kind, "metadata": map[string]any{"name": name}, "spec": spec,
	}}
}

// move copies the stored objects of a resource to annex, with their UIDs.
func (f *fixture) move(t testing.TB, plural string) {
	t.Helper()
	keys, err := mainCluster.EtcdKeys(t.Context(), fmt.Sprintf("/registry/%s/%s/", f.group, plural))
	expect.NoError(t, err)
	for _, key := range keys {
		value, err := mainCluster.EtcdValue(t.Context(), key)
		expect.NoError(t, err)
		expect.NoError(t, f.standIn.PutEtcdKey(t.Context(), key, value))
	}
}

func (f *fixture) open(t testing.TB) map[string]maincopy.Resource {
	t.Helper()
	opened, err := f.copy.Open(t.Context(), f.group)
	expect.NoError(t, err)
	resources := map[string]maincopy.Resource{}
	for _, resource := range opened {
		resources[resource.Stored.Resource] = resource
	}
	return resources
}

// source returns the objects of annex, and what is recorded of their pairs.
func (f *fixture) source(t testing.TB, resource maincopy.Resource) maincopy.Origin {
	t.Helper()
	return struct {
		move.Source
		maincopy.PairRecord
	}{f.copy.InAnnex(resource.Stored), f.record(resource)}
}

// record returns the pairs of a resource.
func (f *fixture) record(resource maincopy.Resource) *pairRecord {
	of, _ := f.records.LoadOrStore(resource.Name, &pairRecord{})
	return of.(*pairRecord)
}

// pairRecord is a PairRecord in memory.
type pairRecord struct{ pairs sync.Map }

func (r *pairRecord) PutPair(_ context.Context, uid types.UID, value []byte) error {
	r.pairs.Store(uid, value)
	return nil
}

func (r *pairRecord) Pairs(_ context.Context, visit func(uid types.UID, value []byte) error) (err error) {
	r.pairs.Range(func(uid, value any) bool {
		err = visit(uid.(types.UID), value.([]byte))
		return err == nil
	})
	return err
}

// has reports whether an object of the main cluster is recorded as the pair of one of annex.
func (r *pairRecord) has(annex, main types.UID) bool {
	value, found := r.pairs.Load(annex)
	return found && bytes.Contains(value.([]byte), []byte(main))
}

// start runs a Syncer until the test ends, and returns when it has caught up.
func (f *fixture) start(t testing.TB, resource maincopy.Resource, pairs *maincopy.Pairs) *move.Syncer {
	t.Helper()
	syncer, err := f.copy.NewSyncer(resource, f.source(t, resource), pairs)
	expect.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended, caughtUp := make(chan error, 1), make(chan struct{})
	go func() { ended <- syncer.Run(ctx, func() { close(caughtUp) }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; !errorsIsCanceled(err) {
			t.Errorf("the syncer ended with %v", err)
		}
	})
	// On a busy machine many objects take longer than one wait.
	for done, last := false, syncer.Progress(); !done; last = syncer.Progress() {
		poll.UntilDone(t, "the syncer has caught up or written more", func() (bool, string) {
			select {
			case <-caughtUp:
				done = true
			default:
			}
			return done || syncer.Progress().Written > last.Written, fmt.Sprint(syncer.Progress(), syncer.Problem())
		})
	}
	return syncer
}

func errorsIsCanceled(err error) bool { return errors.Is(err, context.Canceled) }

// drain also verifies.
func drain(t testing.TB, syncer *move.Syncer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), poll.Timeout)
	defer cancel()
	started := time.Now()
	expect.NoError(t, syncer.Drain(ctx))
	t.Logf("drained in %s, %+v", time.Since(started).Round(time.Millisecond), syncer.Progress())
	expect.NoError(t, syncer.Verify(ctx))
}

func create(t testing.TB, objects dynamic.ResourceInterface, object *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	created, err := objects.Create(t.Context(), object, metav1.CreateOptions{})
	expect.NoError(t, err)
	return created
}

func get(t testing.TB, objects dynamic.ResourceInterface, name string) *unstructured.Unstructured {
	t.Helper()
	found, err := objects.Get(t.Context(), name, metav1.GetOptions{})
	expect.NoError(t, err)
	return found
}
