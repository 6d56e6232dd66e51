// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// resourceList parses name=quantity.
func resourceList(of ...string) corev1.ResourceList {
	hard := corev1.ResourceList{}
	for _, limit := range of {
		name, quantity, _ := strings.Cut(limit, "=")
		hard[corev1.ResourceName(name)] = apiresource.MustParse(quantity)
	}
	return hard
}

// newQuota creates a quota that also forbids Secrets, and waits until admission applies it:
// admission reads quotas from an informer.
func (a *annex) newQuota(t *testing.T, namespace, name string, of ...string) {
	t.Helper()
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ResourceQuotaSpec{Hard: resourceList(append(of, "secrets=0")...)}}
	expect.Create(t, a.Kube.CoreV1().ResourceQuotas(namespace), quota)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "none"}}
	// A dry run charges no quota.
	waitForRefusal(t, "a Secret", func() error {
		_, err := a.Kube.CoreV1().Secrets(namespace).Create(t.Context(), secret, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}, "exceeded quota: "+name+", requested: secrets=1, used: secrets=0, limited: secrets=0")
}

func (a *annex) quota(t *testing.T, namespace, name string) *corev1.ResourceQuota {
	t.Helper()
	return expect.Get(t, a.Kube.CoreV1().ResourceQuotas(namespace), name)
}

// usage returns status.used of a quota.
func (a *annex) usage(t *testing.T, namespace, name string) map[string]int64 {
	t.Helper()
	used := map[string]int64{}
	for name, quantity := range a.quota(t, namespace, name).Status.Used {
		used[string(name)] = quantity.Value()
	}
	return used
}

func (a *annex) waitForUsage(t *testing.T, namespace, name string, want map[string]int64) {
	t.Helper()
	poll.Until(t, "usage of the quota "+name, func() string {
		return cmp.Diff(want, a.usage(t, namespace, name))
	})
}

// create creates a ConfigMap.
func (a *annex) create(t *testing.T, namespace, name string) error {
	t.Helper()
	_, err := a.tryConfigMap(t, namespace, name, false)
	return err
}

func wantExceeded(t *testing.T, err error, message string) {
	t.Helper()
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), message) {
		t.Errorf("error %v, want a refusal with %q", err, message)
	}
}

func TestQuotaOfBuiltInKinds(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	ns := a.newNamespace(t)
	a.waitForRootCA(t, ns, "is made", a.AnnexConfig.CAData) // it counts
	for i := range 2 {
		expect.NoError(t, a.create(t, ns, fmt.Sprintf("before-%d", i)))
	}
	a.newQuota(t, ns, "small", "configmaps=4", "count/configmaps=9", "resourcequotas=2", "count/leases.coordination.k8s.io=1")
	want := map[string]int64{"configmaps": 3, "count/configmaps": 3, "secrets": 0, "resourcequotas": 1, "count/leases.coordination.k8s.io": 0}
	a.waitForUsage(t, ns, "small", want)

	expect.NoError(t, a.create(t, ns, "third"))
	// Admission charges before the object is created, so no wait is needed.
	want["configmaps"], want["count/configmaps"] = 4, 4
	if diff := cmp.Diff(want, a.usage(t, ns, "small")); diff != "" {
		t.Errorf("usage after a create (-want +got):\n%s", diff)
	}
	wantExceeded(t, a.create(t, ns, "fourth"), "exceeded quota: small, requested: configmaps=1, used: configmaps=4, limited: configmaps=4")
	_, err := a.Kube.CoreV1().Secrets(ns).Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "none"}}, metav1.CreateOptions{})
	wantExceeded(t, err, "exceeded quota: small, requested: secrets=1, used: secrets=0, limited: secrets=0")

	expect.NoError(t, a.Kube.CoreV1().ConfigMaps(ns).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{FieldSelector: "metadata.name!=third,metadata.name!=" + rootCAName}))
	want["configmaps"], want["count/configmaps"] = 2, 2
	a.waitForUsage(t, ns, "small", want)

	poll.UntilNoError(t, "the quota is updated", func() error {
		quota := a.quota(t, ns, "small")
		quota.Spec.Hard = resourceList("configmaps=1", "count/serviceaccounts=5")
		_, err := a.Kube.CoreV1().ResourceQuotas(ns).Update(t.Context(), quota, metav1.UpdateOptions{})
		return err
	})
	waitForRefusal(t, "a ConfigMap", func() error {
		_, err := a.tryConfigMap(t, ns, "fourth", true)
		return err
	}, "limited: configmaps=1")
	updated := a.quota(t, ns, "small")
	if diff := cmp.Diff(updated.Spec.Hard, updated.Status.Hard); diff != "" {
		t.Errorf("limits in the status (-want +got):\n%s", diff)
	}
	wantExceeded(t, a.create(t, ns, "fourth"), "limited: configmaps=1")
}

