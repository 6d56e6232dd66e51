// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package groups

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/cmd/diagnose"
)

// moveFlags are the flags of `annex move`.
type moveFlags struct {
	flags
	store            string
	switchAt         string
	confirmSwitch    bool
	confirm          bool
	objectsPerSecond int32
	exemptWebhooks   bool
	allowBlocked     bool
}

// NewMoveCommand returns `annex move`.
func NewMoveCommand(in io.Reader, out, errOut io.Writer) *cobra.Command {
	o := &moveFlags{}
	cmd := complete(&cobra.Command{
		Use:   "move GROUP",
		Short: "Move an API group with its objects, if any, from a main cluster to annex, while it is used",
		Long: "Move the objects of all CRDs of an API group from a main cluster's etcd to annex, while clients use them. It shows\n" +
			"a plan, grants annex the rights that it needs, creates a Migration and shows its progress. annex labels the CRDs. The\n" +
			"main cluster keeps a copy until `annex finalize`; `annex rollback` returns to it, with everything written since.\n\n" +
			"If a Migration of the group is under way, the command shows that one.",
		Example: "  kubectl annex move example.com --dry-run\n" +
			"  kubectl annex move example.com\n" +
			"  # Copy now, and switch when it suits:\n" +
			"  kubectl annex move example.com --confirm-switch --wait=false\n" +
			"  kubectl annex move example.com --confirm",
	}, &o.flags, in, out, errOut, func(ctx context.Context, s *session) error { return s.move(ctx, o) })
	fs := cmd.Flags()
	fs.StringVar(&o.store, "store", o.store, "The Store to move to. By default, the scheduler chooses one for each resource.")
	fs.StringVar(&o.switchAt, "switch-at", o.switchAt, "The earliest time of the switch, for example 2026-03-01T22:00:00Z.")
	fs.BoolVar(&o.confirmSwitch, "confirm-switch", o.confirmSwitch, "Switch only once --confirm is given to another run.")
	fs.BoolVar(&o.confirm, "confirm", o.confirm, "Let the Migration that is under way switch.")
	fs.Int32Var(&o.objectsPerSecond, "objects-per-second", o.objectsPerSecond, "Limit the rate at which existing objects are copied. 0 means no limit.")
	fs.BoolVar(&o.exemptWebhooks, "exempt-webhooks", o.exemptWebhooks, exemptUsage+" This is for the rollback that annex begins if clients do not reach the group.")
	fs.BoolVar(&o.allowBlocked, "allow-blocked-rollback", o.allowBlocked, "Move although webhooks or policies keep annex from rolling the group back by itself. `annex rollback --exempt-webhooks` does that.")
	return cmd
}

// spec returns that of the Migration.
func (o *moveFlags) spec(group string) (hostingv1alpha1.MigrationSpec, error) {
	spec := hostingv1alpha1.MigrationSpec{
		Group: group, Operation: hostingv1alpha1.MigrationMove, StoreName: o.store,
		ObjectsPerSecond: o.objectsPerSecond, Switch: hostingv1alpha1.MigrationSwitchAutomatic, Confirmed: o.confirm,
		ExemptWebhooks: o.exemptWebhooks,
	}
	if o.objectsPerSecond < 0 {
		return spec, fmt.Errorf("--objects-per-second %d must not be negative", o.objectsPerSecond)
	}
	if o.confirm && (o.confirmSwitch || o.switchAt != "" || o.store != "" || o.objectsPerSecond != 0) {
		return spec, errors.New("--confirm is for the Migration that is under way; it cannot be combined with other flags of the move")
	}
	if o.confirmSwitch {
		spec.Switch = hostingv1alpha1.MigrationSwitchManual
	}
	if o.switchAt != "" {
		at, err := time.Parse(time.RFC3339, o.switchAt)
		if err != nil {
			return spec, fmt.Errorf("--switch-at: %w", err)
		}
		spec.NotBefore = &metav1.Time{Time: at}
	}
	return spec, nil
}

