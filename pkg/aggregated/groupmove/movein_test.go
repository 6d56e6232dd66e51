// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package groupmove

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/controller/migration/migrationstatus"
	annexfake "github.com/annex-dev/annex/pkg/generated/clientset/versioned/fake"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// newMoveIn is a move of example.com that was created after a minute.
func newMoveIn(objects ...runtime.Object) (*moveIn, *annexfake.Clientset) {
	annex := annexfake.NewClientset(objects...)
	migration := &hostingv1alpha1.Migration{
		ObjectMeta: metav1.ObjectMeta{Name: "m", CreationTimestamp: metav1.Unix(60, 0)},
		Spec:       hostingv1alpha1.MigrationSpec{Group: "example.com"},
	}
	return &moveIn{Run: &Run{Writer: &migrationstatus.Writer{Migration: migration}, config: Config{AnnexHosting: annex.HostingV1alpha1()}}}, annex
}

func TestIsTakenOver(t *testing.T) {
	t.Parallel()
	resource := func(name string, takeover *hostingv1alpha1.HostedResourceTakeover) runtime.Object {
		return &hostingv1alpha1.HostedResource{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: hostingv1alpha1.HostedResourceStatus{Takeover: takeover}}
	}
	recorded := &hostingv1alpha1.HostedResourceTakeover{DefinitionUID: "1"}
	for name, want := range map[string]bool{"gadgets.example.com": true, "gadgets.other.example.com": false} {
		m, _ := newMoveIn(resource("widgets.example.com", nil), resource(name, recorded))
		taken, err := m.isTakenOver(t.Context())
		expect.NoError(t, err)
		expect.Equal(t, want, taken, name)
	}
}

// TestUndoOfAnEarlierMove does not count as the undo of this one.
func TestUndoOfAnEarlierMove(t *testing.T) {
	t.Parallel()
	for created, want := range map[int64]string{0: "an earlier one is being deleted", 60: "", 61: ""} {
		m, annex := newMoveIn(&hostingv1alpha1.Migration{ObjectMeta: metav1.ObjectMeta{Name: "m-undo", CreationTimestamp: metav1.NewTime(time.Unix(created, 0))}})
		expect.ErrorOrNone(t, m.checkUndo(t.Context(), "m-undo"), want)
		if list, err := annex.HostingV1alpha1().Migrations().List(t.Context(), metav1.ListOptions{}); err != nil || (len(list.Items) == 0) != (want != "") {
			t.Errorf("%d: %v, %v", created, list, err)
		}
	}
}
