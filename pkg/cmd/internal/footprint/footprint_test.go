// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package footprint

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/annex-dev/annex/pkg/aggregated/group/grouptest"
	"github.com/annex-dev/annex/pkg/test/expect"
)

func definition(name, label string, deleted bool, finalizers ...string) metav1.ObjectMeta {
	d := metav1.ObjectMeta{Name: name, Finalizers: finalizers}
	if label != "" {
		d.Labels = map[string]string{"annex.dev/hosted": label}
	}
	if deleted {
		d.DeletionTimestamp = &metav1.Time{}
	}
	return d
}

func TestRead(t *testing.T) {
	t.Parallel()
	var policies []runtime.Object
	for _, name := range []string{"annex-freeze.moved.example.com", "annex-copy.open.example.com", "annex-hold-garbage-collector.held.example.com", "annex-other", "freeze"} {
		policies = append(policies, &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	apiServices := []apiregistrationv1.APIService{
		*grouptest.Published("hosting.annex.dev", "v1alpha1", ""), *grouptest.Published("moved.example.com", "v1", ""), *grouptest.Published("moved.example.com", "v2", ""),
		*grouptest.Local("open.example.com", "v1"), *grouptest.Local("open.example.com", "zz-annex-main-copy"),
	}
	got, err := Read(t.Context(), fake.NewClientset(policies...), apiServices, []metav1.ObjectMeta{
		definition("widgets.moved.example.com", "true", false, "annex.dev/annex-system.annex"), definition("gadgets.moved.example.com", "true", true, "annex.dev/annex-system.annex"),
		definition("widgets.labelled.example.com", "false", false), definition("widgets.left.example.com", "", false, "annex.dev/other"),
		definition("widgets.free.example.com", "", true, "example.com/other"),
	})
	expect.NoError(t, err)
	if got.Hosting == nil || got.Hosting.Name != "v1alpha1.hosting.annex.dev" {
		t.Errorf("annex's own APIService is %+v", got.Hosting)
	}
	both := []string{"widgets.moved.example.com", "gadgets.moved.example.com"}
	want := []*Group{
		{Name: "held.example.com", Held: true},
		{Name: "labelled.example.com", Labelled: []string{"widgets.labelled.example.com"}},
		{Name: "left.example.com", Finalized: []string{"widgets.left.example.com"}},
		{Name: "moved.example.com", Frozen: true, Labelled: both, Finalized: both, Terminating: both[1:]},
		{Name: "open.example.com", Open: true, Reserved: true},
	}
	if diff := cmp.Diff(want, got.Groups, cmpopts.IgnoreFields(Group{}, "APIServices")); diff != "" {
		t.Errorf("groups (-want +got):\n%s", diff)
	}
	for _, g := range got.Groups {
		if g.Served() != (g.Name == "moved.example.com") {
			t.Errorf("%s is served: %t", g.Name, g.Served())
		}
	}
	if found := got.Group("none.example.com"); found.Served() || found.Name != "none.example.com" {
		t.Errorf("a group without anything is %+v", found)
	}
}
