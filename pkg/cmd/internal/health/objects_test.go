// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package health

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/annex-dev/annex/pkg/aggregated/group/grouptest"
	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

func reported(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message}
}

func hosted(name string, conditions ...metav1.Condition) *hostingv1alpha1.HostedResource {
	return &hostingv1alpha1.HostedResource{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: hostingv1alpha1.HostedResourceStatus{Conditions: conditions}}
}

func on(store string, of *hostingv1alpha1.HostedResource) *hostingv1alpha1.HostedResource {
	of.Spec.StoreName = store
	return of
}

func store(name string, conditions ...metav1.Condition) *hostingv1alpha1.Store {
	return &hostingv1alpha1.Store{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: hostingv1alpha1.StoreStatus{Conditions: conditions}}
}

// filled sets how much of the quota is in use.
func filled(of *hostingv1alpha1.Store, percent int64) *hostingv1alpha1.Store {
	of.Status.SizeInUse, of.Status.Quota = resource.NewQuantity(percent, resource.BinarySI), resource.NewQuantity(100, resource.BinarySI)
	return of
}

// withDisk sets the free space of the volume of a database of 100 bytes.
func withDisk(of *hostingv1alpha1.Store, free int64) *hostingv1alpha1.Store {
	of.Status.DiskFree, of.Status.DatabaseSize = resource.NewQuantity(free, resource.BinarySI), resource.NewQuantity(100, resource.BinarySI)
	return of
}

func migration(name string, age time.Duration, spec hostingv1alpha1.MigrationSpec, phase hostingv1alpha1.MigrationPhase, reason string) *hostingv1alpha1.Migration {
	return &hostingv1alpha1.Migration{
		ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(noon.Add(-age))}, Spec: spec,
		Status: hostingv1alpha1.MigrationStatus{Phase: phase, Objects: 3, Conditions: []metav1.Condition{reported("Complete", "False", reason, "m")}},
	}
}

func TestStores(t *testing.T) {
	t.Parallel()
	fine := reported("Ready", "True", "Available", "")
	runCheck(t, checkStores, map[string]checkTest{
		"fine": {annexHas(store("default", fine, reported("UnderPressure", "False", "NoPressure", "")), filled(store("west", fine), 80)), []want{{LevelOK, "2 Stores are ready", ""}}},
		"away": {annexHas(store("west", reported("Ready", "False", "Unreachable", "start\netcd"), reported("UnderPressure", "Unknown", "Unreachable", "m"))),
			[]want{{LevelFail, "west: Ready is False: Unreachable: start etcd", "kubectl describe store west"}}},
		"connects": {annexHas(store("west", reported("Ready", "Unknown", "Connecting", "m"))), []want{{LevelWarn, "west: Ready is Unknown", "describe"}}},
		"full": {annexHas(filled(store("west", reported("Ready", "False", "NoSpace", "m"), reported("UnderPressure", "True", "NoSpace", "m")), 100)),
			[]want{{LevelFail, "west: Ready is False: NoSpace", "describe"}}},
		"nearly full": {annexHas(filled(store("west", fine, reported("UnderPressure", "True", "AlmostFull", "m")), 91)), []want{{LevelWarn, "91 % of the quota", "describe"}}},
		"slow":        {annexHas(store("west", fine, reported("UnderPressure", "True", "Slow", "m"))), []want{{LevelWarn, "UnderPressure is True: Slow", "describe"}}},
		"disk":        {annexHas(withDisk(store("default", fine), 99)), []want{{LevelWarn, "default: the volume of annex has 99 free, too little to defragment 100", "#annexdiskalmostfull"}}},
		"enough disk": {annexHas(withDisk(store("default", fine), 100)), []want{{LevelOK, "1 Stores are ready", ""}}},
		"degraded":    {annexHas(store("west", reported("Ready", "True", "Degraded", "m"))), []want{{LevelWarn, "Degraded", "describe"}}},
		"expires":     {annexHas(store("west", reported("Ready", "True", "CertificateExpiring", "m"))), []want{{LevelFail, "CertificateExpiring", "describe"}}},
	})
}

func annexHas(objects ...runtime.Object) fixture { return fixture{annexObjects: objects} }

