// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/annex-dev/annex/pkg/aggregated/maincopy"
	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/cmd/diagnose"
	"github.com/annex-dev/annex/pkg/scheduler"
	"github.com/annex-dev/annex/pkg/scheduler/framework"
	"github.com/annex-dev/annex/pkg/table"
)

type moveFlags struct {
	flags
	spec          hostingv1alpha1.MigrationSpec
	switchAt      string
	confirmSwitch bool
	allowBlocked  bool
}

// NewMoveCommand returns `annex move`.
func NewMoveCommand(in io.Reader, out, errOut io.Writer) *cobra.Command {
	o := &moveFlags{}
	cmd := runGroup(&cobra.Command{
		Use:   "move GROUP",
		Short: "Move an API group with its objects, if any, from a main cluster to annex, while it is used",
		Long: "Move the objects of all CRDs of an API group from a main cluster's etcd to annex, while clients use them. It shows\n" +
			"a plan and asks, at a terminal, whether to go on; grants annex the rights that it needs, creates a Migration and\n" +
			"shows its progress. annex labels the CRDs. The main cluster keeps a copy until `annex finalize`; `annex rollback`\n" +
			"returns to it, with everything written since.\n\n" +
			"If a Migration of the group is under way, the command shows that one.",
		Example: "  kubectl annex move example.com --dry-run\n" +
			"  kubectl annex move example.com\n" +
			"  # Copy now, and switch when it suits:\n" +
			"  kubectl annex move example.com --confirm-switch --wait=false\n" +
			"  kubectl annex move example.com --confirm",
	}, &o.flags, in, out, errOut, func(ctx context.Context, s *session) error { return s.move(ctx, o) })
	fs := cmd.Flags()
	o.addExempt(fs, " This is for the rollback that annex begins if clients do not reach the group.")
	fs.StringVar(&o.spec.StoreName, "store", o.spec.StoreName, "The Store to move to. By default, the scheduler chooses one for each resource.")
	fs.StringVar(&o.switchAt, "switch-at", o.switchAt, "The earliest time of the switch, for example 2026-03-01T22:00:00Z.")
	fs.BoolVar(&o.confirmSwitch, "confirm-switch", o.confirmSwitch, "Switch only once --confirm is given to another run.")
	fs.BoolVar(&o.spec.Confirmed, "confirm", o.spec.Confirmed, "Let the Migration that is under way switch.")
	fs.Int32Var(&o.spec.ObjectsPerSecond, "objects-per-second", o.spec.ObjectsPerSecond, "Limit the rate at which existing objects are copied. 0 means no limit.")
	fs.BoolVar(&o.allowBlocked, "allow-blocked-rollback", o.allowBlocked, "Move although webhooks or policies keep annex from rolling the group back by itself. `annex rollback --exempt-webhooks` does that.")
	return cmd
}

func (o *moveFlags) complete(group string) error {
	spec := &o.spec
	switch {
	case spec.ObjectsPerSecond < 0:
		return fmt.Errorf("--objects-per-second %d must not be negative", spec.ObjectsPerSecond)
	case spec.Confirmed && (o.confirmSwitch || o.switchAt != "" || spec.StoreName != "" || spec.ObjectsPerSecond != 0):
		return errors.New("--confirm is for the Migration that is under way; it cannot be combined with other flags of the move")
	}
	spec.Group, spec.Operation, spec.Switch, spec.ExemptWebhooks = group, hostingv1alpha1.MigrationMove, hostingv1alpha1.MigrationSwitchAutomatic, o.exemptWebhooks
	if o.confirmSwitch {
		spec.Switch = hostingv1alpha1.MigrationSwitchManual
	}
	if o.switchAt != "" {
		at, err := time.Parse(time.RFC3339, o.switchAt)
		if err != nil {
			return fmt.Errorf("--switch-at: %w", err)
		}
		spec.NotBefore = &metav1.Time{Time: at}
	}
	return nil
}

func (s *session) move(ctx context.Context, o *moveFlags) error {
	if err := o.complete(s.group); err != nil {
		return err
	}
	rights := func(definitions []string) (rules, error) {
		return maincopy.MoveRules(s.group, definitions...), nil
	}
	return s.run(ctx, operation{
		name: "move", flags: o.flags, spec: o.spec,
		plan: func(ctx context.Context, _ history) ([]string, error) {
			if o.spec.Confirmed {
				return []string{"no Migration is under way that could be confirmed"}, nil
			}
			return s.planMove(ctx, o)
		},
		confirm: func(_ context.Context, under *hostingv1alpha1.Migration) error { return s.agreeToPlan(o.flags, under) },
		rights:  rights,
		done:    func(served, all int) bool { return !o.spec.Confirmed && served > 0 && served == all },
		finish: func(ctx context.Context) error {
			if o.exemptWebhooks { // annex does not undo the move any more
				wanted, err := s.wanted(ctx, operation{rights: rights})
				if err == nil {
					err = s.grant(ctx, "move", wanted)
				}
				if err != nil {
					return err
				}
			}
			h, err := s.read(ctx)
			if err != nil {
				return err
			}
			if h.moved == nil || h.moved.Status.CopiedObjects == 0 {
				s.print("annex serves %s.\nTo return to the main cluster:\n  %s", s.group, s.command("rollback"))
				return nil
			}
			s.print("annex serves %s. The main cluster keeps its copy.", s.group)
			s.printWays()
			return nil
		},
	})
}

