// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"errors"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"

	"github.com/annex-dev/annex/pkg/aggregated/maincopy"
	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/cmd/diagnose"
	"github.com/annex-dev/annex/pkg/cmd/internal/footprint"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// both are the definitions of the group.
var both = []string{gadgets, widgets}

func movable() *fixture {
	return &fixture{report: reportOf(diagnose.MoveYes, 3), definitions: both, annex: []runtime.Object{store("default"), store("fast")}, status: completed()}
}

func waiting() moveFlags { return moveFlags{flags: flags{wait: true}} }

func TestMove(t *testing.T) {
	t.Parallel()
	f, o := movable(), waiting()
	o.spec.StoreName, o.spec.ObjectsPerSecond, o.switchAt, o.confirmSwitch = "fast", 100, "2026-06-01T22:00:00Z", true
	expect.NoError(t, f.start(t).move(t.Context(), &o))
	f.fitsTerminal(t)
	expect.Equal(t, `All resources of example.com move to annex together:

RESOURCE   OBJECTS   ETCD    WATCHES   STORE   FREE
gadgets    0         0       -         fast    -
widgets    3         2.9Ki   -         fast    -

Clients notice: watches end once, and resource versions jump upwards, so that
they list again. No request is refused. Names, UIDs and addresses stay. Requests
take one more hop, from kube-apiserver to annex.
Rights: annex gets a role for all objects of the group, for its CRDs, and for
the policies that freeze the copy. --print-rights shows it.
To return to the main cluster, with everything written since:
  kubectl annex rollback example.com
To delete its copy, which frees the space in its etcd:
  kubectl annex finalize example.com

clusterrole.rbac.authorization.k8s.io/annex-hosted-example.com created
migration.hosting.annex.dev/example.com-move-x created
[0:00] widgets.example.com: 3 objects, 2.9Ki
[0:00] gadgets.example.com: 0 objects
[0:00] Completed
annex serves example.com. The main cluster keeps its copy.
To return to the main cluster, with everything written since:
  kubectl annex rollback example.com
To delete its copy, which frees the space in its etcd:
  kubectl annex finalize example.com
`, f.out.String())
	expect.Equal(t, &hostingv1alpha1.MigrationSpec{
		Group: group, Operation: hostingv1alpha1.MigrationMove, StoreName: "fast", ObjectsPerSecond: 100, Switch: hostingv1alpha1.MigrationSwitchManual,
		NotBefore: &metav1.Time{Time: time.Date(2026, 6, 1, 22, 0, 0, 0, time.UTC)},
	}, f.created(t))
	expect.Equal(t, maincopy.MoveRules(group, both...), f.granted(t))
}

