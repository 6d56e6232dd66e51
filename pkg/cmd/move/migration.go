// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/cmd/diagnose"
	"github.com/annex-dev/annex/pkg/cmd/internal/output"
	"github.com/annex-dev/annex/pkg/table"
)

type history struct {
	// unfinished is the one under way, or nil.
	unfinished *hostingv1alpha1.Migration
	// last is the latest that completed, and moved the latest Move that did. They may be nil.
	last, moved *hostingv1alpha1.Migration
}

func (h history) ended(operation hostingv1alpha1.MigrationOperation) bool {
	return h.last != nil && h.last.Spec.Operation == operation
}

func (s *session) read(ctx context.Context) (history, error) {
	list, err := s.Annex.HostingV1alpha1().Migrations().List(ctx, metav1.ListOptions{})
	if err != nil {
		return history{}, s.noAnswer(fmt.Errorf("list the Migrations: %w", err))
	}
	var h history
	for i := range list.Items {
		m := &list.Items[i]
		switch {
		case m.Spec.Group != s.group:
		case !m.Status.Phase.Finished():
			// One runs at a time. It has a start time.
			if h.unfinished == nil || m.Status.StartTime != nil {
				h.unfinished = m
			}
		case m.Status.Phase == hostingv1alpha1.MigrationCompleted:
			if later(m, h.last) {
				h.last = m
			}
			if m.Spec.Operation == hostingv1alpha1.MigrationMove && later(m, h.moved) {
				h.moved = m
			}
		}
	}
	return h, nil
}

// later reports whether a Migration ended after another, which may be nil.
func later(m, than *hostingv1alpha1.Migration) bool {
	return than == nil || than.Status.CompletionTime.Before(m.Status.CompletionTime)
}

// nothingInAnnex is the reason for which a group cannot be rolled back or finalized.
const nothingInAnnex = "annex has nothing of this group"

func (s *session) hostedByGroup(ctx context.Context) (map[string][]hostingv1alpha1.HostedResource, error) {
	list, err := s.Annex.HostingV1alpha1().HostedResources().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, s.noAnswer(fmt.Errorf("list what annex has: %w", err))
	}
	byGroup := map[string][]hostingv1alpha1.HostedResource{}
	for _, of := range list.Items {
		byGroup[groupOf(of.Name)] = append(byGroup[groupOf(of.Name)], of)
	}
	return byGroup, nil
}

func (s *session) hosted(ctx context.Context) ([]hostingv1alpha1.HostedResource, error) {
	byGroup, err := s.hostedByGroup(ctx)
	return byGroup[s.group], err
}

func isPublished(hosted hostingv1alpha1.HostedResource) bool {
	return meta.IsStatusConditionTrue(hosted.Status.Conditions, hostingv1alpha1.HostedResourcePublished)
}

func (s *session) printHosted(h history, hosted []hostingv1alpha1.HostedResource) error {
	moved := map[string]string{}
	if h.moved != nil {
		for _, resource := range h.moved.Status.Resources {
			moved[resource.Name] = fmt.Sprint(resource.CopiedObjects)
		}
	}
	var rows []string
	for _, of := range hosted {
		rows = append(rows, fmt.Sprintf("%s\t%s\t%d\t%s\t%s", strings.TrimSuffix(of.Name, "."+s.group), table.OrNone(of.Spec.StoreName), of.Status.Objects,
			table.Bytes(of.Status.Bytes), cmp.Or(moved[of.Name], table.Unknown)))
	}
	s.print("")
	err := s.printTable("RESOURCE\tSTORE\tOBJECTS\tBYTES\tOBJECTS WHEN MOVED", rows)
	s.print("")
	return err
}

// noAnswer adds what to do to the error of a request to annex.
func (s *session) noAnswer(err error) error {
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%w: annex is not installed in this cluster, or not this version of it", err)
	case apierrors.IsServiceUnavailable(err):
		return fmt.Errorf("%w: annex does not answer, see %s doctor", err, s.program)
	}
	return err
}