// planMove prints what is moved where, and returns what prevents it.
func (s *session) planMove(ctx context.Context, o *moveFlags) ([]string, error) {
	report, err := s.survey(ctx)
	if errors.Is(err, diagnose.ErrNoDefinition) {
		err = fmt.Errorf("%s: %w", s.group, diagnose.ErrNoDefinition)
	}
	if err != nil {
		return nil, err
	}
	g, obstacles := report.Groups[0], obstaclesOf(report)
	s.print("All resources of %s move to annex together:\n", s.group)
	more, err := s.planStores(ctx, g, o.spec.StoreName)
	if err != nil || g.Move.Verdict == diagnose.MoveHosted {
		return obstacles, err
	}
	obstacles = append(obstacles, more...)
	s.say("Clients notice: watches end once, and resource versions jump upwards, so that they list again. No request is refused. Names, " +
		"UIDs and addresses stay. Requests take one more hop, from kube-apiserver to annex.")
	s.say("Rights: annex gets a role for all objects of the group, for its CRDs, and for the policies that freeze the copy. --print-rights shows it.")
	s.printWays()
	s.print("")
	matches := s.planHooks(ctx, o.exemptWebhooks)
	if blocked := s.probeHooks(ctx, matches); len(blocked) > 0 && !o.exemptWebhooks && !o.allowBlocked {
		obstacles = append(obstacles, fmt.Sprintf("annex could not roll the group back by itself: %s. Give --exempt-webhooks, so that it can, "+
			"or --allow-blocked-rollback, and to return: %s", strings.Join(blocked, ", "), s.command("rollback", "--exempt-webhooks")))
	}
	return obstacles, nil
}

func (s *session) printWays() {
	s.print("To return to the main cluster, with everything written since:\n  %s\nTo delete its copy, which frees the space in its etcd:\n  %s",
		s.command("rollback"), s.command("finalize"))
}

// obstaclesOf returns what prevents a move, according to the survey of the main cluster.
func obstaclesOf(report *diagnose.Report) []string {
	move := report.Groups[0].Move
	if move.Verdict == diagnose.MoveYes {
		return nil
	}
	obstacles := move.Reasons
	if move.Verdict == diagnose.MoveUnknown {
		for _, right := range report.MissingRights {
			if right != "get /metrics" {
				obstacles = append(obstacles, "missing right: "+right)
			}
		}
		obstacles = append(obstacles, report.Problems...)
	}
	return obstacles
}

// planStores prints the resources of a group and the Stores that they go to, and returns what prevents that. run reports
// that annex does not answer.
func (s *session) planStores(ctx context.Context, g *diagnose.Group, store string) (obstacles []string, err error) {
	cluster, err := scheduler.ReadCluster(ctx, s.Annex.HostingV1alpha1())
	noAnswer := apierrors.IsNotFound(err) || apierrors.IsServiceUnavailable(err)
	if err != nil && !noAnswer {
		return nil, fmt.Errorf("read the Stores: %w", err)
	}
	var rows []string
	needed := map[string]int64{}
	for _, r := range g.Resources {
		target, name := table.Unknown, r.Name+"."+g.Name
		if !noAnswer {
			hosted := &hostingv1alpha1.HostedResource{ObjectMeta: metav1.ObjectMeta{Name: name}}
			for i := range cluster.Resources {
				if cluster.Resources[i].Name == name {
					hosted = &cluster.Resources[i]
				}
			}
			var why string
			if target, why = choose(cluster.Decide(hosted), store); why != "" {
				target, obstacles = table.None, append(obstacles, why)
			} else {
				needed[target] += ptr.Deref(r.Bytes, 0)
			}
		}
		rows = append(rows, strings.Join([]string{r.Name, diagnose.Number(r.Objects, table.Dash), diagnose.Size(r.Bytes, table.Dash),
			diagnose.Number(r.Watches, table.Dash), target, diagnose.Size(freeIn(cluster, target), table.Dash)}, "\t"))
	}
	err = s.printTable("RESOURCE\tOBJECTS\tETCD\tWATCHES\tSTORE\tFREE", rows)
	s.print("")
	for _, name := range slices.Sorted(maps.Keys(needed)) {
		if left := freeIn(cluster, name); left != nil && *left < needed[name] {
			s.say("Store %s has less space than the objects have before compression. If it is too small, the move fails and is undone.", name)
		}
	}
	slices.Sort(obstacles)
	return slices.Compact(obstacles), err
}

func choose(decision framework.Decision, store string) (target, why string) {
	if store == "" {
		if best, fits := decision.Best(); fits {
			return best.Store, ""
		}
		return "", decision.String()
	}
	for _, result := range decision {
		if result.Store == store && !result.Fits() {
			return "", "Store " + store + " " + result.Message()
		}
		if result.Store == store {
			return store, ""
		}
	}
	return "", "there is no Store " + store
}

// freeIn returns what is left of the quota of a Store, or nil if that is not known.
func freeIn(cluster scheduler.Cluster, name string) *int64 {
	for i := range cluster.Stores {
		status := cluster.Stores[i].Status
		if cluster.Stores[i].Name == name && status.Quota != nil && status.SizeInUse != nil {
			return new(max(0, status.Quota.Value()-status.SizeInUse.Value()))
		}
	}
	return nil
}