// TestFitTerminal has ordinary names and sizes, and numbers that are not known.
func TestFitTerminal(t *testing.T) {
	t.Parallel()
	const large, in = "validatingpolicyreportbindings", "certificates.example.corp"
	usage := diagnose.Usage{Objects: new(int64(1203456)), Bytes: new(int64(1023 << 20)), Watches: new(int64(1024))}
	hosted := []hostingv1alpha1.HostedResource{*hostedResource(large+"."+in, 1203456, metav1.ConditionTrue)}
	for name, printed := range map[string]func(*session) error{
		"move": func(s *session) error {
			_, err := s.planStores(t.Context(), &diagnose.Group{Name: in, Resources: []*diagnose.Resource{{Name: large, Usage: usage}, {Name: "pins"}}}, "")
			return err
		},
		"rollback": func(s *session) error { return s.printHosted(history{}, hosted) },
		"uninstall": func(s *session) error {
			rollback := migration("m", hostingv1alpha1.MigrationRollback, hostingv1alpha1.MigrationStatus{})
			return s.printUninstall(&installation{groups: []*installed{{Group: &footprint.Group{Name: in}, hosted: hosted, history: history{unfinished: rollback}}}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := movable()
			s := f.start(t)
			s.group = in
			expect.NoError(t, printed(s))
			expect.FitsTerminal(t, f.out.String())
		})
	}
}

// TestMoveIsRefused: nothing is written, and the error says why.
func TestMoveIsRefused(t *testing.T) {
	t.Parallel()
	noAnnex := func(f *fixture) {
		f.hosting.PrependReactor("list", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewNotFound(schema.GroupResource{}, "")
		})
	}
	for name, test := range map[string]struct {
		change func(f *fixture, o *moveFlags)
		after  func(f *fixture)
		want   []string
	}{
		"obstacles": {func(f *fixture, _ *moveFlags) {
			f.report = reportOf(diagnose.MoveNo, 3, "Terminating", "another server")
		}, nil, []string{"move example.com: Terminating; another server"}},
		"broken conversion webhook": {func(f *fixture, _ *moveFlags) {
			f.report = reportOf(diagnose.MoveUnknown, 3, "the objects of widgets cannot be counted")
			f.report.Problems = []string{"conversion webhook failed"}
			f.report.MissingRights = []string{"get /metrics", "list *.example.com"}
		}, nil, []string{"the objects of widgets cannot be counted; missing right: list *.example.com; conversion webhook failed"}},
		"served by annex": {func(f *fixture, _ *moveFlags) { f.report = reportOf(diagnose.MoveHosted, 0, "annex (a.b) serves v1") }, nil, []string{"annex (a.b) serves v1"}},
		"no such Store":   {func(_ *fixture, o *moveFlags) { o.spec.StoreName = "absent" }, nil, []string{"there is no Store absent"}},
		"unfit Store": {func(f *fixture, o *moveFlags) {
			o.spec.StoreName = "full"
			full := store("full")
			full.Spec.Unschedulable = true
			f.annex = append(f.annex, full)
		}, nil, []string{"Store full is unschedulable"}},
		"no Store fits": {func(f *fixture, _ *moveFlags) { f.annex = nil }, nil, []string{"move example.com: "}},
		"a rollback is under way": {func(f *fixture, _ *moveFlags) {
			f.annex = append(f.annex, migration("back", hostingv1alpha1.MigrationRollback, hostingv1alpha1.MigrationStatus{Phase: hostingv1alpha1.MigrationCopying}))
		}, nil, []string{"migration.hosting.annex.dev/back of the group is under way (Rollback)"}},
		"annex is not installed":          {nil, noAnnex, []string{"annex is not installed in this cluster"}},
		"annex is not installed, dry run": {func(_ *fixture, o *moveFlags) { o.dryRun = true }, noAnnex, []string{"annex is not installed in this cluster"}},
		"nothing to confirm":              {func(_ *fixture, o *moveFlags) { o.spec.Confirmed = true }, nil, []string{"no Migration is under way that could be confirmed"}},
		"a negative rate":                 {func(_ *fixture, o *moveFlags) { o.spec.ObjectsPerSecond = -1 }, nil, []string{"--objects-per-second -1"}},
		"no time":                         {func(_ *fixture, o *moveFlags) { o.switchAt = "tonight" }, nil, []string{"--switch-at"}},
		"confirm and something else":      {func(_ *fixture, o *moveFlags) { o.spec.Confirmed, o.spec.StoreName = true, "fast" }, nil, []string{"--confirm is for"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, o := movable(), waiting()
			if test.change != nil {
				test.change(f, &o)
			}
			s := f.start(t)
			if test.after != nil {
				test.after(f)
			}
			expect.ErrorLine(t, s.move(t.Context(), &o), test.want...)
			if f.changed() {
				t.Error("something was written")
			}
		})
	}
}

func TestMoveDryRun(t *testing.T) {
	t.Parallel()
	f, o := movable(), waiting()
	o.dryRun = true
	expect.NoError(t, f.start(t).move(t.Context(), &o))
	expect.Contains(t, f.out.String(), "widgets    3  ", "Nothing was changed.\n")
	if f.changed() {
		t.Error("something was written")
	}
}

// TestMoveIsFinished: nothing is written, and the advice is printed again.
func TestMoveIsFinished(t *testing.T) {
	t.Parallel()
	f, o := moved(), waiting()
	expect.NoError(t, f.start(t).move(t.Context(), &o))
	expect.Contains(t, f.out.String(), "migration.hosting.annex.dev/moved has completed already.\nannex serves example.com.")
	if f.changed() {
		t.Error("something was written")
	}
}

// TestMoveAttaches: a Migration under way is presented, and no other is created.
func TestMoveAttaches(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		status  hostingv1alpha1.MigrationStatus
		confirm bool
		wait    bool
		want    []string
	}{
		"without waiting": {ended(hostingv1alpha1.MigrationCopying, "Copying", ""), false, false, []string{"To see its progress: kubectl annex move example.com"}},
		"confirm":         {ended(hostingv1alpha1.MigrationFollowing, "Waiting", "verified"), true, false, []string{"migration.hosting.annex.dev/mine confirmed"}},
		"until timeout":   {ended(hostingv1alpha1.MigrationCopying, "Copying", ""), false, true, []string{"[0:00] Copying\n", "To see it again:\n  kubectl annex move example.com\n", "  kubectl delete migration mine\n"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, o := movable(), waiting()
			f.report = nil // no plan is made
			f.annex = append(f.annex, migration("mine", hostingv1alpha1.MigrationMove, test.status))
			o.spec.Confirmed, o.wait, o.timeout = test.confirm, test.wait, time.Second
			err := f.start(t).move(t.Context(), &o)
			if test.wait {
				expect.ErrorLine(t, err, "not done after --timeout 1s")
			} else {
				expect.NoError(t, err)
			}
			expect.Contains(t, f.out.String(), append(test.want, "migration.hosting.annex.dev/mine is under way already.\n")...)
			if f.created(t) != nil {
				t.Error("created another Migration")
			}
			current, err := f.session.Annex.HostingV1alpha1().Migrations().Get(t.Context(), "mine", metav1.GetOptions{})
			expect.NoError(t, err)
			expect.Equal(t, test.confirm, current.Spec.Confirmed)
		})
	}
}

