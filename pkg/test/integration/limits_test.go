// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/storage/etcd/embeddedetcd/etcdtest"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// setLimits applies a merge patch to the specification of the HostedResource.
func (r *resource) setLimits(t *testing.T, spec string) {
	t.Helper()
	poll.UntilNoError(t, "the limits of "+r.name+" are set", func() error {
		_, err := r.annex.HostedResources().
			Patch(t.Context(), r.name, types.MergePatchType, []byte(`{"spec": `+spec+`}`), metav1.PatchOptions{})
		return err
	})
}

// tryCreateOf creates a Widget with so many bytes.
func (r *resource) tryCreateOf(t *testing.T, name string, size int) error {
	t.Helper()
	_, err := r.in("v1").Create(t.Context(), r.object(t, "v1", name, content(size)), metav1.CreateOptions{})
	return err
}

// content returns incompressible content.
func content(size int) string {
	var b strings.Builder
	for i := 0; b.Len() < size; i++ {
		fmt.Fprintf(&b, "%x", uint32(i)*2654435761)
	}
	return "spec: {text: \"" + b.String()[:size] + "\"}"
}

// waitForLimit waits until a limit is in force that has no room.
func (r *resource) waitForLimit(t *testing.T) {
	t.Helper()
	poll.UntilDone(t, "the limit of "+r.name+" is in force", func() (bool, string) {
		err := r.tryCreateOf(t, "probe", 1)
		if err == nil {
			r.delete(t, "probe")
			return false, "a widget was created"
		}
		return apierrors.IsForbidden(err), fmt.Sprint(err)
	})
}

