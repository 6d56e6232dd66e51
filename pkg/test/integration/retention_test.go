// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/storage/archive"
	"github.com/annex-dev/annex/pkg/storage/etcd/embeddedetcd/etcdtest"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// finishedSchema has a phase and a time.
const finishedSchema = `
type: object
properties:
  status:
    type: object
    properties:
      phase: {type: string}
      finishedAt: {type: string, format: date-time}
`

// doneRule deletes objects that finished a minute ago.
const doneRule = `{"name": "done", "afterSeconds": 60, "phase": {"path": ".status.phase", "values": ["Done"], "timestampPath": ".status.finishedAt"}}`

// setRetention sets the retention of the HostedResource, or removes it with null.
func (r *resource) setRetention(t *testing.T, retention string) {
	t.Helper()
	r.setLimits(t, `{"retention": `+retention+`}`)
}

// createDone creates Widgets that finished some hours ago, the last one first.
func (r *resource) createDone(t *testing.T, names ...string) {
	t.Helper()
	for i, name := range names {
		finished := time.Now().Add(-time.Duration(i+1) * time.Hour).UTC().Format(time.RFC3339)
		r.create(t, "v1", name, fmt.Sprintf("status: {phase: Done, finishedAt: %q}", finished))
	}
}

// waitForRetention waits for the condition RetentionSucceeded.
func (r *resource) waitForRetention(t *testing.T, status metav1.ConditionStatus, reason, words string) *hostingv1alpha1.HostedResource {
	t.Helper()
	const name = hostingv1alpha1.HostedResourceRetentionSucceeded
	what := fmt.Sprintf("has the condition %s %s %s %q", name, status, reason, words)
	return r.waitForHostedResource(t, what, func(hosted *hostingv1alpha1.HostedResource) bool {
		condition := meta.FindStatusCondition(hosted.Status.Conditions, name)
		return condition != nil && condition.Status == status && condition.Reason == reason &&
			condition.ObservedGeneration == hosted.Generation && strings.Contains(condition.Message, words)
	})
}

func TestRetention(t *testing.T) {
	t.Parallel()
	r := sharedAnnex(t).installCRD(t, newCRD(t, finishedSchema))
	r.createDone(t, "new", "middle", "old", "held")
	r.create(t, "v1", "running", "status: {phase: Running}")
	r.create(t, "v1", "no-time", "status: {phase: Done}")
	r.mustPatch(t, "v1", "held", `{"metadata": {"finalizers": ["example.com/hold"]}}`)

	retention := func(dryRun bool) string {
		return fmt.Sprintf(`{"dryRun": %t, "rules": [%s]}`, dryRun, strings.Replace(doneRule, "{", `{"keepNewest": {"count": 1},`, 1))
	}
	r.setRetention(t, retention(true))
	hosted := r.waitForRetention(t, metav1.ConditionTrue, "DryRun", "Would delete 3 objects")
	rule := hosted.Status.Retention.Rules[0]
	in := r.namespace + "/"
	expect.Equal(t, []string{in + "held", in + "old", in + "middle"}, rule.Examples)
	if rule.Matched != 5 || rule.Due != 3 || rule.Skipped != 1 {
		t.Errorf("the status of the rule is %+v", rule)
	}
	r.wantNames(t, "after the dry run", "held", "middle", "new", "no-time", "old", "running")

	r.setRetention(t, retention(false))
	hosted = r.waitForRetention(t, metav1.ConditionTrue, "Completed", "Deleted 3 objects")
	if hosted.Status.Retention.Deleted != 3 || hosted.Status.Retention.Rules[0].Deleted != 3 {
		t.Errorf("the status is %+v", hosted.Status.Retention)
	}
	r.waitForNames(t, "held", "new", "no-time", "running")
	if held := r.get(t, "v1", "held"); held.GetDeletionTimestamp() == nil {
		t.Error("the object with a finalizer is not being deleted")
	}
	deleted := fmt.Sprintf(`annex_retention_deleted_objects_total{hostedresource=%q,rule="done"} 3`, r.name)
	expect.Contains(t, string(r.annex.get(t, "/metrics").Body), deleted)
	poll.UntilDone(t, "an event about "+r.name, func() (bool, string) {
		events, err := r.annex.Kube.CoreV1().Events("").List(t.Context(), metav1.ListOptions{FieldSelector: "reason=ObjectsDeleted,involvedObject.name=" + r.name})
		if err != nil || len(events.Items) != 1 {
			return false, fmt.Sprint(len(events.Items), " events, ", err)
		}
		return strings.HasPrefix(events.Items[0].Message, "Deleted 3 objects, 3 by rule done: "), events.Items[0].Message
	})

	r.removeFinalizers(t, "held")
	r.setRetention(t, "null")
	r.waitForHostedResource(t, "has no retention any more", func(hosted *hostingv1alpha1.HostedResource) bool {
		return hosted.Status.Retention == nil && meta.FindStatusCondition(hosted.Status.Conditions, hostingv1alpha1.HostedResourceRetentionValid) == nil
	})
	r.createDone(t, "late")
	r.wantNames(t, "without a retention", "late", "new", "no-time", "running")
}

