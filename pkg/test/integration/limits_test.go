// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
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
	r.own(t, "held", withFinalizer)
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
