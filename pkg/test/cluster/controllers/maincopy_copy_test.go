// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package controllers

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/annex-dev/annex/pkg/aggregated/maincopy"
	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/clients"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/maincluster"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// testFreeze: all writes of the group's objects in the main cluster are denied, except annex's.
func testFreeze(t *testing.T, standIn *maincluster.Cluster) {
	f := newFixture(t, standIn, "frozen.example.com")
	create(t, f.objects(f.main, "widgets", "v1"), f.newObject("Widget", "a", map[string]any{}))
	resource := f.open(t)["widgets"]
	for range 2 {
		expect.NoError(t, f.copy.Freeze(t.Context(), f.group))
	}
	writes := f.writes(t, f.main, "v1")
	wantDenied(t, "administrator", writes, "served by annex", "frozen")
	// annex itself still writes, and unfreezing allows all others.
	syncer := f.start(t, resource, maincopy.NewPairs(f.group, resource))
	create(t, f.inAnnex("widgets"), f.newObject("Widget", "c", map[string]any{}))
	drain(t, syncer)
	for range 2 {
		expect.NoError(t, f.copy.Unfreeze(t.Context(), f.group))
	}
	expect.NoError(t, writes["create"](), "a write after it was unfrozen")
}

// testCopyIsReserved: all writes of the open copy are denied, except annex's.
func testCopyIsReserved(t *testing.T, standIn *maincluster.Cluster) {
	f := newFixture(t, standIn, "reserved.example.com")
	create(t, f.objects(f.main, "widgets", "v1"), f.newObject("Widget", "a", map[string]any{}))
	resource := f.open(t)["widgets"]
	collector, err := mainCluster.ConfigFor("system:kube-controller-manager", "system:masters")
	expect.NoError(t, err)
	for user, client := range map[string]*clients.Clients{"administrator": f.main, "garbage collector": clients.For(t, collector)} {
		writes := f.writes(t, client, hostingv1alpha1.MainCopyVersion)
		delete(writes, "patch status") // the version has no subresources
		wantDenied(t, user, writes, "only annex writes")
	}
	syncer := f.start(t, resource, maincopy.NewPairs(f.group, resource))
	create(t, f.inAnnex("widgets"), f.newObject("Widget", "c", map[string]any{}))
	drain(t, syncer)
	expect.NoError(t, f.copy.Close(t.Context(), f.group))
	expect.Gone(t, f.main.Kube.AdmissionregistrationV1().ValidatingAdmissionPolicies(), hostingv1alpha1.CopyPolicyName(f.group))
	expect.Gone(t, f.main.Kube.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings(), hostingv1alpha1.CopyPolicyName(f.group))
}

// wantDenied fails unless each write of a user is denied with these words.
func wantDenied(t *testing.T, user string, writes map[string]func() error, words ...string) {
	t.Helper()
	for name, write := range writes {
		if err := write(); expect.MissingFrom(err, words...) != "" {
			t.Errorf("%s of the %s: %v", name, user, err)
		}
	}
}

// writes are one write of each kind of widget a.
func (f *fixture) writes(t *testing.T, client *clients.Clients, version string) map[string]func() error {
	objects := f.objects(client, "widgets", version)
	return map[string]func() error{
		"create": func() error {
			object := f.newObject("Widget", "b", map[string]any{})
			object.SetAPIVersion(f.group + "/" + version)
			_, err := objects.Create(t.Context(), object, metav1.CreateOptions{})
			return err
		},
		"patch": func() error {
			_, err := objects.Patch(t.Context(), "a", types.MergePatchType, []byte(`{"spec":{"size":"large"}}`), metav1.PatchOptions{})
			return err
		},
		"patch status": func() error {
			_, err := objects.Patch(t.Context(), "a", types.MergePatchType, []byte(`{"status":{"phase":"Ready"}}`), metav1.PatchOptions{}, "status")
			return err
		},
		"delete": func() error { return objects.Delete(t.Context(), "a", metav1.DeleteOptions{}) },
		"delete all": func() error {
			return objects.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{})
		},
	}
}

// changesInDeletedNamespaces is the first minor version of Kubernetes that removes finalizers there.
const changesInDeletedNamespaces = 37

func minorVersion(t *testing.T) int {
	t.Helper()
	version, err := clients.For(t, mainCluster.Config).Kube.Discovery().ServerVersion()
	expect.NoError(t, err)
	minor, err := strconv.Atoi(strings.TrimSuffix(version.Minor, "+"))
	expect.NoError(t, err)
	return minor
}