// TestQuestion counts prompts: a plan ends with one, only at a terminal and only before something is begun. Rights
// for Secrets need another one.
func TestQuestion(t *testing.T) {
	t.Parallel()
	underWay := func(operation hostingv1alpha1.MigrationOperation) *hostingv1alpha1.Migration {
		return migration("mine", operation, ended(hostingv1alpha1.MigrationCopying, "Copying", ""))
	}
	for name, test := range map[string]struct {
		interactive, attached, secrets, granted bool
		typed                                   string
		flags                                   flags
		// questions is the number of prompts in the output.
		questions int
		err       string
	}{
		"yes":                {interactive: true, typed: "y\n", questions: 1},
		"no":                 {interactive: true, typed: "n\n", questions: 1, err: "not confirmed: nothing was changed"},
		"end of the input":   {interactive: true, questions: 1, err: "not confirmed"},
		"a script":           {},
		"--yes":              {interactive: true, flags: flags{yes: true}},
		"dry run":            {interactive: true, flags: flags{dryRun: true}},
		"under way":          {interactive: true, attached: true},
		"Secrets":            {interactive: true, secrets: true, typed: "y\ny\n", questions: 2},
		"not Secrets":        {interactive: true, secrets: true, typed: "y\nn\n", questions: 2, err: "not confirmed: without rights for Secrets"},
		"a script, Secrets":  {secrets: true, typed: "y\n", questions: 1},
		"under way, Secrets": {interactive: true, attached: true, secrets: true, typed: "y\n", questions: 1},
		"no input, Secrets":  {secrets: true, questions: 1, err: "answer y, or give --yes"},
		"--yes, Secrets":     {secrets: true, flags: flags{yes: true}},
		"dry run, Secrets":   {secrets: true, flags: flags{dryRun: true}},
		"printed, Secrets":   {secrets: true, flags: flags{printRights: true}},
		"granted before":     {secrets: true, granted: true},
	} {
		for command, operation := range map[string]hostingv1alpha1.MigrationOperation{"move": hostingv1alpha1.MigrationMove, "rollback": hostingv1alpha1.MigrationRollback} {
			if test.secrets && command == "move" {
				continue
			}
			t.Run(command+" "+name, func(t *testing.T) {
				t.Parallel()
				f := movable()
				if command == "rollback" {
					f = moved()
				}
				if f.interactive, f.typed = test.interactive, test.typed; test.attached {
					f.annex = append(f.annex, underWay(operation))
				}
				if test.secrets {
					f.dependants = []runtime.Object{ownedSecret()}
				}
				s := f.start(t)
				var err error
				if test.granted {
					expect.NoError(t, s.grant(t.Context(), "rollback", append(maincopy.MoveRules(group, both...), dependantRules([]schema.GroupResource{secrets})...)))
				}
				if command == "move" {
					err = s.move(t.Context(), &moveFlags{flags: test.flags})
				} else {
					err = s.rollback(t.Context(), test.flags)
				}
				expect.ErrorOrNone(t, err, test.err)
				if got := strings.Count(f.out.String(), "[y/N]"); got != test.questions {
					t.Errorf("%d questions, want %d", got, test.questions)
				}
				if f.changed() != (test.err == "" && !test.flags.dryRun && !test.flags.printRights) {
					t.Errorf("changed: %t", f.changed())
				}
			})
		}
	}
}

