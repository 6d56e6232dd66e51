// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package groups

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"k8s.io/apimachinery/pkg/util/wait"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/cmd/login"
	"github.com/annex-dev/annex/pkg/registry/table"
)

// settleTimeout bounds what annex still does after the last rollback.
const settleTimeout = time.Minute

// uninstallFlags are the flags of `annex uninstall`.
type uninstallFlags struct {
	login                       login.Options
	dryRun, yes, exemptWebhooks bool
	timeout                     time.Duration
}

// NewUninstallCommand returns `annex uninstall`.
func NewUninstallCommand(in io.Reader, out, errOut io.Writer) *cobra.Command {
	o := &uninstallFlags{}
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Move all API groups back to the main cluster, and remove what annex has written there",
		Long: "Roll back every API group that annex serves to its main cluster, one after the other, as `annex rollback` does.\n" +
			"Then stop annex, and remove what it has written to the main cluster: its APIService, labels of CRDs, policies, roles,\n" +
			"its Lease and its CA. It removes nothing while annex serves a group or has objects that the main cluster does not\n" +
			"have. annex's data and its manifests are left: it prints how to delete them.",
		Example: "  kubectl annex uninstall --dry-run\n" +
			"  kubectl annex uninstall",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runSession(cmd, &o.login, "", in, out, errOut, func(ctx context.Context, s *session) error { return s.uninstall(ctx, o) })
		},
	}
	fs := cmd.Flags()
	o.login.AddFlags(fs, "the main cluster")
	fs.BoolVar(&o.dryRun, "dry-run", o.dryRun, "Only show the plan. The exit code is 1 if a group has to be rolled back, or something prevents it.")
	fs.BoolVar(&o.yes, "yes", o.yes, "Do not ask.")
	fs.BoolVar(&o.exemptWebhooks, "exempt-webhooks", o.exemptWebhooks, exemptUsage)
	fs.DurationVar(&o.timeout, "timeout", o.timeout, "How long to wait at most for each rollback, and for the end of annex. 0 means no limit.")
	return cmd
}

func (s *session) uninstall(ctx context.Context, o *uninstallFlags) error {
	found, err := s.inspect(ctx)
	if err != nil {
		return fmt.Errorf("uninstall: nothing was changed: %w", err)
	}
	if err := s.printUninstall(found); err != nil {
		return err
	}
	if obstacles := found.obstacles(); len(obstacles) > 0 {
		return fmt.Errorf("uninstall: nothing was changed: %s", strings.Join(obstacles, "; "))
	}
	back := found.toRollBack()
	switch {
	case o.dryRun && len(back) > 0:
		return fmt.Errorf("uninstall: annex serves %s, which %s uninstall rolls back first", strings.Join(back, ", "), s.program)
	case o.dryRun:
		s.print("Nothing was changed.")
		return nil
	case !o.yes:
		if err := s.agreeToUninstall(); err != nil {
			return err
		}
	}
	for _, name := range back {
		if err := s.of(name).rollback(ctx, rollbackFlags{flags: flags{wait: true, timeout: o.timeout}, exemptWebhooks: o.exemptWebhooks, yes: o.yes}); err != nil {
			return fmt.Errorf("uninstall: %w. Nothing was removed, and annex serves the groups that are left: remove the cause, and type it again", err)
		}
		s.print("")
	}
	found, err = s.settled(ctx, back)
	if err != nil {
		return fmt.Errorf("uninstall: nothing was removed: %w", err)
	}
	if err := s.remove(ctx, found, o.timeout); err != nil {
		return fmt.Errorf("uninstall: %w", err)
	}
	s.printNext(ctx, found.service)
	return nil
}

// of returns a session for a group.
func (s *session) of(group string) *session {
	of := *s
	of.group = group
	return &of
}

// settled verifies that the main cluster serves all groups, which annex may take a moment for.
func (s *session) settled(ctx context.Context, back []string) (found *installation, err error) {
	var left []string
	polled := wait.PollUntilContextTimeout(ctx, s.pollInterval, s.settleTimeout, true, func(ctx context.Context) (bool, error) {
		if found, err = s.inspect(ctx); err != nil {
			return false, err
		}
		left = found.obstacles()
		for _, name := range found.toRollBack() {
			left = append(left, "annex serves "+name+" again")
		}
		for _, name := range back {
			switch g := found.Group(name); {
			case len(g.Labelled) > 0:
				left = append(left, strings.Join(g.Labelled, ", ")+" has the label "+hostingv1alpha1.HostedLabel+" again: remove it where the definition comes from")
			case g.Frozen, g.Reserved, len(g.Finalized) > 0:
				left = append(left, "a policy or finalizer of annex is left in "+name+" after its rollback")
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

// printUninstall prints the plan.
func (s *session) printUninstall(found *installation) error {
	if len(found.groups) == 0 {
		s.print("annex serves no group of %s.", s.server)
	} else {
		s.print("annex has something of these groups of %s:\n", s.server)
		w := newTable(s.out)
		fmt.Fprintln(w, "GROUP\tSTATE\tRESOURCES\tOBJECTS\tBYTES")
		for _, g := range found.groups {
			var objects, bytes int64
			for _, resource := range g.hosted {
				objects, bytes = objects+resource.Status.Objects, bytes+resource.Status.Bytes
			}
			fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%s\n", g.Name, g.state(), len(g.hosted), objects, table.Bytes(bytes))
		}
		if err := w.Flush(); err != nil {
			return fmt.Errorf("print the plan: %w", err)
		}
	}
	s.print("")
	if len(found.toRollBack()) > 0 {
		s.print("Each group that annex serves is rolled back, with everything written in annex.")
	}
	s.print("Then annex is stopped, and what it wrote to the main cluster is removed: its\n" +
		"APIService, labels, policies, roles, Lease and CA. Its data is not deleted.\n")
	return nil
}

// agreeToUninstall returns an error unless the user types yes.
func (s *session) agreeToUninstall() error {
	answer, err := s.ask("Type yes to uninstall annex: ")
	if err != nil {
		return err
	}
	if answer != "yes" {
		s.print("")
		return errors.New("uninstall: not confirmed: type yes, or give --yes")
	}
	return nil
}
