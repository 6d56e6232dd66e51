// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/annex-dev/annex/pkg/aggregated/maincopy"
	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// moved is a group that was moved.
func moved() *fixture {
	return &fixture{
		definitions: both, annex: append(inAnnex(), migration("moved", hostingv1alpha1.MigrationMove, completed())), status: completed(),
	}
}

func TestRollback(t *testing.T) {
	t.Parallel()
	f := moved()
	s := f.start(t)
	expect.NoError(t, s.rollback(t.Context(), flags{wait: true}))
	f.fitsTerminal(t)
	expect.Equal(t, `All resources of example.com move back to the main cluster together:

RESOURCE   STORE     OBJECTS   BYTES   OBJECTS WHEN MOVED
gadgets    default   0         0       0
widgets    default   4         4Ki     3

Writes wait a moment during the switch, watches end once, and clients list
again. Objects created in annex get new UIDs, and owner references to them are
changed.

Objects of example.com own others. To change their owner references, annex gets
the right to get, list and patch all of these until the end:
  configmaps, deployments.apps

clusterrole.rbac.authorization.k8s.io/annex-hosted-example.com created
migration.hosting.annex.dev/example.com-rollback-x created
[0:00] widgets.example.com: 3 objects, 2.9Ki
[0:00] gadgets.example.com: 0 objects
[0:00] Completed
rolebinding.rbac.authorization.k8s.io/annex-hosted-example.com deleted
role.rbac.authorization.k8s.io/annex-hosted-example.com deleted
clusterrole.rbac.authorization.k8s.io/annex-hosted-example.com deleted
The main cluster serves example.com.
`, f.out.String())
	expect.Equal(t, &hostingv1alpha1.MigrationSpec{Group: group, Operation: hostingv1alpha1.MigrationRollback}, f.created(t))
	if f.granted(t) != nil {
		t.Error("the rights are still granted")
	}
	var granted rules
	for _, action := range f.kube.Actions() {
		if create, ok := action.(clienttesting.CreateAction); ok && action.GetResource().Resource == "clusterroles" {
			granted = create.GetObject().(*rbacv1.ClusterRole).Rules
		}
	}
	// Pods have no owner in the group, and its own resources are in the rules already.
	if n := len(granted); n < 3 {
		t.Fatalf("granted %+v", granted)
	}
	expect.Equal(t, rules{
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list", "patch"}},
		{APIGroups: []string{"apps"}, Resources: []string{"deployments"}, Verbs: []string{"get", "list", "patch"}},
	}, granted[len(granted)-2:])
}

// TestRollbackAhead shows in the plan how long it takes to raise the main cluster's revision.
func TestRollbackAhead(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ main, annex, want, err string }{
		"behind":   {"9000000", "7", "", ""},
		"a bit":    {"7", "9000", "", ""},
		"far":      {"1000", "9001000", "annex's resource versions are 9000000 above the main cluster's: annex makes as\nmany writes there first, which takes about 150m, and longer if clients write\nmuch meanwhile.", ""},
		"too far":  {"1000", "50001001", "", "annex's resource versions are 50000001 above the main cluster's, and annex makes at most 50000000 writes there"},
		"unparsed": {"x", "7", `annex: warning: compare the resource versions of annex and the main cluster: strconv.ParseInt: parsing "x"`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := moved()
			f.mainRevision, f.annexRevision = test.main, test.annex
			expect.ErrorOrNone(t, f.start(t).rollback(t.Context(), flags{dryRun: true}), test.err)
			expect.Contains(t, f.out.String(), test.want)
			if f.changed() || test.want == "" && strings.Contains(f.out.String(), "resource versions") {
				t.Error(f.out.String())
			}
		})
	}
}

func TestRollbackIsRefused(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(f *fixture)
		want   string
	}{
		"not in annex":  {func(f *fixture) { f.annex = nil }, "annex has nothing of this group"},
		"no definition": {func(f *fixture) { f.definitions = []string{gadgets} }, "the main cluster has no definition widgets.example.com"},
		"the move is not finished": {func(f *fixture) {
			f.annex = append(f.annex, migration("new", hostingv1alpha1.MigrationMove, hostingv1alpha1.MigrationStatus{}))
		}, "migration.hosting.annex.dev/new of the group is under way (Move)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := moved()
			test.change(f)
			expect.ErrorLine(t, f.start(t).rollback(t.Context(), flags{wait: true}), "rollback example.com: "+test.want)
			if f.changed() {
				t.Error("something was written")
			}
		})
	}
}