// operation has the differences between move, rollback and finalize.
type operation struct {
	// name names the command.
	name string
	flags
	spec hostingv1alpha1.MigrationSpec
	// plan prints the plan, and returns what prevents it.
	plan func(ctx context.Context, h history) (obstacles []string, err error)
	// confirm returns an error unless the user agrees. The Migration that is under way may be nil.
	confirm func(ctx context.Context, under *hostingv1alpha1.Migration) error
	// rights returns the rights that annex needs, except those for webhooks.
	rights func(definitions []string) (rules, error)
	// done reports whether only finish is left to do after a completed Migration with this operation. annex has all
	// resources, and clients reach served of them there.
	done func(served, all int) bool
	// finish is called after the Migration completed.
	finish func(ctx context.Context) error
}

func (s *session) wanted(ctx context.Context, o operation) (rules, error) {
	definitions, err := s.definitions(ctx)
	if err == nil && len(definitions) == 0 {
		// Without names the role would be for all definitions.
		err = fmt.Errorf("%s: %w", s.group, diagnose.ErrNoDefinition)
	}
	if err != nil {
		return nil, err
	}
	wanted, err := o.rights(definitions)
	if err != nil || !o.exemptWebhooks {
		return wanted, err
	}
	more, err := s.exemptionRules(ctx)
	return append(wanted, more...), err
}

// run does all steps: the plan, the question, the rights, the Migration, its progress.
func (s *session) run(ctx context.Context, o operation) error {
	if o.printRights {
		wanted, err := s.wanted(ctx, o)
		if err != nil {
			return err
		}
		return s.printRights(ctx, o.name, wanted)
	}
	h, err := s.read(ctx)
	if err != nil && !o.dryRun {
		return err
	}
	var obstacles []string
	if err != nil {
		obstacles = []string{err.Error()}
	}
	under := h.unfinished
	if under != nil && under.Spec.Operation != o.spec.Operation {
		obstacles, under = append(obstacles, fmt.Sprintf("%s of the group is under way (%s)", named(under), under.Spec.Operation)), nil
	}
	if h.unfinished == nil && !o.dryRun && h.ended(o.spec.Operation) {
		hosted, err := s.hosted(ctx)
		if err != nil {
			return err
		}
		notServed := func(of hostingv1alpha1.HostedResource) bool { return !isPublished(of) }
		if all := len(hosted); o.done(len(slices.DeleteFunc(hosted, notServed)), all) {
			s.print("%s has completed already.", named(h.last))
			return o.finish(ctx)
		}
	}
	if under != nil {
		s.print("%s is under way already.", named(under))
	} else {
		more, err := o.plan(ctx, h)
		if err != nil {
			return err
		}
		if obstacles = append(obstacles, more...); len(obstacles) > 0 {
			return fmt.Errorf("%s %s: %s", o.name, s.group, strings.Join(obstacles, "; "))
		}
	}
	if o.dryRun {
		s.print("Nothing was changed.")
		return nil
	}
	return s.start(ctx, o, under)
}

// agreeToPlan prompts for confirmation at a terminal, unless --yes is set or the Migration is already under way.
func (s *session) agreeToPlan(o flags, under *hostingv1alpha1.Migration) error {
	if !s.interactive || o.yes || under != nil {
		return nil
	}
	return s.agree("Continue?", "nothing was changed")
}

func (s *session) start(ctx context.Context, o operation, under *hostingv1alpha1.Migration) error {
	if err := o.confirm(ctx, under); err != nil {
		return fmt.Errorf("%s %s: %w", o.name, s.group, err)
	}
	wanted, err := s.wanted(ctx, o)
	if err == nil {
		err = s.grant(ctx, o.name, wanted)
	}
	switch {
	case err != nil && under == nil:
		return err
	case err != nil:
		s.warn(err) // the rights may be there already, for example from GitOps
	}
	if under == nil {
		under, err = s.create(ctx, o)
	} else {
		// One that annex has begun waits for these rights.
		granted := err == nil && under.Annotations[hostingv1alpha1.UndoesAnnotation] != ""
		under, err = s.amend(ctx, under, o.spec.Confirmed || granted, o.exemptWebhooks)
	}
	if err != nil {
		return err
	}
	if !o.wait {
		s.print("To see its progress: %s", s.command(o.name))
		return nil
	}
	if err := s.wait(ctx, o, under); err != nil {
		return fmt.Errorf("%s %s: %w", o.name, s.group, err)
	}
	return o.finish(ctx)
}

