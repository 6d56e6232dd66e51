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

	"github.com/spf13/cobra"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/annex-dev/annex/pkg/aggregated/maincluster"
	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/cmd/internal/footprint"
	"github.com/annex-dev/annex/pkg/table"
)

// NewUninstallCommand returns `annex uninstall`.
func NewUninstallCommand(in io.Reader, out, errOut io.Writer) *cobra.Command {
	o := &flags{}
	cmd := run(&cobra.Command{
		Use:   "uninstall",
		Short: "Move all API groups back to the main cluster, and remove what annex has written there",
		Long: "Roll back every API group that annex serves to its main cluster, one after the other, as `annex rollback` does.\n" +
			"Then stop annex, and remove what it has written to the main cluster: its APIService, labels of CRDs, policies, roles,\n" +
			"its Lease and its CA. It removes nothing while annex serves a group or has objects that the main cluster does not\n" +
			"have. annex's data and its manifests are left: it prints how to delete them.",
		Example: "  kubectl annex uninstall --dry-run\n" +
			"  kubectl annex uninstall",
		Args: cobra.NoArgs,
	}, &o.login, in, out, errOut, func(ctx context.Context, s *session) error { return s.uninstall(ctx, *o) })
	fs := cmd.Flags()
	o.login.AddFlags(fs, "the main cluster")
	fs.BoolVar(&o.dryRun, "dry-run", o.dryRun, "Only show the plan. The exit code is 1 if a group has to be rolled back, or something prevents it.")
	o.addExempt(fs, "")
	fs.DurationVar(&o.timeout, "timeout", o.timeout, "How long to wait at most for each rollback, and for the end of annex. 0 means no limit.")
	return cmd
}

func (s *session) uninstall(ctx context.Context, o flags) error {
	found, err := s.inspect(ctx)
	if err != nil {
		return fmt.Errorf("uninstall: nothing was changed: %w", err)
	}
	if err := s.printUninstall(found); err != nil {
		return err
	}
	if len(found.obstacles) > 0 {
		return fmt.Errorf("uninstall: nothing was changed: %s", strings.Join(found.obstacles, "; "))
	}
	switch {
	case o.dryRun && len(found.back) > 0:
		return fmt.Errorf("uninstall: annex serves %s, which %s uninstall rolls back first", strings.Join(found.back, ", "), s.program)
	case o.dryRun:
		s.print("Nothing was changed.")
		return nil
	case !o.yes:
		if err := s.confirm("Type yes to uninstall annex: ", "type yes, or give --yes", "yes"); err != nil {
			return fmt.Errorf("uninstall: %w", err)
		}
	}
	var released []*installed
	for _, name := range found.back {
		o.wait = true
		if err := s.of(name).rollback(ctx, o); err != nil {
			return fmt.Errorf("uninstall: %w. Nothing was removed, and annex serves the groups that are left: remove the cause, and type it again", err)
		}
		released = append(released, &installed{Group: found.Group(name)})
		s.print("")
	}
	found, err = s.settled(ctx, released)
	if err != nil {
		return fmt.Errorf("uninstall: nothing was removed: %w", err)
	}
	if err := s.removeInstallation(ctx, found, o.timeout); err != nil {
		return fmt.Errorf("uninstall: %w", err)
	}
	s.printNext(ctx, found.service)
	return nil
}

// of returns a session for a group, in which the user has agreed to the plan.
func (s *session) of(group string) *session {
	of := *s
	of.group, of.interactive = group, false
	return &of
}

// settled verifies that the main cluster serves all groups, and that annex has released some, for which it may take a moment.
func (s *session) settled(ctx context.Context, released []*installed) (found *installation, err error) {
	var left []string
	polled := wait.PollUntilContextTimeout(ctx, s.pollInterval, s.settleTimeout, true, func(context.Context) (bool, error) {
		if found, err = s.inspect(ctx); err != nil {
			return false, err
		}
		left = found.obstacles
		for _, name := range found.back {
			left = append(left, "annex serves "+name+" again")
		}
		for _, of := range released {
			switch g := found.Group(of.Name); {
			case len(g.Labelled) > 0:
				left = append(left, strings.Join(g.Labelled, ", ")+" has the label "+hostingv1alpha1.HostedLabel+" again: remove it where the definition comes from")
			case g.Frozen, g.Reserved, len(g.Finalized) > 0:
				left = append(left, "a policy or finalizer of annex is left in "+g.Name+": type it again")
			}
		}
		return len(left) == 0, nil
	})
	switch {
	case err != nil || ctx.Err() != nil:
		return nil, errors.Join(err, ctx.Err())
	case polled != nil:
		return nil, errors.New(strings.Join(left, "; "))
	}
	return found, nil
}