const staleName = "stale"

// testDeletedNamespaces: objects whose namespaces were deleted while annex served them disappear from the copy.
func testDeletedNamespaces(t *testing.T, standIn *maincluster.Cluster) {
	f := newFixture(t, standIn, "stale.example.com")
	create(t, f.objects(f.main, "widgets", "v1"), f.newObject("Widget", "a", map[string]any{}))
	created := create(t, f.objects(f.main, "widgets", "v1"), f.newObject("Widget", staleName, map[string]any{}))
	const stale = "/registry/stale.example.com/widgets/missing/" + staleName
	value, err := mainCluster.EtcdValue(t.Context(), strings.Replace(stale, "missing", namespace, 1))
	expect.NoError(t, err)
	value = strings.Replace(value, `"namespace":"default"`, `"namespace":"missing"`, 1)
	value = strings.Replace(value, string(created.GetUID()), string(uuid.NewUUID()), 1)
	put := func(value string) {
		t.Helper()
		expect.NoError(t, mainCluster.PutEtcdKey(t.Context(), stale, value))
	}
	open := func() maincopy.Resource {
		t.Helper()
		opened := f.open(t)["widgets"]
		keys, err := mainCluster.EtcdKeys(t.Context(), stale)
		expect.NoError(t, err)
		expect.Equal(t, 0, len(keys), "objects in the deleted namespace")
		return opened
	}
	put(value)
	resource := open()

	t.Log("others write the copy while they are deleted")
	put(value)
	f.denyWhileDeleting(t, resource)
	open()

	t.Log("a namespace is deleted while the copy is open")
	f.move(t, "widgets")
	put(value)
	syncer, err := f.copy.NewSyncer(resource, f.source(t, resource), maincopy.NewPairs(f.group, resource))
	expect.NoError(t, err)
	expect.Error(t, syncer.Run(t.Context(), func() {}), "missing/"+staleName, "namespace is gone")
	drain(t, f.start(t, open(), maincopy.NewPairs(f.group)))

	t.Log("it had objects with finalizers")
	put(strings.Replace(value, `"namespace":"missing"`, `"namespace":"missing","finalizers":["`+finalizer+`"]`, 1))
	if minor := minorVersion(t); minor < changesInDeletedNamespaces {
		_, err = f.copy.Open(t.Context(), f.group)
		expect.Error(t, err, "missing/"+staleName, "Create the namespace")
		expect.Create(t, f.main.Kube.CoreV1().Namespaces(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "missing"}})
	}
	drain(t, f.start(t, f.open(t)["widgets"], maincopy.NewPairs(f.group)))
	open()
}

// denyWhileDeleting fails unless other users' writes are denied while annex tries to delete a stale object.
func (f *fixture) denyWhileDeleting(t *testing.T, resource maincopy.Resource) {
	t.Helper()
	allow := f.block(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		var err error
		for ctx.Err() == nil {
			_, err = f.copy.Open(ctx, f.group)
		}
		ended <- err
	}()
	writeStale := func() error {
		_, err := f.inMain("widgets").Patch(t.Context(), staleName, types.MergePatchType, []byte(`{"spec":{"size":"large"}}`), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	poll.UntilNoError(t, "objects with the name of the stale one may be written", writeStale)
	writes := f.writes(t, f.main, hostingv1alpha1.MainCopyVersion)
	delete(writes, "patch status") // the version has no subresources
	writes["create with the name of the stale object"] = func() error {
		object := f.newObject("Widget", staleName, map[string]any{})
		object.SetAPIVersion(resource.Opened().GroupVersion().String())
		_, err := f.main.Dynamic.Resource(resource.Opened()).Namespace(metav1.NamespaceSystem).Create(t.Context(), object, metav1.CreateOptions{})
		return err
	}
	wantDenied(t, "administrator", writes, "only annex writes")
	get(t, f.inMain("widgets"), staleName)

	cancel()
	expect.Error(t, <-ended)
	poll.Until(t, "no object may be written", func() string { return expect.MissingFrom(writeStale(), "only annex writes") })
	allow()
}

// block denies the deletion of objects with the name of the stale one, until the result is called.
func (f *fixture) block(t *testing.T) (allow func()) {
	t.Helper()
	policies := f.main.Kube.AdmissionregistrationV1()
	rule := admissionregistrationv1.NamedRuleWithOperations{ResourceNames: []string{staleName}, RuleWithOperations: admissionregistrationv1.RuleWithOperations{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Delete},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{f.group}, APIVersions: []string{"*"}, Resources: []string{"*"}},
	}}
	expect.Create(t, policies.ValidatingAdmissionPolicies(), &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: f.group},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{rule}},
			Validations:      []admissionregistrationv1.Validation{{Expression: "false", Message: "blocked"}},
		},
	})
	expect.Create(t, policies.ValidatingAdmissionPolicyBindings(), &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: f.group},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: f.group, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	})
	poll.Until(t, "deletions are blocked", func() string {
		err := f.objects(f.main, "widgets", "v1").Delete(t.Context(), staleName, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
		return expect.MissingFrom(err, "blocked")
	})
	return func() {
		t.Helper()
		expect.Delete(t, policies.ValidatingAdmissionPolicyBindings(), f.group)
		expect.Delete(t, policies.ValidatingAdmissionPolicies(), f.group)
	}
}

