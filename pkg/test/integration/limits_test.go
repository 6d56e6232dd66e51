// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// limit sets what there may be of a resource, as a merge patch of its specification.
func (r *resource) limit(t *testing.T, spec string) {
	t.Helper()
	eventually(t, "the limits of "+r.name+" are set", func() string {
		_, err := r.annex.hosting.HostingV1alpha1().HostedResources().
			Patch(t.Context(), r.name, types.MergePatchType, []byte(`{"spec": `+spec+`}`), metav1.PatchOptions{})
		return problem(err)
	})
}

// tryCreateOf creates a Widget with so many bytes in it.
func (r *resource) tryCreateOf(t *testing.T, name string, size int) error {
	t.Helper()
	_, err := r.in("v1").Create(t.Context(), r.object(t, "v1", name, content(size)), metav1.CreateOptions{})
	return err
}

// content does not compress.
func content(size int) string {
	var b strings.Builder
	for i := 0; b.Len() < size; i++ {
		fmt.Fprintf(&b, "%x", uint32(i)*2654435761)
	}
	return "spec: {text: \"" + b.String()[:size] + "\"}"
}

// waitLimited waits until a limit is in force that has room for nothing: it may take
// a moment until every server knows of it.
func (r *resource) waitLimited(t *testing.T) {
	t.Helper()
	eventually(t, "the limit of "+r.name+" is in force", func() string {
		err := r.tryCreateOf(t, "probe", 1)
		if err == nil {
			return problem(r.in("v1").Delete(t.Context(), "probe", metav1.DeleteOptions{})) + "a widget was created"
		}
		if !apierrors.IsForbidden(err) {
			return err.Error()
		}
		return ""
	})
}

func TestLimitsOfAResource(t *testing.T) {
	t.Parallel()
	r := sharedAnnex(t).install(t, newDefinition(t, anySchema))
	r.limit(t, `{"limits": {"objects": "0"}}`)
	r.waitLimited(t)

	r.limit(t, `{"limits": {"objects": "2"}, "namespaceLimits": {"storage": "100Ki"}}`)
	eventually(t, "there is room for two", func() string { return problem(r.tryCreateOf(t, "one", 1)) })
	if err := r.tryCreateOf(t, "two", 1); err != nil {
		t.Fatal(err)
	}
	wantExceeded(t, r.tryCreateOf(t, "three", 1),
		fmt.Sprintf("exceeded the limits of hostedresource %s, requested: objects=1, used: objects=2, limited: objects=2", r.name))

	_, err := r.in("v1").Create(t.Context(), r.object(t, "v1", "three", content(1)), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	wantExceeded(t, err, "requested: objects=1, used: objects=2, limited: objects=2")

	// What is deleted makes room at once, and what does not grow always passes.
	if err := r.in("v1").Delete(t.Context(), "two", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	wantExceeded(t, r.tryCreateOf(t, "large", 400<<10), "in namespace "+r.namespace+", requested: storage=")
	if err := r.tryCreateOf(t, "two", 1<<10); err != nil {
		t.Fatal(err)
	}
	if _, err := r.in("v1").Patch(t.Context(), "two", types.MergePatchType, []byte(`{"spec": {"text": ""}}`), metav1.PatchOptions{}); err != nil {
		t.Errorf("an update that shrinks: %v", err)
	}

	r.limit(t, `{"limits": null, "namespaceLimits": null}`)
	eventually(t, "there are no limits any more", func() string { return problem(r.tryCreateOf(t, "large", 400<<10)) })
}