func (s *session) create(ctx context.Context, o operation) (*hostingv1alpha1.Migration, error) {
	migration, err := s.Annex.HostingV1alpha1().Migrations().Create(ctx, &hostingv1alpha1.Migration{
		ObjectMeta: metav1.ObjectMeta{GenerateName: s.group + "-" + o.name + "-"}, Spec: o.spec,
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, s.noAnswer(fmt.Errorf("create the Migration of %s: %w", s.group, err))
	}
	s.print("%s created", named(migration))
	return migration, nil
}

// amend lets a Migration that is under way go on, or exempt annex from webhooks.
func (s *session) amend(ctx context.Context, under *hostingv1alpha1.Migration, confirm, exempt bool) (*hostingv1alpha1.Migration, error) {
	changes, done := map[string]bool{}, []string{}
	if confirm && !under.Spec.Confirmed {
		changes["confirmed"], done = true, append(done, "confirmed")
	}
	if exempt && !under.Spec.ExemptWebhooks {
		changes["exemptWebhooks"], done = true, append(done, "exempts annex from webhooks and policies")
	}
	if len(done) == 0 {
		return under, nil
	}
	patch, err := json.Marshal(map[string]any{"spec": changes})
	if err != nil {
		return nil, fmt.Errorf("change %s: %w", named(under), err)
	}
	changed, err := s.Annex.HostingV1alpha1().Migrations().Patch(ctx, under.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return nil, s.noAnswer(fmt.Errorf("change %s: %w", named(under), err))
	}
	for _, what := range done {
		s.print("%s %s", named(changed), what)
	}
	return changed, nil
}

func named(migration *hostingv1alpha1.Migration) string {
	return "migration.hosting.annex.dev/" + migration.Name
}

// wait presents a Migration until it ends, and prints what to do if it did not complete.
func (s *session) wait(ctx context.Context, o operation, migration *hostingv1alpha1.Migration) error {
	within := ctx
	if o.timeout > 0 {
		limited, cancel := context.WithTimeout(ctx, o.timeout)
		defer cancel()
		within = limited
	}
	view := output.MigrationView{Annex: s.Annex, Out: s.out, Confirm: s.command("move", "--confirm")}
	err := view.Show(within, migration)
	var ended *output.EndedError
	switch {
	case errors.As(err, &ended):
		s.adviseAfter(ctx, o)
	case err != nil && within.Err() != nil:
		s.print("%s goes on. To see it again:\n  %s", named(migration), s.command(o.name))
		if o.spec.Operation != hostingv1alpha1.MigrationFinalize {
			s.print("To cancel it before the switch:\n  kubectl delete migration %s", migration.Name)
		}
		err = errors.New("interrupted")
		if ctx.Err() == nil {
			err = fmt.Errorf("not done after --timeout %s", o.timeout)
		}
	}
	return err
}

// adviseAfter says what the state is after a Migration that did not complete, and what to type.
func (s *session) adviseAfter(ctx context.Context, o operation) {
	if h, err := s.read(ctx); err == nil && h.unfinished != nil && h.unfinished.Spec.Operation == hostingv1alpha1.MigrationRollback {
		s.print("%s moves the group back. To see it, and to take back the rights:\n  %s", named(h.unfinished), s.command("rollback"))
		return
	}
	server := "annex"
	if o.spec.Operation == hostingv1alpha1.MigrationMove {
		server = "The main cluster"
	}
	s.print("%s serves %s. Remove the cause and type again:\n  %s", server, s.group, s.command(o.name))
	if o.spec.Operation != hostingv1alpha1.MigrationMove {
		return
	}
	s.print("To give up instead:")
	if names, err := s.definitions(ctx); err == nil && len(names) > 0 {
		s.print("  kubectl label crd %s %s-", strings.Join(names, " "), hostingv1alpha1.HostedLabel)
	}
	role := hostingv1alpha1.HostedRoleName(s.group)
	s.print("  kubectl delete clusterrole %s\n  kubectl delete rolebinding,role -n %s %s", role, annexNamespace, role)
}
