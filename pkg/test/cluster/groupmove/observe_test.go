// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package groupmove

import (
	"errors"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// TestFailingGroupReturns has a conversion webhook that fails after the switch: annex cannot create objects through
// the main cluster, and rolls the group back.
func TestFailingGroupReturns(t *testing.T) {
	t.Parallel()
	var broken atomic.Bool
	f := newFixture(t, sharedAnnex, "failing.example.com", withSecondVersion(t, func(raw []byte, apiVersion string) ([]byte, error) {
		if broken.Load() {
			return nil, errors.New("out of order")
		}
		return convert(raw, apiVersion)
	}))
	// Rollbacks of other groups list all resources of the main cluster, which fails without the webhook.
	t.Cleanup(func() { f.deleteDefinition("widgets." + f.group) })
	before := f.create("default", "one", nil)
	f.create("default", "two", nil)
	migrations := f.own.Hosting.HostingV1alpha1().Migrations()
	created := expect.Create(t, migrations, &hostingv1alpha1.Migration{
		ObjectMeta: metav1.ObjectMeta{Name: "failing"}, Spec: hostingv1alpha1.MigrationSpec{Group: f.group},
	})
	expect.Eventually(t, migrations, created.Name, "annex serves the group", func(m *hostingv1alpha1.Migration) bool {
		return m.Status.Phase == hostingv1alpha1.MigrationObserving
	})
	broken.Store(true)
	failed := f.await(created.Name)
	expect.Contains(t, message(failed), "Undone", "failing-undo", "with a dry run", "out of order")
	broken.Store(false)
	if undone := f.await("failing-undo"); undone.Status.Phase != hostingv1alpha1.MigrationCompleted {
		t.Errorf("the rollback ended as %s: %s", undone.Status.Phase, message(undone))
	}
	f.wantServed("")
	f.wantIdentity(before)
}
