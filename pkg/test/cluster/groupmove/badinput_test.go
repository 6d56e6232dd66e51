// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package groupmove

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/clients"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// TestRefusedMoves are Migrations that cannot do what they are for. The main cluster serves the group
// as before.
func TestRefusedMoves(t *testing.T) {
	t.Parallel()
	f := newFixture(t, sharedAnnex, "refused.example.com")
	f.create("default", "one", nil)
	for name, test := range map[string]struct {
		spec hostingv1alpha1.MigrationSpec
		want string
	}{
		"no such group":           {hostingv1alpha1.MigrationSpec{Group: "absent.example.com", Operation: hostingv1alpha1.MigrationMove}, "NotFound"},
		"no such Store":           {hostingv1alpha1.MigrationSpec{Group: f.group, Operation: hostingv1alpha1.MigrationMove, StoreName: "absent"}, "StoreNotFound"},
		"rollback of what is not": {hostingv1alpha1.MigrationSpec{Group: f.group, Operation: hostingv1alpha1.MigrationRollback}, "NotHosted"},
		"finalize of what is not": {hostingv1alpha1.MigrationSpec{Group: f.group, Operation: hostingv1alpha1.MigrationFinalize, Confirmed: true}, "NoMainCopy"},
	} {
		t.Run(name, func(t *testing.T) {
			of := *f
			of.T = t
			migration := of.migrate("", func(m *hostingv1alpha1.Migration) { m.Spec = test.spec })
			expect.Contains(t, message(migration), test.want)
			if migration.Status.Phase != hostingv1alpha1.MigrationFailed {
				t.Errorf("it ended as %s", migration.Status.Phase)
			}
		})
	}
	f.wantServed("")
}

// TestMoveWithoutRights waits until annex has the rights, and says how to grant them.
func TestMoveWithoutRights(t *testing.T) {
	t.Parallel()
	f := newFixture(t, sharedAnnex, "forbidden.example.com")
	f.create("default", "one", nil)
	expect.Delete(t, f.main.Kube.RbacV1().ClusterRoles(), "annex-hosted-"+f.group)
	migrations := f.own.Hosting.HostingV1alpha1().Migrations()
	created := expect.Create(t, migrations, &hostingv1alpha1.Migration{
		ObjectMeta: metav1.ObjectMeta{Name: "forbidden"}, Spec: hostingv1alpha1.MigrationSpec{Group: f.group},
	})
	expect.Eventually(t, migrations, created.Name, "names the command that grants the rights", f.lacksRights)
	f.wantServed("")
	f.grant()
	if ended := f.await(created.Name); ended.Status.Phase != hostingv1alpha1.MigrationCompleted {
		t.Errorf("with the rights it ended as %s: %s", ended.Status.Phase, message(ended))
	}
}