func TestHostedResourceLimits(t *testing.T) {
	t.Parallel()
	r := sharedAnnex(t).installCRD(t, newCRD(t, anySchema))
	r.setLimits(t, `{"limits": {"objects": "0"}}`)
	r.waitForLimit(t)

	r.setLimits(t, `{"limits": {"objects": "2"}, "namespaceLimits": {"storage": "100Ki"}}`)
	poll.UntilNoError(t, "there is room for two", func() error { return r.tryCreateOf(t, "one", 1) })
	expect.NoError(t, r.tryCreateOf(t, "two", 1))
	wantExceeded(t, r.tryCreateOf(t, "three", 1),
		fmt.Sprintf("exceeded the limits of hostedresource %s, requested: objects=1, used: objects=2, limited: objects=2", r.name))

	_, err := r.in("v1").Create(t.Context(), r.object(t, "v1", "three", content(1)), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	wantExceeded(t, err, "requested: objects=1, used: objects=2, limited: objects=2")

	// A deletion makes room at once, and updates that do not grow always succeed.
	r.delete(t, "two")
	wantExceeded(t, r.tryCreateOf(t, "large", 400<<10), "in namespace "+r.namespace+", requested: storage=")
	expect.NoError(t, r.tryCreateOf(t, "two", 1<<10))
	if _, err := r.in("v1").Patch(t.Context(), "two", types.MergePatchType, []byte(`{"spec": {"text": ""}}`), metav1.PatchOptions{}); err != nil {
		t.Errorf("an update that shrinks: %v", err)
	}

	r.waitForHostedResource(t, "has reached a limit", func(hosted *hostingv1alpha1.HostedResource) bool {
		within := meta.FindStatusCondition(hosted.Status.Conditions, hostingv1alpha1.HostedResourceWithinLimits)
		return within != nil && within.Status == metav1.ConditionFalse && strings.HasPrefix(within.Message, "objects 2 of 2, namespace "+r.namespace)
	})

	r.setLimits(t, `{"limits": null, "namespaceLimits": null}`)
	poll.UntilNoError(t, "there are no limits any more", func() error { return r.tryCreateOf(t, "large", 400<<10) })

	refusals := fmt.Sprintf("annex_hostedresource_limit_refusals_total{hostedresource=%q}", r.name)
	if metrics := r.annex.get(t, "/metrics"); !strings.Contains(string(metrics.Body), refusals+" ") {
		t.Errorf("there is no metric %s", refusals)
	}
	r.deleteCRD(t)
	r.waitForCRDDeleted(t)
	poll.UntilDone(t, "the metric is removed with the resource", func() (bool, string) {
		metrics := r.annex.get(t, "/metrics")
		return !strings.Contains(string(metrics.Body), refusals), refusals + " is there"
	})
}

// TestLimitsBelowCurrentUsage lowers a limit: only growth is refused, never status updates and
// deletions.
func TestLimitsBelowCurrentUsage(t *testing.T) {
	t.Parallel()
	crd := newCRD(t, anySchema)
	crd.Spec.Versions[0].Subresources = &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}}
	r := sharedAnnex(t).installCRD(t, crd)
	applied := "spec: {color: red, text: " + strings.Repeat("a", 100) + "}"
	r.mustApply(t, "user", applied, false)
	r.create(t, "v1", "b", content(4<<10))
	r.createWithFinalizer(t, "held")
	r.setLimits(t, `{"limits": {"objects": "1", "storage": "1"}}`)
	r.waitForLimit(t)
	r.wantNames(t, "before the limit", "a", "b", "held")

	_, err := r.patch(t, "v1", "b", `{"spec": {"more": "`+strings.Repeat("more and ", 20)+`"}}`)
	wantExceeded(t, err, "requested: storage=")
	_, err = r.apply(t, "user", "spec: {color: red, more: "+strings.Repeat("and more", 100)+"}", false)
	wantExceeded(t, err, "limited: storage=1")

	allowed := func(what string, err error) {
		t.Helper()
		expect.Succeeds(t, err, "refused %s", what)
	}
	_, err = r.apply(t, "user", applied, false)
	allowed("to apply an unchanged object", err)
	_, err = r.patch(t, "v1", "a", `{"status": {"phase": "Ready"}}`, "status")
	allowed("to update the status of a", err)
	_, err = r.apply(t, "controller", "status: {reason: none}", false, "status")
	allowed("to apply the status of a", err)
	_, err = r.patch(t, "v1", "b", `{"spec": {"text": "short"}}`)
	allowed("to shrink b", err)
	allowed("to delete b", r.in("v1").Delete(t.Context(), "b", metav1.DeleteOptions{}))
	allowed("to delete an object with a finalizer", r.in("v1").Delete(t.Context(), "held", metav1.DeleteOptions{}))
	if _, err := r.patch(t, "v1", "held", `{"metadata": {"annotations": {"stage": "`+strings.Repeat("cleaning ", 20)+`"}}}`); err != nil {
		t.Errorf("refused to annotate a terminating object: %v", err)
	}
	r.removeFinalizers(t, "held")
	r.wantNames(t, "at the end", "a")
}

// replicas serve one resource from one etcd.
type replicas struct {
	etcd string
	of   []*resource
}

// TestLimitsOnTwoReplicas creates and grows objects with many clients of two replicas until
// both refuse.
func TestLimitsOnTwoReplicas(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t, nil).Endpoint()
	first, second := startReplica(t, etcd), startReplica(t, etcd)
	widgets := first.installCRD(t, newCRD(t, anySchema))
	r := replicas{etcd: etcd, of: []*resource{widgets, widgets.on(second.annex)}}

	r.testObjectLimit(t, 40)
	r.testRoomAfterDelete(t)
	r.testStorageLimit(t, 50<<10)

	// A new replica knows the usage.
	first.Stop(t)
	third := widgets.on(startReplica(t, etcd).annex)
	wantExceeded(t, third.tryCreateOf(t, "third", 100<<10), "in namespace "+third.namespace+", requested: storage=")
}