func TestResources(t *testing.T) {
	t.Parallel()
	fine := hosted("a.example.com", reported("DefinitionSynced", "True", "Synced", ""), reported("Published", "True", "Published", ""), reported("Ready", "True", "Ready", ""))
	tests := map[string]checkTest{
		"fine":              {fixture{annexObjects: []runtime.Object{fine}, definitions: []runtime.Object{grouptest.CRD("a.example.com", grouptest.Labelled)}}, []want{{LevelOK, "1 resources without a problem", ""}}},
		"none":              {fixture{}, []want{{LevelOK, "0 resources", ""}}},
		"no HostedResource": {fixture{definitions: []runtime.Object{grouptest.CRD("a.example.com", grouptest.Labelled)}}, []want{{LevelFail, "a.example.com is labelled annex.dev/hosted=true, and has no HostedResource", "logs"}}},
		"a command": {fixture{annexObjects: []runtime.Object{hosted("a.example.com",
			reported("DefinitionSynced", "False", "GroupIncomplete", "not labelled: b. Label them: kubectl label crd b annex.dev/hosted=true"), reported("Ready", "False", "NotPublished", "m"))}},
			[]want{{LevelFail, "a.example.com: DefinitionSynced is False: GroupIncomplete: not labelled: b. Label them", "kubectl label crd b annex.dev/hosted=true"}}},
		"waiting": {fixture{annexObjects: []runtime.Object{hosted("a.example.com", reported("DefinitionSynced", "Unknown", "TakingOver", "m"))}}, []want{{LevelWarn, "TakingOver: m", "kubectl describe hostedresource a.example.com"}}},
		"objects to move": {fixture{annexObjects: []runtime.Object{hosted("a.example.com", reported("DefinitionSynced", "False", "ObjectsExist", "Move the group with its objects: kubectl annex move example.com"))}},
			[]want{{LevelFail, "ObjectsExist: Move the group with its objects", "kubectl annex move example.com"}}},
		"objects": {fixture{annexObjects: []runtime.Object{hosted("a.example.com", reported("DefinitionSynced", "False", "ObjectsExist", "m"))}}, []want{{LevelFail, "ObjectsExist", "kubectl get a.example.com -A"}}},
		"refused": {fixture{annexObjects: []runtime.Object{hosted("a.example.com", reported("DefinitionSynced", "False", "Rejected", "m"))}}, []want{{LevelFail, "Rejected", "kubectl edit crd a.example.com"}}},
		"foreign": {fixture{annexObjects: []runtime.Object{hosted("a.example.com", reported("Published", "False", "ForeignAPIService", "m"))}}, []want{{LevelFail, "ForeignAPIService", "kubectl get apiservices | grep example.com"}}},
		"gone":    {fixture{annexObjects: []runtime.Object{hosted("a.example.com", reported("DefinitionSynced", "False", "MainDefinitionDeleted", "m"))}}, []want{{LevelFail, "MainDefinitionDeleted", "kubectl get hostedresource a.example.com"}}},
		"terminating": {fixture{annexObjects: []runtime.Object{hosted("a.example.com", reported("DefinitionSynced", "False", "Terminating", "1 left"), reported("Ready", "False", "Terminating", "m"))}},
			[]want{{LevelWarn, "Terminating: 1 left", "kubectl describe hostedresource a.example.com"}}},
		"not scheduled": {annexHas(hosted("a.example.com",
			reported("Established", "False", "NotDefined", "m"), reported("Scheduled", "False", "Unschedulable", "m"), reported("StoreReady", "False", "NoStore", "m"), reported("Ready", "False", "NotScheduled", "m"))),
			[]want{{LevelInfo, "Established is False: NotDefined", "describe"}, {LevelFail, "Scheduled is False: Unschedulable", "describe"}}},
		"its Store is not ready": {fixture{annexObjects: []runtime.Object{
			store("west", reported("Ready", "False", "Unreachable", "m")),
			on("west", hosted("a.example.com", reported("StoreReady", "False", "StoreNotReady", "m"), reported("Ready", "False", "StoreNotReady", "m"))),
		}}, []want{{LevelOK, "1 resources without a problem", ""}}},
		"moving": {fixture{annexObjects: []runtime.Object{
			migration("m", time.Hour, hostingv1alpha1.MigrationSpec{Group: "example.com"}, hostingv1alpha1.MigrationCopying, "Copying"),
			hosted("a.example.com", reported("DefinitionSynced", "Unknown", "Moving", "m"), reported("Published", "False", "GroupInMain", "m"), reported("Ready", "False", "NotPublished", "m")),
			hosted("b.example.com", reported("DefinitionSynced", "False", "Rejected", "m"), reported("Published", "False", "GroupInMain", "m")),
			hosted("a.example.org", reported("Published", "False", "GroupInMain", "m")),
		}}, []want{{LevelFail, "a.example.org: Published", "kubectl get apiservices"}, {LevelFail, "b.example.com: DefinitionSynced is False: Rejected", "kubectl edit crd b.example.com"}}},
		"not ready": {fixture{annexObjects: []runtime.Object{hosted("a.example.com", reported("Ready", "False", "StoreNotReady", "m"))}}, []want{{LevelFail, "Ready is False: StoreNotReady", "kubectl describe"}}},
	}
	runCheck(t, checkResources, tests)
}

