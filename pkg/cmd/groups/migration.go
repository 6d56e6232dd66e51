// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package groups

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/cmd/migrations"
)

// history are the Migrations of the group.
type history struct {
	// unfinished is the one under way, or nil.
	unfinished *hostingv1alpha1.Migration
	// last is the latest that completed, and moved the latest Move that did. They may be nil.
	last, moved *hostingv1alpha1.Migration
}

// ended reports whether the latest completed Migration did this.
func (h history) ended(operation hostingv1alpha1.MigrationOperation) bool {
	return h.last != nil && h.last.Spec.Operation == operation
}

// read reads the Migrations of the group.
func (s *session) read(ctx context.Context) (history, error) {
	list, err := s.annex.Migrations().List(ctx, metav1.ListOptions{})
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

// steps are what move, rollback and finalize differ in.
type steps struct {
	// name is that of the command.
	name string
	flags
	spec hostingv1alpha1.MigrationSpec
	// plan prints the plan, and returns what prevents it.
	plan func(ctx context.Context, h history) (obstacles []string, err error)
	// rights prints the ClusterRole, or grants it.
	rights func(ctx context.Context, use func(rules) error) error
	// confirm returns an error unless the user agrees. Nil if there is nothing to confirm.
	confirm func(ctx context.Context) error
	// done reports whether nothing but finish is left to do. Nil if that cannot be.
	done func(ctx context.Context, h history) (bool, error)
	// finish is called after the Migration completed.
	finish func(ctx context.Context) error
}

// run does all steps.
func (s *session) run(ctx context.Context, o steps) error {
	if o.printRights {
		return o.rights(ctx, func(wanted rules) error { return s.printRights(ctx, o.name, wanted) })
	}
	h, err := s.read(ctx)
	if err != nil && !o.dryRun {
		return err
	}
	var obstacles []string
	if err != nil {
		obstacles = []string{err.Error()}
	}
	attached := h.unfinished != nil && h.unfinished.Spec.Operation == o.spec.Operation
	switch {
	case attached:
		s.print("%s is under way already.", named(h.unfinished))
	case h.unfinished != nil:
		obstacles = append(obstacles, fmt.Sprintf("%s of the group is under way (%s)", named(h.unfinished), h.unfinished.Spec.Operation))
	case o.done != nil && !o.dryRun:
		done, err := o.done(ctx, h)
		if err != nil {
			return err
		}
		if done {
			s.print("%s has completed already.", named(h.last))
			return o.finish(ctx)
		}
	}
	if !attached {
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
	return s.start(ctx, o, h, attached)
}

// start grants the rights, and creates the Migration or attaches to the one under way.
func (s *session) start(ctx context.Context, o steps, h history, attached bool) error {
	if confirmed := attached && h.unfinished.Spec.Confirmed; o.confirm != nil && !confirmed {
		if err := o.confirm(ctx); err != nil {
			return err
		}
	}
	err := o.rights(ctx, func(wanted rules) error { return s.grant(ctx, o.name, wanted) })
	switch {
	case err != nil && !attached:
		return err
	case err != nil:
		// The rights may be there already, for example from GitOps.
		_, _ = fmt.Fprintf(s.errOut, "annex: warning: %v\n", err)
	}
	migration := h.unfinished
	// One that annex has begun waits for these rights.
	allowed := attached && err == nil && migration.Annotations[hostingv1alpha1.UndoesAnnotation] != ""
	if attached && (o.spec.Confirmed || allowed) && !migration.Spec.Confirmed {
		if migration, err = s.confirm(ctx, migration.Name); err != nil {
			return err
		}
	}
	if attached && o.spec.ExemptWebhooks && !migration.Spec.ExemptWebhooks {
		if migration, err = s.exempt(ctx, migration.Name); err != nil {
			return err
		}
	}
	if !attached {
		if migration, err = s.create(ctx, o.spec); err != nil {
			return err
		}
	}
	if !o.wait {
		s.print("To see its progress: %s", s.command(o.name))
		return nil
	}
	if err := s.wait(ctx, o, migration); err != nil {
		return err
	}
	return o.finish(ctx)
}

func (s *session) create(ctx context.Context, spec hostingv1alpha1.MigrationSpec) (*hostingv1alpha1.Migration, error) {
	migration, err := s.annex.Migrations().Create(ctx, &hostingv1alpha1.Migration{
		ObjectMeta: metav1.ObjectMeta{GenerateName: s.group + "-" + strings.ToLower(string(spec.Operation)) + "-"}, Spec: spec,
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, s.noAnswer(fmt.Errorf("create the Migration of %s: %w", s.group, err))
	}
	s.print("%s created", named(migration))
	return migration, nil
}

// confirm allows a Migration to go on that waits for that.
func (s *session) confirm(ctx context.Context, name string) (*hostingv1alpha1.Migration, error) {
	migration, err := s.annex.Migrations().Patch(ctx, name, types.MergePatchType, []byte(`{"spec":{"confirmed":true}}`), metav1.PatchOptions{})
	if err != nil {
		return nil, s.noAnswer(fmt.Errorf("confirm the Migration %s: %w", name, err))
	}
	s.print("%s confirmed", named(migration))
	return migration, nil
}

func named(migration *hostingv1alpha1.Migration) string {
	return "migration.hosting.annex.dev/" + migration.Name
}

// wait presents a Migration until it ends, and says what to do if it did not complete.
func (s *session) wait(ctx context.Context, o steps, migration *hostingv1alpha1.Migration) error {
	within := ctx
	if o.timeout > 0 {
		limited, cancel := context.WithTimeout(ctx, o.timeout)
		defer cancel()
		within = limited
	}
	err := s.present(within, migration)
	var ended *migrations.EndedError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &ended):
		s.adviseAfter(ctx, migration.Spec.Operation, o.name)
		return fmt.Errorf("%s %s: %w", o.name, s.group, err)
	case within.Err() != nil:
		s.print("%s goes on. To see it again: %s. To cancel it before the switch: kubectl delete migration %s", named(migration), s.command(o.name), migration.Name)
		if ctx.Err() == nil {
			return fmt.Errorf("%s %s: not done after --timeout %s", o.name, s.group, o.timeout)
		}
		return fmt.Errorf("%s %s: interrupted", o.name, s.group)
	}
	return fmt.Errorf("%s %s: %w", o.name, s.group, err)
}

// adviseAfter says what the state is after a Migration that did not complete, and what to type.
func (s *session) adviseAfter(ctx context.Context, operation hostingv1alpha1.MigrationOperation, name string) {
	if h, err := s.read(ctx); err == nil && h.unfinished != nil && h.unfinished.Spec.Operation == hostingv1alpha1.MigrationRollback {
		s.print("%s moves the group back. To see it, and to take back the rights: %s", named(h.unfinished), s.command("rollback"))
		return
	}
	s.print("Remove the cause and type again: %s", s.command(name))
	if operation != hostingv1alpha1.MigrationMove {
		s.print("annex serves %s until then.", s.group)
		return
	}
	s.print("The main cluster serves %s until then. To give up instead:", s.group)
	if names, err := s.definitions(ctx); err == nil && len(names) > 0 {
		s.print("  kubectl label crd %s %s-", strings.Join(names, " "), hostingv1alpha1.HostedLabel)
	}
	role := hostingv1alpha1.HostedRoleName(s.group)
	s.print("  kubectl delete clusterrole %s", role)
	s.print("  kubectl delete rolebinding,role -n %s %s", hostingv1alpha1.NamespaceAnnexSystem, role)
}