// TestCanceledMove deletes a Migration that waits for its confirmation. What it copied is removed, and
// the group can be moved later. The definition changes while it waits.
func TestCanceledMove(t *testing.T) {
	t.Parallel()
	f := newFixture(t, sharedAnnex, "canceled.example.com")
	widget := f.create("default", "one", nil)
	migrations := f.own.Hosting.HostingV1alpha1().Migrations()
	manual := hostingv1alpha1.MigrationSpec{Group: f.group, Switch: hostingv1alpha1.MigrationSwitchManual}
	created := expect.Create(t, migrations, &hostingv1alpha1.Migration{ObjectMeta: metav1.ObjectMeta{Name: "canceled"}, Spec: manual})
	expect.Eventually(t, migrations, created.Name, "waits for its confirmation", waitsForConfirmation)
	expect.Delete(t, migrations, created.Name)
	expect.Gone(t, migrations, created.Name)
	f.wantServed("")
	f.wantIdentity(widget)

	// Its HostedResource is on a Store still.
	stores := f.own.Hosting.HostingV1alpha1().Stores()
	expect.Create(t, stores, &hostingv1alpha1.Store{
		ObjectMeta: metav1.ObjectMeta{Name: "elsewhere"},
		Spec:       hostingv1alpha1.StoreSpec{Etcd: &hostingv1alpha1.EtcdStore{Endpoints: []string{"http://127.0.0.1:1"}}, Unschedulable: true},
	})
	elsewhere := f.migrate(hostingv1alpha1.MigrationMove, func(m *hostingv1alpha1.Migration) { m.Spec.StoreName = "elsewhere" })
	expect.Contains(t, message(elsewhere), "AlreadyPlaced", `is on the Store "default" already`)
	expect.Delete(t, stores, "elsewhere")

	again := expect.Create(t, migrations, &hostingv1alpha1.Migration{ObjectMeta: metav1.ObjectMeta{Name: "again"}, Spec: manual})
	expect.Eventually(t, migrations, again.Name, "waits for its confirmation", waitsForConfirmation)
	expect.Patch(t, f.main.CRDs(), "widgets."+f.group, `{"spec":{"names":{"shortNames":["wdg"]}}}`)
	late := f.create("default", "late", nil)
	expect.Patch(t, migrations, again.Name, `{"spec":{"confirmed":true}}`)
	if ended := f.await(again.Name); ended.Status.Phase != hostingv1alpha1.MigrationCompleted {
		t.Fatalf("it ended as %s: %s", ended.Status.Phase, message(ended))
	}
	f.wantServed(hostingv1alpha1.PublishedBy("annex-system", "annex"))
	f.wantIdentity(widget)
	f.wantIdentity(late)
	expect.Eventually(t, f.own.CRDs(), "widgets."+f.group, "follows the definition", func(crd *definition) bool { return len(crd.Spec.Names.ShortNames) == 1 })
	if twice := f.migrate(hostingv1alpha1.MigrationMove, nil); twice.Status.Phase != hostingv1alpha1.MigrationFailed {
		t.Errorf("a second move ended as %s: %s", twice.Status.Phase, message(twice))
	} else {
		expect.Contains(t, message(twice), "AlreadyHosted")
	}
}

// TestMoveDeletedAfterRestart deletes a Migration whose attempts fail since annex was restarted: what an
// earlier attempt copied is removed.
func TestMoveDeletedAfterRestart(t *testing.T) {
	f := newFixture(t, sharedAnnex, "restarted.example.com")
	f.create("default", "one", nil)
	migrations := f.own.Hosting.HostingV1alpha1().Migrations()
	created := expect.Create(t, migrations, &hostingv1alpha1.Migration{
		ObjectMeta: metav1.ObjectMeta{Name: "restarted"}, Spec: hostingv1alpha1.MigrationSpec{Group: f.group, Switch: hostingv1alpha1.MigrationSwitchManual},
	})
	expect.Eventually(t, migrations, created.Name, "waits for its confirmation", waitsForConfirmation)
	role := expect.Get(t, f.main.Kube.RbacV1().ClusterRoles(), hostingv1alpha1.HostedRoleName(f.group))
	expect.Delete(t, f.main.Kube.RbacV1().ClusterRoles(), role.Name)
	f.restart()
	migrations = f.own.Hosting.HostingV1alpha1().Migrations()
	expect.Eventually(t, migrations, created.Name, "fails for lack of rights", f.lacksRights)
	expect.Delete(t, migrations, created.Name)
	expect.Gone(t, migrations, created.Name)
	f.grant()
	f.mustMigrate(hostingv1alpha1.MigrationMove, nil)
}

// restart restarts annex, for a test that no other runs beside.
func (f *fixture) restart() {
	f.Helper()
	expect.NoError(f, sharedAnnex.Shutdown())
	restarted, err := sharedAnnex.Launch(sharedAnnex.DataDir)
	expect.NoError(f, err)
	*sharedAnnex = *restarted
	expect.NoError(f, sharedAnnex.WaitHosting(f.Context()))
	f.own = clients.For(f, sharedAnnex.AnnexConfig)
}

// lacksRights reports whether a Migration names the command that grants what it lacks.
func (f *fixture) lacksRights(m *hostingv1alpha1.Migration) bool {
	return expect.Missing(message(m), "forbidden", "kubectl annex move "+f.group) == ""
}

func waitsForConfirmation(m *hostingv1alpha1.Migration) bool {
	complete := meta.FindStatusCondition(m.Status.Conditions, hostingv1alpha1.MigrationComplete)
	return complete != nil && complete.Reason == "Waiting" && m.Status.Phase == hostingv1alpha1.MigrationFollowing
}
