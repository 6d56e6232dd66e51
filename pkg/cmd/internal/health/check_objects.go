// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package health

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/table"
)

// checkStores reports Stores that are not ready, nearly full, slow, or lack a member or disk space.
func checkStores(_ context.Context, e *environment) []Finding {
	var findings []Finding
	for i := range e.objects.Stores {
		store := &e.objects.Stores[i]
		show := "kubectl describe store " + store.Name
		for _, c := range store.Status.Conditions {
			if f := findingOfStore(c); f != nil {
				f.Message, f.Fix = store.Name+": "+describe(c), show
				findings = append(findings, f.of("store/"+store.Name, c.LastTransitionTime))
			}
		}
		if full := nearlyFull(store); full != "" {
			findings = append(findings, alert("AnnexStoreAlmostFull", show, "%s", full).of("store/"+store.Name, metav1.Time{}))
		}
		if free, size := store.Status.DiskFree, store.Status.DatabaseSize; free != nil && size != nil && free.Cmp(*size) < 0 {
			findings = append(findings, alert("AnnexDiskAlmostFull", runbook("AnnexDiskAlmostFull"), "%s: the volume of annex has %s free, too little to defragment %s",
				store.Name, table.Bytes(free.Value()), table.Bytes(size.Value())).of("store/"+store.Name, metav1.Time{}))
		}
	}
	return orOK(findings, "%d Stores are ready", len(e.objects.Stores))
}

// findingOfStore returns a finding without its text, or nil if the condition is fine. Fullness is computed, at a lower limit.
func findingOfStore(c metav1.Condition) *Finding {
	var name string
	switch slow := c.Type == hostingv1alpha1.StoreUnderPressure && c.Status == metav1.ConditionTrue && c.Reason == "Slow"; {
	case slow:
		return &Finding{Level: LevelWarn}
	case c.Type != hostingv1alpha1.StoreReady:
		return nil
	case c.Status == metav1.ConditionUnknown:
		return &Finding{Level: LevelWarn} // it connects
	case c.Status == metav1.ConditionFalse && c.Reason == "NoSpace":
		name = "AnnexStoreNotWritable"
	case c.Status == metav1.ConditionFalse:
		name = "AnnexStoreUnavailable"
	case c.Reason == "Degraded":
		name = "AnnexStoreEndpointsDown"
	case c.Reason == "BadCredentials" || strings.HasPrefix(c.Reason, "Certificate"):
		name = "AnnexStoreCertificateExpires"
	default:
		return nil
	}
	f := alert(name, "", "")
	return &f
}

// almostFull is the percentage of its quota from which a Store is reported: also that of the alert.
const almostFull = 80

func nearlyFull(store *hostingv1alpha1.Store) string {
	inUse, quota := store.Status.SizeInUse, store.Status.Quota
	if inUse == nil || quota == nil || quota.Value() <= 0 || meta.IsStatusConditionFalse(store.Status.Conditions, hostingv1alpha1.StoreReady) {
		return ""
	}
	percent := inUse.Value() * 100 / quota.Value()
	if percent <= almostFull {
		return ""
	}
	return fmt.Sprintf("%s: %d %% of the quota is in use; at the quota, writes are refused", store.Name, percent)
}

func describe(c metav1.Condition) string {
	return fmt.Sprintf("%s is %s: %s: %s", c.Type, c.Status, c.Reason, strings.ReplaceAll(c.Message, "\n", " "))
}

// checkResources reports conditions of HostedResources, except those of which a Store or a Migration is the cause.
func checkResources(_ context.Context, e *environment) []Finding {
	var findings []Finding
	known, causes := sets.New[string](), causesOf(e.objects)
	for i := range e.objects.Resources {
		resource := &e.objects.Resources[i]
		known.Insert(resource.Name)
		for _, c := range problemsOf(resource.Status.Conditions) {
			if !causes.explain(resource, c) {
				findings = append(findings, findingOf(resource, c))
			}
		}
	}
	for _, crd := range e.hostedDefinitions() {
		if !known.Has(crd.Name) {
			findings = append(findings, fail(e.logs(), "%s is labelled %s=true, and has no HostedResource", crd.Name, hostingv1alpha1.HostedLabel))
		}
	}
	return orOK(findings, "%d resources without a problem", known.Len())
}

// causes are objects with a finding or a state that explains conditions of HostedResources.
type causes struct {
	notReady sets.Set[string] // Stores
	moving   sets.Set[string] // groups
}

func causesOf(objects *Objects) causes {
	found := causes{sets.New[string](), sets.New[string]()}
	for i := range objects.Stores {
		if !meta.IsStatusConditionTrue(objects.Stores[i].Status.Conditions, hostingv1alpha1.StoreReady) {
			found.notReady.Insert(objects.Stores[i].Name)
		}
	}
	for i := range objects.Migrations {
		if m := &objects.Migrations[i]; m.Spec.Group != "" && !m.Status.Phase.Finished() {
			found.moving.Insert(m.Spec.Group)
		}
	}
	return found
}

func (c causes) explain(resource *hostingv1alpha1.HostedResource, condition metav1.Condition) bool {
	switch condition.Type {
	case hostingv1alpha1.HostedResourceStoreReady:
		return c.notReady.Has(resource.Spec.StoreName)
	case hostingv1alpha1.HostedResourceDefinitionSynced:
		return condition.Status == metav1.ConditionUnknown && c.moves(resource)
	case hostingv1alpha1.HostedResourcePublished, hostingv1alpha1.HostedResourceReady:
		return c.moves(resource)
	}
	return false
}