// TestRetentionOfObjectsThatFinishLater waits for changes of objects.
func TestRetentionOfObjectsThatFinishLater(t *testing.T) {
	t.Parallel()
	r := sharedAnnex(t).installCRD(t, newCRD(t, finishedSchema))
	r.create(t, "v1", "a", "status: {phase: Running}")
	r.create(t, "v1", "b", "status: {phase: Running}")
	r.setRetention(t, `{"rules": [{"name": "done", "phase": {"path": ".status.phase", "values": ["Done"]}}]}`)
	r.waitForRetention(t, metav1.ConditionTrue, "Completed", "rule done applies to none of 2 objects")
	r.mustPatch(t, "v1", "b", `{"status": {"phase": "Done"}}`)
	r.waitForNames(t, "a")
}

// TestRetentionOfOwners has a dependent with blockOwnerDeletion and a finalizer.
func TestRetentionOfOwners(t *testing.T) {
	t.Parallel()
	r := readableAnnex(t).installCRD(t, newCRD(t, finishedSchema))
	r.createDone(t, "owner")
	owner := r.get(t, "v1", "owner")
	expect.Create(t, r.annex.Kube.CoreV1().ConfigMaps(r.namespace), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Name: "dependent", Finalizers: []string{"example.com/hold"},
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: owner.GetAPIVersion(), Kind: owner.GetKind(), Name: owner.GetName(), UID: owner.GetUID(), BlockOwnerDeletion: new(true),
		}},
	}})
	r.setRetention(t, `{"rules": [`+doneRule+`]}`)
	expect.Eventually(t, r.annex.Kube.CoreV1().ConfigMaps(r.namespace), "dependent", "the dependent is being deleted",
		func(dependent *corev1.ConfigMap) bool { return dependent.DeletionTimestamp != nil })
	r.wantNames(t, "while a dependent remains", "owner")
	expect.Patch(t, r.annex.Kube.CoreV1().ConfigMaps(r.namespace), "dependent", `{"metadata": {"finalizers": null}}`)
	r.waitForNames(t)
}