// TestMoveFails: the error has the message of the condition, and the output what to do.
func TestMoveFails(t *testing.T) {
	t.Parallel()
	for _, phase := range []hostingv1alpha1.MigrationPhase{hostingv1alpha1.MigrationFailed, hostingv1alpha1.MigrationCanceled} {
		f, o := movable(), waiting()
		f.status = ended(phase, "NoSpace", "the etcd is full")
		expect.ErrorLine(t, f.start(t).move(t.Context(), &o), "move example.com: NoSpace: the etcd is full")
		expect.Contains(t, f.out.String(), "type again:\n  kubectl annex move example.com\n", "kubectl label crd gadgets.example.com widgets.example.com annex.dev/hosted-\n", "kubectl delete clusterrole annex-hosted-example.com\n",
			"kubectl delete rolebinding,role -n annex-system annex-hosted-example.com\n")
	}
}

// TestMoveIsUndone: annex has begun to roll the group back, because clients do not reach it.
func TestMoveIsUndone(t *testing.T) {
	t.Parallel()
	f, o := movable(), waiting()
	f.status = ended(hostingv1alpha1.MigrationFailed, "Unreachable", "clients do not reach it")
	s := f.start(t)
	undo := migration("x-undo", hostingv1alpha1.MigrationRollback, hostingv1alpha1.MigrationStatus{Phase: hostingv1alpha1.MigrationPending})
	f.hosting.PrependReactor("create", "migrations", func(clienttesting.Action) (bool, runtime.Object, error) {
		return false, nil, f.hosting.Tracker().Add(undo)
	})
	expect.ErrorLine(t, s.move(t.Context(), &o), "Unreachable: clients do not reach it")
	expect.Contains(t, f.out.String(), "migration.hosting.annex.dev/x-undo moves the group back. To see it, and to take back the rights:\n  kubectl annex rollback example.com\n")
}

func TestRights(t *testing.T) {
	t.Parallel()
	forbidden := func(verb string) clienttesting.ReactionFunc {
		return func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: verb}, "x", errors.New("no"))
		}
	}
	for name, test := range map[string]struct {
		change func(f *fixture)
		err    []string
		out    string
	}{
		"annex does not get them": {func(f *fixture) { f.denied = "create validatingadmissionpolicies" }, []string{"annex may still not create validatingadmissionpolicies.admissionregistration.k8s.io: see kubectl annex doctor"}, ""},
		"the user may not grant": {func(f *fixture) { f.kube.PrependReactor("create", "clusterroles", forbidden("clusterroles")) },
			[]string{"grant annex the rights for example.com", "kubectl annex move example.com --print-rights"}, ""},
		"the user may not ask":        {func(f *fixture) { f.kube.PrependReactor("create", "subjectaccessreviews", forbidden("reviews")) }, nil, "Not checked whether annex has these rights yet."},
		"the user may not see annex":  {func(f *fixture) { f.kube.PrependReactor("get", "clusterrolebindings", forbidden("bindings")) }, nil, "Not checked whether annex has these rights yet."},
		"the user may not list them":  {func(f *fixture) { f.meta.PrependReactor("list", "customresourcedefinitions", forbidden("definitions")) }, []string{"list the CustomResourceDefinitions of https://main"}, ""},
		"the user may not create one": {func(f *fixture) { f.hosting.PrependReactor("create", "migrations", forbidden("migrations")) }, []string{"create the Migration of example.com"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, o := movable(), waiting()
			s := f.start(t)
			test.change(f)
			err := s.move(t.Context(), &o)
			expect.Contains(t, f.out.String(), test.out)
			if test.err == nil {
				expect.NoError(t, err)
				return
			}
			expect.ErrorLine(t, err, test.err...)
		})
	}
}

// TestRoleIsExtended: what is left after Finalize is replaced, and a second run changes nothing.
func TestRoleIsExtended(t *testing.T) {
	t.Parallel()
	f := movable()
	s := f.start(t)
	for _, step := range []struct {
		rights rules
		want   string
	}{{finalizedRules(group), "created"}, {maincopy.MoveRules(group, both...), "configured"}, {maincopy.MoveRules(group, both...), "unchanged"}} {
		f.out.Reset()
		expect.NoError(t, s.grant(t.Context(), "move", step.rights))
		expect.Equal(t, "clusterrole.rbac.authorization.k8s.io/annex-hosted-example.com "+step.want+"\n", f.out.String())
		expect.Equal(t, step.rights, f.granted(t))
	}
}

func TestPrintRights(t *testing.T) {
	t.Parallel()
	f, o := movable(), waiting()
	o.printRights = true
	expect.NoError(t, f.start(t).move(t.Context(), &o))
	expect.Contains(t, f.out.String(), "kind: ClusterRole\n", "annex.dev/aggregate-to-annex: \"true\"\n", "name: annex-hosted-example.com\n", "  - annex-freeze.example.com\n", "kind: RoleBinding\n", "  namespace: annex-system\n")
	if f.changed() {
		t.Error("something was written")
	}
}