func TestQuotaOfCustomResources(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	crd := newCRD(t, anySchema)
	r := &resource{annex: a, name: crd.Name, group: crd.Spec.Group, namespace: a.newNamespace(t)}
	// The quota is created before the CRD.
	count := "count/" + r.name
	a.newQuota(t, r.namespace, "widgets", count+"=2")

	for range 2 {
		a.createCRD(t, crd.DeepCopy())
		r.names(t, "v1", metav1.ListOptions{}) // tries again while the watch cache fills
		r.create(t, "v1", "one", "{}")
		r.own(t, "held", withFinalizer)
		_, err := r.in("v1").Create(t.Context(), r.object(t, "v1", "three", "{}"), metav1.CreateOptions{})
		wantExceeded(t, err, "exceeded quota: widgets, requested: "+count+"=1, used: "+count+"=2, limited: "+count+"=2")
		if _, err := r.in("v1").Create(t.Context(), r.object(t, "v1", "three", "{}"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); !apierrors.IsForbidden(err) {
			t.Errorf("a dry run beyond the quota: %v", err)
		}

		// Terminating objects count.
		r.delete(t, "held")
		r.delete(t, "one")
		a.waitForUsage(t, r.namespace, "widgets", map[string]int64{count: 1, "secrets": 0})

		// The CRD is deleted with its objects.
		r.removeFinalizers(t, "held")
		r.create(t, "v1", "last", "{}")
		r.deleteCRD(t)
		r.waitForCRDDeleted(t)
		a.waitForUsage(t, r.namespace, "widgets", map[string]int64{count: 0, "secrets": 0})
	}
}

// TestQuotaIsNeverExceeded creates and deletes with many clients at the same time, and checks
// every state of the objects.
func TestQuotaIsNeverExceeded(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	ns := a.newNamespace(t)
	const hard, workers, rounds = 5, 8, 10
	a.waitForRootCA(t, ns, "is made", a.AnnexConfig.CAData) // it counts, and is no event
	a.newQuota(t, ns, "six", fmt.Sprintf("count/configmaps=%d", hard+1))
	configMaps := a.Kube.CoreV1().ConfigMaps(ns)
	before, err := configMaps.List(t.Context(), metav1.ListOptions{})
	expect.NoError(t, err)
	events, err := configMaps.Watch(t.Context(), metav1.ListOptions{ResourceVersion: before.ResourceVersion})
	expect.NoError(t, err)
	defer events.Stop()

	var refused atomic.Int64
	var clients errgroup.Group // subtests would keep other tests from running
	for worker := range workers {
		clients.Go(func() error {
			for round := range rounds {
				name := fmt.Sprintf("%d-%d", worker, round)
				var last error
				err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, poll.Timeout, true, func(context.Context) (bool, error) {
					if last = a.create(t, ns, name); apierrors.IsForbidden(last) {
						refused.Add(1)
					}
					return last == nil, nil
				})
				if err == nil {
					err = configMaps.Delete(t.Context(), name, metav1.DeleteOptions{})
				}
				if err != nil {
					return fmt.Errorf("create and delete %s: %w", name, errors.Join(err, last))
				}
			}
			return nil
		})
	}
	expect.NoError(t, clients.Wait())
	if refused.Load() == 0 {
		t.Error("no create was refused")
	}
	most, live := int64(0), int64(0)
	for range 2 * workers * rounds {
		switch event := nextEvent(t, events); event.Type {
		case watch.Added:
			live++
		case watch.Deleted:
			live--
		default:
			t.Fatalf("unexpected event %s", event.Type)
		}
		most = max(most, live)
	}
	if most > hard || live != 0 {
		t.Errorf("at most %d objects at a time and %d in the end, want at most %d and 0", most, live, hard)
	}
	a.waitForUsage(t, ns, "six", map[string]int64{"count/configmaps": 1, "secrets": 0})
}

// The charge of a create that fails is corrected.
func TestQuotaOfFailedCreates(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	ns := a.newNamespace(t)
	a.waitForRootCA(t, ns, "is made", a.AnnexConfig.CAData) // it counts
	a.newQuota(t, ns, "nine", "configmaps=9")
	for range 3 {
		if err := a.create(t, ns, "one"); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	a.waitForUsage(t, ns, "nine", map[string]int64{"configmaps": 2, "secrets": 0})
}