// TestRetentionPerOwnerOfTenants creates objects as a tenant of another namespace, with a reference to the owner of
// an older object. The newest of each namespace are kept.
func TestRetentionPerOwnerOfTenants(t *testing.T) {
	t.Parallel()
	r := readableAnnex(t).installCRD(t, newCRD(t, finishedSchema))
	evil, tenant := r.annex.newNamespace(t), r.annex.newUser(t, "tenant-"+r.namespace)
	role := r.annex.newClusterRole(t, nil, coreRule("list", "configmaps"), rbacv1.PolicyRule{Verbs: []string{"create"}, APIGroups: []string{r.group}, Resources: []string{"widgets"}})
	r.annex.grant(t, tenant, role.Name, evil)
	owner, err := r.annex.Kube.CoreV1().Namespaces().Get(t.Context(), metav1.NamespaceSystem, metav1.GetOptions{})
	expect.NoError(t, err)
	create := func(client dynamic.Interface, namespace, name string, hours int) {
		t.Helper()
		object := r.object(t, "v1", name, fmt.Sprintf("status: {phase: Done, finishedAt: %q}", time.Now().Add(-time.Duration(hours)*time.Hour).UTC().Format(time.RFC3339)))
		object.SetNamespace(namespace)
		object.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Namespace", Name: owner.Name, UID: owner.UID, Controller: new(true)}})
		_, err := client.Resource(r.gvr("v1")).Namespace(namespace).Create(t.Context(), object, metav1.CreateOptions{})
		expect.NoError(t, err, "create %s/%s", namespace, name)
	}
	create(r.annex.Dynamic, r.namespace, "victim", 9)
	create(tenant.Dynamic, evil, "forged-1", 2)
	create(tenant.Dynamic, evil, "forged-2", 1)

	r.setRetention(t, fmt.Sprintf(`{"rules": [%s]}`, strings.Replace(doneRule, "{", `{"keepNewest": {"count": 1, "per": "Owner"},`, 1)))
	left := func() (names []string) {
		for _, object := range r.list(t) {
			names = append(names, object.GetName())
		}
		slices.Sort(names)
		return names
	}
	// The oldest are deleted first.
	poll.UntilDone(t, "the older object of the tenant is deleted", func() (bool, string) {
		return !slices.Contains(left(), "forged-1"), fmt.Sprint(left())
	})
	expect.Equal(t, []string{"forged-2", "victim"}, left())
}

// TestRetentionArchives reads what was deleted, and makes the archive unusable.
func TestRetentionArchives(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "archive")
	r := startAnnex(t, "--archive-dir="+dir).installCRD(t, newCRD(t, finishedSchema))
	r.createDone(t, "a", "b")
	before := r.get(t, "v1", "a")
	r.setRetention(t, `{"archive": true, "rules": [`+doneRule+`]}`)
	hosted := r.waitForRetention(t, metav1.ConditionTrue, "Completed", "Deleted 2 objects")
	expect.Equal(t, int64(2), hosted.Status.Retention.Archived)
	r.waitForNames(t)
	archived := map[string]map[string]any{}
	expect.NoError(t, archive.Read(dir, r.name, func(record archive.Record) error {
		object := map[string]any{}
		if err := json.Unmarshal(record.Object, &object); err != nil {
			return err
		}
		metadata, _ := object["metadata"].(map[string]any)
		archived[fmt.Sprint(metadata["name"])] = object
		return nil
	}))
	want, err := json.Marshal(before.Object)
	expect.NoError(t, err)
	got, err := json.Marshal(archived["a"])
	expect.NoError(t, err)
	if len(archived) != 2 || string(got) != string(want) {
		t.Errorf("archived %d objects, a is\n%s\nwant\n%s", len(archived), got, want)
	}

	expect.NoError(t, os.Rename(dir, dir+"-away"))
	r.createDone(t, "c")
	r.setRetention(t, `{"archive": true, "deletionsPerSecond": 50, "rules": [`+doneRule+`]}`)
	r.waitForRetention(t, metav1.ConditionFalse, "ArchiveFailed", "nothing is deleted")
	r.wantNames(t, "without the archive", "c")
	expect.NoError(t, os.Rename(dir+"-away", dir))
	r.setRetention(t, `{"archive": true, "deletionsPerSecond": 60, "rules": [`+doneRule+`]}`)
	r.waitForNames(t)
}

// TestRetentionContinuesOnAnotherReplica stops the leader while it deletes.
func TestRetentionContinuesOnAnotherReplica(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t, nil).Endpoint()
	first := startReplica(t, etcd)
	onFirst := first.installCRD(t, newCRD(t, finishedSchema))
	second := onFirst.on(startReplica(t, etcd).annex)
	var names []string
	for i := range 10 { // beside other tests, each deletion takes seconds
		names = append(names, fmt.Sprintf("w-%02d", i))
	}
	second.createDone(t, names...)
	second.create(t, "v1", "running", "status: {phase: Running}")
	second.setRetention(t, `{"deletionsPerSecond": 2, "rules": [`+doneRule+`]}`)
	poll.UntilDone(t, "some are deleted", func() (bool, string) {
		left := len(second.names(t, "v1", metav1.ListOptions{}))
		return left <= len(names), fmt.Sprint(left, " are left")
	})
	first.Stop(t)
	second.waitForNames(t, "running")
}