// setLimits sets limits, and waits until every replica enforces them.
func (r replicas) setLimits(t *testing.T, spec string) {
	t.Helper()
	r.of[0].setLimits(t, `{"limits": {"objects": "0"}}`)
	for _, replica := range r.of {
		replica.waitForLimit(t)
	}
	r.of[0].setLimits(t, spec)
	for i, replica := range r.of {
		poll.UntilNoError(t, "there is room for more", func() error {
			err := replica.tryCreateOf(t, fmt.Sprintf("room-%d", i), 1)
			if err != nil {
				return err
			}
			return replica.in("v1").Delete(t.Context(), fmt.Sprintf("room-%d", i), metav1.DeleteOptions{})
		})
	}
}

// testObjectLimit creates objects with all clients until the limit is reached exactly.
func (r replicas) testObjectLimit(t *testing.T, objects int) {
	t.Helper()
	r.setLimits(t, fmt.Sprintf(`{"limits": {"objects": "%d"}}`, objects))
	r.createUntilRefused(t, func(replica *resource, worker string) error {
		for i := 0; ; i++ {
			if err := replica.tryCreateOf(t, fmt.Sprintf("%s-%d", worker, i), 10); err != nil {
				return err
			}
		}
	})
	if got := len(r.of[0].names(t, "v1", metav1.ListOptions{})); got != objects {
		t.Errorf("there are %d objects, want %d", got, objects)
	}
}

// testRoomAfterDelete deletes on one replica and creates on the other.
func (r replicas) testRoomAfterDelete(t *testing.T) {
	t.Helper()
	for i, name := range r.of[0].names(t, "v1", metav1.ListOptions{})[:10] {
		expect.NoError(t, r.of[i%2].in("v1").Delete(t.Context(), name, metav1.DeleteOptions{}))
		expect.NoError(t, r.of[1-i%2].tryCreateOf(t, name, 10), "after a delete")
	}
}

// testStorageLimit grows objects with all clients until the limit is almost reached.
func (r replicas) testStorageLimit(t *testing.T, more int64) {
	t.Helper()
	most := r.stored(t) + more
	r.setLimits(t, fmt.Sprintf(`{"limits": null, "namespaceLimits": {"storage": "%d"}}`, most))
	const step = 1 << 10
	r.createUntilRefused(t, func(replica *resource, worker string) error {
		if err := replica.tryCreateOf(t, "grown-by-"+worker, step); err != nil {
			return err
		}
		for size := 2 * step; ; size += step {
			grown, err := json.Marshal(replica.object(t, "v1", "grown-by-"+worker, content(size)).Object)
			if err != nil {
				return err
			}
			if _, err := replica.patch(t, "v1", "grown-by-"+worker, string(grown)); err != nil {
				return err
			}
		}
	})
	if got := r.stored(t); got > most || got < most-2*step {
		t.Errorf("%d bytes are stored, want almost %d", got, most)
	}
}

// stored returns the bytes of the resource in etcd.
func (r replicas) stored(t *testing.T) int64 {
	t.Helper()
	found, err := newEtcdClient(t, clientv3.Config{Endpoints: []string{r.etcd}}).
		Get(t.Context(), "/annex/"+r.of[0].group+"/widgets/", clientv3.WithPrefix())
	expect.NoError(t, err)
	var bytes int64
	for _, kv := range found.Kvs {
		bytes += int64(len(kv.Value))
	}
	return bytes
}

// createUntilRefused runs workers at every replica until they are refused.
func (r replicas) createUntilRefused(t *testing.T, work func(replica *resource, worker string) error) {
	t.Helper()
	var workers sync.WaitGroup
	for i, replica := range r.of {
		for j := range 8 {
			workers.Go(func() {
				if err := work(replica, fmt.Sprintf("%d-%d", i, j)); !apierrors.IsForbidden(err) {
					t.Errorf("worker %d of replica %d ended with %v", j, i, err)
				}
			})
		}
	}
	workers.Wait()
}