// moves reports whether a Migration moves the group of a resource.
func (c causes) moves(resource *hostingv1alpha1.HostedResource) bool {
	return c.moving.Has(schema.ParseGroupResource(resource.Name).Group)
}

// problemsOf returns the conditions of a HostedResource that are not True, without those that others explain: StoreReady of one
// that is not scheduled, and Ready, which summarizes others.
func problemsOf(conditions []metav1.Condition) []metav1.Condition {
	bad := slices.DeleteFunc(slices.Clone(conditions), func(condition metav1.Condition) bool {
		return condition.Status == metav1.ConditionTrue
	})
	if len(bad) > 1 {
		bad = slices.DeleteFunc(bad, func(condition metav1.Condition) bool { return condition.Type == hostingv1alpha1.HostedResourceReady })
	}
	if meta.IsStatusConditionFalse(bad, hostingv1alpha1.HostedResourceScheduled) {
		bad = slices.DeleteFunc(bad, func(condition metav1.Condition) bool {
			return condition.Type == hostingv1alpha1.HostedResourceStoreReady
		})
	}
	slices.SortFunc(bad, func(a, b metav1.Condition) int { return cmp.Compare(a.Type, b.Type) })
	return bad
}

func findingOf(resource *hostingv1alpha1.HostedResource, c metav1.Condition) Finding {
	message, fix := splitCommand(c.Message)
	if fix == "" {
		fix = mendCondition(resource.Name, c.Reason)
	}
	c.Message = message
	report := fail
	switch {
	case c.Type == hostingv1alpha1.HostedResourceEstablished && c.Reason == "NotDefined":
		report = info // it may precede its definition
	case c.Status == metav1.ConditionUnknown || c.Reason == "Terminating":
		report = warn
	}
	f := report(fix, "%s: %s", resource.Name, describe(c)).of("hostedresource/"+resource.Name, c.LastTransitionTime)
	switch c.Type {
	case hostingv1alpha1.HostedResourcePublished:
		f.Alert = "AnnexGroupNotPublished"
	case hostingv1alpha1.HostedResourceObjectsReadable:
		f.Alert = "AnnexUnreadableObjects"
	}
	return f
}

// checkMigrations reports Migrations that failed, are retried, or wait for a user, and the copies that the main cluster keeps.
func checkMigrations(_ context.Context, e *environment) []Finding {
	var findings []Finding
	running, latest := 0, hostingv1alpha1.LatestMigrations(e.objects.Migrations)
	for i := range e.objects.Migrations {
		m := &e.objects.Migrations[i]
		if !m.Status.Phase.Finished() {
			running++
		}
		if f := findingOfMigration(m, latest[m.Moved()] == m); f != nil {
			findings = append(findings, *f)
		}
	}
	if running > 0 {
		return okBefore(findings, "%d Migrations run", running)
	}
	return orOK(findings, "no Migration runs or has failed")
}

func findingOfMigration(m *hostingv1alpha1.Migration, latest bool) *Finding {
	complete := cmp.Or(meta.FindStatusCondition(m.Status.Conditions, hostingv1alpha1.MigrationComplete), &metav1.Condition{})
	object, show := "migration/"+m.Name, "kubectl describe migration "+m.Name
	var f Finding
	switch {
	case m.Status.Phase == hostingv1alpha1.MigrationFailed && latest:
		f = alert("AnnexMigrationFailed", show, "the Migration of %s failed: %s: %s", m.Moved(), complete.Reason, complete.Message)
	case m.Status.Phase.Finished() && latest && m.KeepsCopy():
		f = info("kubectl annex finalize --help", "the main cluster keeps its copy of %s, %d objects as of the switch. `annex finalize` frees their memory, `annex rollback` returns the group",
			m.Spec.Group, m.Status.Objects)
	case m.Status.Phase.Finished():
		return nil
	case complete.Reason == hostingv1alpha1.MigrationRetrying:
		f = alert("AnnexMigrationRetrying", show, "the Migration of %s is in phase %s and is retried: %s", m.Moved(), m.Status.Phase, complete.Message)
	case waitsForUser(m):
		f = info(fmt.Sprintf(`kubectl patch migration %s --type=merge -p '{"spec":{"confirmed":true}}'`, m.Name), "the Migration of %s waits until it is confirmed: %s", m.Moved(), complete.Message)
	default:
		return nil
	}
	f = f.of(object, complete.LastTransitionTime)
	return &f
}

// waitsForUser reports whether a Migration waits until a user sets spec.confirmed.
func waitsForUser(m *hostingv1alpha1.Migration) bool {
	if m.Spec.Confirmed {
		return false
	}
	finalize := m.Spec.Operation == hostingv1alpha1.MigrationFinalize && m.Status.Phase == hostingv1alpha1.MigrationPending
	manual := m.Spec.Switch == hostingv1alpha1.MigrationSwitchManual && m.Status.Phase == hostingv1alpha1.MigrationFollowing
	return finalize || manual
}

// checkStaticSources reports conditions of StaticSources.
func checkStaticSources(_ context.Context, e *environment) []Finding {
	var findings []Finding
	for i := range e.objects.StaticSources {
		source := &e.objects.StaticSources[i]
		for _, c := range source.Status.Conditions {
			if c.Status != metav1.ConditionTrue {
				findings = append(findings, warn("kubectl describe staticsource "+source.Name, "%s: %s", source.Name, describe(c)).of("staticsource/"+source.Name, c.LastTransitionTime))
			}
		}
	}
	return orOK(findings, "%d StaticSources without a problem", len(e.objects.StaticSources))
}