func TestRollbackFails(t *testing.T) {
	t.Parallel()
	f := moved()
	f.status = ended(hostingv1alpha1.MigrationFailed, "Different", "the copy differs")
	expect.ErrorLine(t, f.start(t).rollback(t.Context(), flags{wait: true}), "rollback example.com: Different: the copy differs")
	expect.Contains(t, f.out.String(), "annex serves example.com. Remove the cause and type again:\n  kubectl annex rollback example.com\n")
	if f.granted(t) == nil {
		t.Error("the rights were taken back")
	}
}

// TestRollbackIsFinished: the Migration was created with kubectl, or the command did not wait.
func TestRollbackIsFinished(t *testing.T) {
	t.Parallel()
	f := moved()
	back := migration("back", hostingv1alpha1.MigrationRollback, completed())
	back.Status.CompletionTime = &metav1.Time{Time: noon.AddDate(0, 0, 1)}
	f.annex = []runtime.Object{migration("moved", hostingv1alpha1.MigrationMove, completed()), back}
	s := f.start(t)
	expect.NoError(t, s.grant(t.Context(), "move", maincopy.MoveRules(group, both...)))
	expect.NoError(t, s.rollback(t.Context(), flags{wait: true}))
	expect.Contains(t, f.out.String(), "migration.hosting.annex.dev/back has completed already.\n")
	if f.granted(t) != nil || f.created(t) != nil {
		t.Error("the rights are still granted, or another Migration was created")
	}
}

func TestFinalize(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		flags finalizeFlags
		typed string
		saved bool
		err   string
	}{
		"typed":             {finalizeFlags{}, "example.com\n", true, ""},
		"flags":             {finalizeFlags{yesDelete: group, noBackup: true}, "", false, ""},
		"typed wrongly":     {finalizeFlags{}, "yes\n", false, "not confirmed"},
		"not typed":         {finalizeFlags{}, "", false, "give it with --yes-delete"},
		"another group":     {finalizeFlags{yesDelete: "other.com"}, "", false, `--yes-delete "other.com" is not the group example.com`},
		"backup and not":    {finalizeFlags{noBackup: true, backup: "x"}, "", false, "either --backup or --no-backup"},
		"backup that fails": {finalizeFlags{yesDelete: group}, "", false, "--backup: save gadgets.example.com: no space"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := moved()
			f.typed = test.typed
			s, o, folder := f.start(t), test.flags, filepath.Join(t.TempDir(), "new")
			o.wait = true
			if !o.noBackup {
				o.backup = folder
			}
			if name == "backup that fails" {
				s.save = func(context.Context, string, string) error { return errors.New("no space") }
			}
			err := s.finalize(t.Context(), &o)
			if test.saved {
				expect.Equal(t, []string{gadgets + " " + filepath.Join(folder, gadgets+".backup"), widgets + " " + filepath.Join(folder, widgets+".backup")}, f.saved)
			}
			if test.err != "" {
				expect.ErrorLine(t, err, test.err)
				if f.changed() {
					t.Error("something was written")
				}
				return
			}
			expect.NoError(t, err)
			expect.Equal(t, &hostingv1alpha1.MigrationSpec{Group: group, Operation: hostingv1alpha1.MigrationFinalize, Confirmed: true}, f.created(t))
			expect.Equal(t, finalizedRules(group), f.granted(t))
			expect.Contains(t, f.out.String(), "widgets    default   4         4Ki     3\n", "The main cluster stores no objects of example.com.")
		})
	}
}

// TestFinalizeAttaches: a Migration from GitOps waits for the confirmation.
func TestFinalizeAttaches(t *testing.T) {
	t.Parallel()
	f := moved()
	f.annex = append(f.annex, migration("theirs", hostingv1alpha1.MigrationFinalize, ended(hostingv1alpha1.MigrationPending, "Waiting", "confirm")))
	o := &finalizeFlags{yesDelete: group, noBackup: true}
	expect.NoError(t, f.start(t).finalize(t.Context(), o))
	expect.Contains(t, f.out.String(), "theirs is under way already.\n", "migration.hosting.annex.dev/theirs confirmed\n")
	// A confirmed Migration needs no confirmation.
	o.yesDelete = ""
	expect.NoError(t, f.session.finalize(t.Context(), o))
}