func (s *session) printUninstall(found *installation) error {
	if len(found.groups) == 0 {
		s.print("annex serves no group of %s.", s.server)
	} else {
		s.print("annex has something of these groups of %s:\n", s.server)
		var rows []string
		for _, g := range found.groups {
			var objects, bytes int64
			for _, resource := range g.hosted {
				objects, bytes = objects+resource.Status.Objects, bytes+resource.Status.Bytes
			}
			rows = append(rows, fmt.Sprintf("%s\t%s\t%d\t%d\t%s", g.Name, g.state(), len(g.hosted), objects, table.Bytes(bytes)))
		}
		if err := s.printTable("GROUP\tSTATE\tRESOURCES\tOBJECTS\tBYTES", rows); err != nil {
			return err
		}
	}
	s.print("")
	if len(found.back) > 0 {
		s.print("Each group that annex serves is rolled back, with everything written in annex.")
	}
	s.say("Then annex is stopped, and what it wrote to the main cluster is removed: its APIService, labels, policies, roles, Lease and CA. " +
		"Its data is not deleted.")
	s.print("")
	return nil
}

type installation struct {
	*footprint.Footprint
	service maincluster.Service
	// groups are those that the main cluster or annex has something of.
	groups []*installed
	// back names the groups to roll back. obstacles prevent the uninstallation.
	back, obstacles []string
}

type installed struct {
	*footprint.Group
	hosted  []hostingv1alpha1.HostedResource
	history history
}

// inspect reads what the main cluster and annex have. It is an error if annex does not answer,
// because the main cluster does not show all that annex may have.
func (s *session) inspect(ctx context.Context) (*installation, error) {
	definitions, err := s.allDefinitions(ctx)
	if err != nil {
		return nil, err
	}
	apiServices, err := s.APIServices.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list the APIServices of %s: %w", s.server, err)
	}
	read, err := footprint.Read(ctx, s.Kube, apiServices.Items, definitions)
	if err != nil {
		return nil, err
	}
	found := &installation{Footprint: read, service: maincluster.DefaultService()}
	byGroup := map[string][]hostingv1alpha1.HostedResource{}
	if read.Hosting != nil {
		found.service.Namespace, found.service.Name = read.Hosting.Spec.Service.Namespace, read.Hosting.Spec.Service.Name
		if byGroup, err = s.hostedByGroup(ctx); err != nil {
			var served []string
			for _, g := range read.Groups {
				if g.Served() {
					served = append(served, g.Name)
				}
			}
			return nil, fmt.Errorf("%w (it serves %s)", err, table.OrNone(strings.Join(served, ", ")))
		}
	}
	names := slices.Collect(maps.Keys(byGroup))
	for _, g := range read.Groups {
		names = append(names, g.Name)
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		g := &installed{Group: read.Group(name), hosted: byGroup[name]}
		found.groups = append(found.groups, g)
		back, obstacles, err := s.judge(ctx, g, read.Hosting != nil)
		if err != nil {
			return nil, err
		}
		if back {
			found.back = append(found.back, g.Name)
		}
		for _, obstacle := range obstacles {
			found.obstacles = append(found.obstacles, g.Name+": "+obstacle)
		}
	}
	return found, nil
}

// judge reports whether a group has to be rolled back, and what prevents the uninstallation.
func (s *session) judge(ctx context.Context, g *installed, runs bool) (back bool, obstacles []string, err error) {
	of := s.of(g.Name)
	of.out, of.errOut = io.Discard, io.Discard
	if runs {
		if g.history, err = of.read(ctx); err != nil {
			return false, nil, err
		}
	}
	var objects int64
	for _, resource := range g.hosted {
		objects += resource.Status.Objects
	}
	isBack := g.history.ended(hostingv1alpha1.MigrationRollback)
	obstacle, doctor := "", "see "+s.program+" doctor"
	switch unfinished := g.history.unfinished; {
	case !runs && (g.Served() || g.Frozen || g.Open || len(g.Finalized) > 0):
		obstacle = "an annex that does not run has its objects: start it with its data, " + doctor
	case !runs:
	case len(g.Terminating) > 0:
		obstacle = strings.Join(g.Terminating, ", ") + " is being deleted and waits for annex: type it again when that is done"
	case unfinished != nil && unfinished.Spec.Operation == hostingv1alpha1.MigrationRollback:
		return true, nil, nil
	case unfinished != nil:
		obstacle = fmt.Sprintf("%s is under way (%s): wait for its end", named(unfinished), unfinished.Spec.Operation)
	case g.Served() && len(g.hosted) == 0:
		obstacle = "the main cluster sends its requests to annex, which has nothing of it: start annex with the right data, " + doctor
	case g.Served():
		obstacles, err = of.planRollback(ctx, g.history)
		return true, obstacles, err
	case g.Open, g.Frozen && !isBack:
		obstacle = "the main cluster keeps a copy for annex, but does not send its requests there: " + doctor
	case objects > 0 && !isBack:
		obstacle = fmt.Sprintf("annex has %d objects of it, and the main cluster does not send its requests there: %s", objects, doctor)
	}
	if obstacle != "" {
		obstacles = []string{obstacle}
	}
	return false, obstacles, nil
}

func (g *installed) state() string {
	switch {
	case g.history.unfinished != nil:
		return string(g.history.unfinished.Spec.Operation) + " under way"
	case g.Served() && g.history.ended(hostingv1alpha1.MigrationFinalize):
		return "Finalized"
	case g.Served() && g.Frozen:
		return "Moved"
	case g.Served():
		return "Hosted"
	case g.Open || g.Frozen:
		return "Copy kept"
	}
	return "Not served"
}