func TestMigrations(t *testing.T) {
	t.Parallel()
	const hour = time.Hour
	move := hostingv1alpha1.MigrationSpec{Group: "example.com", Operation: hostingv1alpha1.MigrationMove}
	operation := func(operation hostingv1alpha1.MigrationOperation) hostingv1alpha1.MigrationSpec {
		return hostingv1alpha1.MigrationSpec{Group: "example.com", Operation: operation}
	}
	manual := move
	manual.Switch = hostingv1alpha1.MigrationSwitchManual
	confirmed := manual
	confirmed.Confirmed = true
	runCheck(t, checkMigrations, map[string]checkTest{
		"none":    {fixture{}, []want{{LevelOK, "no Migration runs", ""}}},
		"running": {annexHas(migration("m", hour, move, hostingv1alpha1.MigrationCopying, "Copying")), []want{{LevelOK, "1 Migrations run", ""}}},
		"retried": {annexHas(migration("m", hour, move, hostingv1alpha1.MigrationCopying, "Retrying")),
			[]want{{LevelOK, "1 Migrations run", ""}, {LevelWarn, "in phase Copying and is retried: m", "kubectl describe migration m"}}},
		"waits": {annexHas(migration("m", hour, manual, hostingv1alpha1.MigrationFollowing, "Waiting")),
			[]want{{LevelOK, "1 Migrations run", ""}, {LevelInfo, "waits until it is confirmed", `kubectl patch migration m --type=merge -p '{"spec":{"confirmed":true}}'`}}},
		"confirmed":           {annexHas(migration("m", hour, confirmed, hostingv1alpha1.MigrationFollowing, "Following")), []want{{LevelOK, "1 Migrations run", ""}}},
		"finalize waits":      {annexHas(migration("m", hour, operation(hostingv1alpha1.MigrationFinalize), hostingv1alpha1.MigrationPending, "Waiting")), []want{{LevelOK, "1 Migrations run", ""}, {LevelInfo, "waits until it is confirmed", "patch"}}},
		"failed":              {annexHas(migration("m", hour, move, hostingv1alpha1.MigrationFailed, "NoSpace")), []want{{LevelWarn, "failed: NoSpace: m", "describe"}}},
		"failed before":       {annexHas(migration("m", hour, move, hostingv1alpha1.MigrationFailed, "NoSpace"), migration("n", 0, operation(hostingv1alpha1.MigrationRollback), hostingv1alpha1.MigrationCompleted, "Completed")), []want{{LevelOK, "no Migration", ""}}},
		"moved":               {annexHas(migration("m", hour, move, hostingv1alpha1.MigrationCompleted, "Completed")), []want{{LevelInfo, "keeps its copy of example.com, 3 objects", "finalize --help"}}},
		"moved and finalized": {annexHas(migration("m", hour, move, hostingv1alpha1.MigrationCompleted, "Completed"), migration("n", 0, operation(hostingv1alpha1.MigrationFinalize), hostingv1alpha1.MigrationCompleted, "Completed")), []want{{LevelOK, "no Migration", ""}}},
	})
}

func TestStaticSources(t *testing.T) {
	t.Parallel()
	source := &hostingv1alpha1.StaticSource{ObjectMeta: metav1.ObjectMeta{Name: "file"}}
	source.Status.Conditions = []metav1.Condition{reported("Read", "True", "Complete", "m")}
	taken := source.DeepCopy()
	taken.Status.Conditions = append(taken.Status.Conditions, reported("Applied", "False", "NotApplied", "a name is taken"))
	runCheck(t, checkStaticSources, map[string]checkTest{
		"fine":  {annexHas(source), []want{{LevelOK, "1 StaticSources", ""}}},
		"taken": {annexHas(taken), []want{{LevelWarn, "file: Applied is False: NotApplied: a name is taken", "kubectl describe staticsource file"}}},
	})
}
