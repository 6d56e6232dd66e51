// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package groupmove

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/controller/migration/migrationstatus"
	"github.com/annex-dev/annex/pkg/generated/clientset/versioned/fake"
	"github.com/annex-dev/annex/pkg/storage/etcd/embeddedetcd/etcdtest"
	"github.com/annex-dev/annex/pkg/storage/etcd/keys"
	"github.com/annex-dev/annex/pkg/storage/move"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// newRun is of a Migration that was created after a minute, in an annex with objects.
func newRun(spec hostingv1alpha1.MigrationSpec, objects ...runtime.Object) *Run {
	migration := &hostingv1alpha1.Migration{ObjectMeta: metav1.ObjectMeta{Name: "m", CreationTimestamp: metav1.Unix(60, 0)}, Spec: spec}
	return &Run{Writer: &migrationstatus.Writer{Migration: migration}, config: Config{AnnexHosting: fake.NewClientset(objects...).HostingV1alpha1()}}
}

func TestIsTakenOver(t *testing.T) {
	t.Parallel()
	resource := func(name string, takeover *hostingv1alpha1.HostedResourceTakeover) runtime.Object {
		return &hostingv1alpha1.HostedResource{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: hostingv1alpha1.HostedResourceStatus{Takeover: takeover}}
	}
	recorded := &hostingv1alpha1.HostedResourceTakeover{DefinitionUID: "1"}
	for name, want := range map[string]bool{"gadgets.example.com": true, "gadgets.other.example.com": false} {
		r := newRun(hostingv1alpha1.MigrationSpec{Group: "example.com"}, resource("widgets.example.com", nil), resource(name, recorded))
		taken, err := r.isTakenOver(t.Context())
		expect.NoError(t, err)
		expect.Equal(t, want, taken, name)
	}
}

// TestUndoOfAnEarlierMove does not count as the undo of this one.
func TestUndoOfAnEarlierMove(t *testing.T) {
	t.Parallel()
	for created, want := range map[int64]string{0: "an earlier one is being deleted", 60: "", 61: ""} {
		m := &moveIn{Run: newRun(hostingv1alpha1.MigrationSpec{}, &hostingv1alpha1.Migration{ObjectMeta: metav1.ObjectMeta{Name: "m-undo", CreationTimestamp: metav1.Unix(created, 0)}})}
		expect.ErrorOrNone(t, m.checkUndo(t.Context(), "m-undo"), want)
		if list, err := m.config.AnnexHosting.Migrations().List(t.Context(), metav1.ListOptions{}); err != nil || (len(list.Items) == 0) != (want != "") {
			t.Errorf("%d: %v, %v", created, list, err)
		}
	}
}

// TestCreatedBeforeTheCopy has an object in annex from after its Store was found empty: the Store is read again, and its
// objects are adopted.
func TestCreatedBeforeTheCopy(t *testing.T) {
	t.Parallel()
	const prefix = "/annex"
	widgets := schema.GroupResource{Group: "example.com", Resource: "widgets"}
	etcd := etcdtest.StartClient(t)
	of := &resource{importer: move.NewImporter(move.Config{
		Resource: widgets, UID: "m", HostedResource: "hosted", To: move.End{KV: etcd.KV, Watcher: etcd.Watcher, Prefix: prefix},
	})}
	m := &moveIn{Run: newRun(hostingv1alpha1.MigrationSpec{Group: widgets.Group})}
	m.resources = []*resource{of}
	expect.NoError(t, m.fence(t.Context()))
	expect.Equal(t, recordsVacant, m.records)
	_, err := etcd.Put(t.Context(), keys.Objects(prefix, widgets)+"default/first", "{}")
	expect.NoError(t, err)
	expect.NoError(t, m.copy(t.Context()))
	expect.Equal(t, stepHold, next(situation{started: true, after: stepCopy, records: m.records}))
	expect.NoError(t, m.fence(t.Context()))
	expect.Equal(t, recordsOccupied, m.records)
}