// testDeleteAll deletes two pages of objects without their finalizers.
func testDeleteAll(t *testing.T, standIn *maincluster.Cluster) {
	const objects = 510 // a page has 500
	f := newFixture(t, standIn, "deleted.example.com")
	for i := range objects {
		object := f.newObject("Widget", fmt.Sprintf("object-%d", i), map[string]any{})
		if i%3 == 0 {
			object.SetFinalizers([]string{finalizer})
		}
		create(t, f.objects(f.main, "widgets", "v1"), object)
	}
	expect.NoError(t, f.objects(f.main, "widgets", "v1").Delete(t.Context(), "object-0", metav1.DeleteOptions{}))
	resource := f.open(t)["widgets"]
	total, err := f.copy.Opened(resource).Count(t.Context())
	expect.NoError(t, err)
	expect.Equal(t, int64(objects), total)
	var highest atomic.Int64
	for range 2 {
		expect.NoError(t, f.copy.DeleteAll(t.Context(), resource, func(deleted int64) { highest.Store(max(highest.Load(), deleted)) }))
	}
	keys, err := mainCluster.EtcdKeys(t.Context(), "/registry/"+f.group)
	expect.NoError(t, err)
	if len(keys) > 0 || highest.Load() < objects-maincopy.Workers {
		t.Errorf("%d objects were reported as deleted, and %d are left", highest.Load(), len(keys))
	}
}

// testRaiseRevision raises the revision by some hundreds, and refuses to raise it by millions.
func testRaiseRevision(t *testing.T, standIn *maincluster.Cluster) {
	f := newFixture(t, standIn, "revision.example.com")
	now, err := f.copy.RaiseRevision(t.Context(), 0)
	expect.NoError(t, err)
	// As the rollbacks of several groups do.
	var raising errgroup.Group
	for range 4 {
		raising.Go(func() error {
			raised, err := f.copy.RaiseRevision(t.Context(), now+500)
			if err == nil && raised <= now+500 {
				err = fmt.Errorf("the revision was raised to %d, want more than %d", raised, now+500)
			}
			return err
		})
	}
	expect.NoError(t, raising.Wait())
	_, err = f.copy.RaiseRevision(t.Context(), now+2*maincopy.MaxRaise)
	expect.Error(t, err, "too far ahead")
	// The tests beside this one raise it too.
	poll.Until(t, "no ConfigMap is left", func() string {
		left, err := f.main.Kube.CoreV1().ConfigMaps("annex-system").List(t.Context(), metav1.ListOptions{})
		expect.NoError(t, err)
		for _, found := range left.Items {
			if found.Name != "kube-root-ca.crt" {
				return found.Name
			}
		}
		return ""
	})
}

// BenchmarkRaiseRevision measures the writes per second by which the revision rises.
func BenchmarkRaiseRevision(b *testing.B) {
	f := newFixture(b, startStandIn(b), fmt.Sprintf("bench-%d.example.com", b.N))
	now, err := f.copy.RaiseRevision(b.Context(), 0)
	expect.NoError(b, err)
	b.ResetTimer()
	raised, err := f.copy.RaiseRevision(b.Context(), now+int64(b.N))
	b.StopTimer()
	expect.NoError(b, err)
	b.ReportMetric(float64(raised-now)/b.Elapsed().Seconds(), "revisions/s")
}