func (s *session) move(ctx context.Context, o *moveFlags) error {
	spec, err := o.spec(s.group)
	if err != nil {
		return err
	}
	return s.run(ctx, steps{
		name: "move", flags: o.flags, spec: spec,
		plan: func(ctx context.Context, h history) ([]string, error) {
			if o.confirm {
				return []string{"no Migration is under way that could be confirmed"}, nil
			}
			return s.planMove(ctx, o)
		},
		rights: func(ctx context.Context, use func(rules) error) error {
			names, err := s.definitions(ctx)
			if err == nil && len(names) == 0 {
				// Without names the role would be for all definitions.
				err = fmt.Errorf("%s: %w", s.group, diagnose.ErrNoDefinition)
			}
			if err != nil {
				return err
			}
			wanted := moveRules(s.group, names)
			if o.exemptWebhooks {
				more, err := s.exemptionRules(ctx)
				if err != nil {
					return err
				}
				wanted = append(wanted, more...)
			}
			return use(wanted)
		},
		done: func(ctx context.Context, h history) (bool, error) {
			hosted, err := s.hosted(ctx)
			notServed := func(resource hostingv1alpha1.HostedResource) bool { return !isPublished(resource) }
			return err == nil && !o.confirm && h.ended(hostingv1alpha1.MigrationMove) && len(hosted) > 0 && !slices.ContainsFunc(hosted, notServed), err
		},
		finish: func(ctx context.Context) error {
			if err := s.endExemptionRights(ctx, o); err != nil {
				return err
			}
			h, err := s.read(ctx)
			if err != nil {
				return err
			}
			isCopied := func(of hostingv1alpha1.MigrationResourceStatus) bool { return of.CopiedObjects > 0 }
			if h.moved == nil || !slices.ContainsFunc(h.moved.Status.Resources, isCopied) {
				s.print("annex serves %s.", s.group)
				s.print("To return to the main cluster: %s", s.command("rollback"))
				return nil
			}
			s.print("annex serves %s. The main cluster keeps its copy.", s.group)
			s.print("To return to it, with everything written since: %s", s.command("rollback"))
			s.print("To delete it, which frees the space in etcd: %s", s.command("finalize"))
			return nil
		},
	})
}

// endExemptionRights takes back the rights to exempt annex from webhooks: the move is not undone any more.
func (s *session) endExemptionRights(ctx context.Context, o *moveFlags) error {
	if !o.exemptWebhooks {
		return nil
	}
	names, err := s.definitions(ctx)
	if err != nil {
		return err
	}
	return s.grant(ctx, "move", moveRules(s.group, names))
}

// planMove prints what is moved where, and returns what prevents it.
func (s *session) planMove(ctx context.Context, o *moveFlags) ([]string, error) {
	report, err := s.survey(ctx)
	if errors.Is(err, diagnose.ErrNoDefinition) {
		return nil, fmt.Errorf("%s: %w", s.group, diagnose.ErrNoDefinition)
	}
	if err != nil {
		return nil, err
	}
	g := report.Groups[0]
	s.print("All resources of %s move together:\n", s.group)
	if err := diagnose.PrintResources(s.out, g); err != nil {
		return nil, fmt.Errorf("print the plan: %w", err)
	}
	s.print("")
	obstacles := obstaclesOf(report)
	if g.Move.Verdict == diagnose.MoveHosted {
		return obstacles, nil
	}
	more, err := s.planStores(ctx, g, o.store)
	if err != nil {
		return nil, err
	}
	s.print("What changes: requests for %s take one more hop, from kube-apiserver to annex. Watches are ended once, and\n"+
		"resource versions jump upwards; clients list again. Names, UIDs and addresses stay. Nothing is refused.", s.group)
	s.print("etcd of the main cluster gets its space back only with: %s\n", s.command("finalize"))
	obstacles = append(obstacles, more...)
	matches := s.planHooks(ctx, o.exemptWebhooks)
	if blocked := s.probeHooks(ctx, matches); len(blocked) > 0 && !o.exemptWebhooks && !o.allowBlocked {
		obstacles = append(obstacles, fmt.Sprintf("annex could not roll the group back by itself: %s. Give --exempt-webhooks, so that it can, "+
			"or --allow-blocked-rollback, and to return: %s", strings.Join(blocked, ", "), s.command("rollback", "--exempt-webhooks")))
	}
	return obstacles, nil
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

// hosted returns the HostedResources of the group.
func (s *session) hosted(ctx context.Context) ([]hostingv1alpha1.HostedResource, error) {
	list, err := s.annex.HostedResources().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, s.noAnswer(fmt.Errorf("list the HostedResources: %w", err))
	}
	var found []hostingv1alpha1.HostedResource
	for _, hosted := range list.Items {
		if _, group, _ := strings.Cut(hosted.Name, "."); group == s.group {
			found = append(found, hosted)
		}
	}
	return found, nil
}

func newTable(out io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(out, 0, 0, 3, ' ', 0) }

// unreachable reports whether an error means that annex does not answer. read reports that.
func unreachable(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsServiceUnavailable(err)
}
