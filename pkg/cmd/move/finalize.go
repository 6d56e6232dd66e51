// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/annex-dev/annex/pkg/aggregated/maincopy"
	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/table"
)

type finalizeFlags struct {
	flags
	yesDelete string
	backup    string
	noBackup  bool
}

// NewFinalizeCommand returns `annex finalize`.
func NewFinalizeCommand(in io.Reader, out, errOut io.Writer) *cobra.Command {
	o := &finalizeFlags{}
	cmd := runGroup(&cobra.Command{
		Use:   "finalize GROUP",
		Short: "Delete the copy of a moved API group that the main cluster keeps",
		Long: "Delete the objects that the main cluster still stores of an API group that annex serves. Clients notice nothing,\n" +
			"and no finalizer runs. Before that, the objects in annex are saved to files that `annex restore` reads. To confirm,\n" +
			"type the name of the group when asked for it, or give it with --yes-delete.",
		Example: "  kubectl annex finalize example.com --backup=/backups/example.com\n" +
			"  kubectl annex finalize example.com --timeout=1h",
	}, &o.flags, in, out, errOut, func(ctx context.Context, s *session) error { return s.finalize(ctx, o) })
	fs := cmd.Flags()
	fs.StringVar(&o.yesDelete, "yes-delete", o.yesDelete, "The name of the group again, to delete the copy without a question.")
	fs.StringVar(&o.backup, "backup", o.backup, "A new folder for the backup, with a file for each resource. By default, GROUP-TIME in the current folder.")
	fs.BoolVar(&o.noBackup, "no-backup", o.noBackup, "Make no backup.")
	return cmd
}

func (s *session) finalize(ctx context.Context, o *finalizeFlags) error {
	switch {
	case o.noBackup && o.backup != "":
		return errors.New("give either --backup or --no-backup")
	case o.yesDelete != "" && o.yesDelete != s.group:
		return fmt.Errorf("--yes-delete %q is not the group %s", o.yesDelete, s.group)
	}
	return s.run(ctx, operation{
		name: "finalize", flags: o.flags,
		spec: hostingv1alpha1.MigrationSpec{Group: s.group, Operation: hostingv1alpha1.MigrationFinalize, Confirmed: true},
		plan: s.planFinalize,
		rights: func(definitions []string) (rules, error) {
			return maincopy.FinalizeRules(s.group, definitions...), nil
		},
		confirm: func(ctx context.Context, under *hostingv1alpha1.Migration) error {
			if under != nil && under.Spec.Confirmed {
				return nil
			}
			if o.yesDelete == "" {
				const otherwise = "type the name of the group, or give it with --yes-delete"
				if err := s.confirm("Type the name of the group to delete the copy: ", otherwise, s.group); err != nil {
					return err
				}
			}
			if o.noBackup {
				return nil
			}
			return s.saveAll(ctx, o.backup)
		},
		done: func(int, int) bool { return true },
		finish: func(ctx context.Context) error {
			if err := s.grant(ctx, "finalize", finalizedRules(s.group)); err != nil {
				return err
			}
			s.say("The main cluster stores no objects of %s. Its etcd is smaller after compaction and defragmentation.", s.group)
			return nil
		},
	})
}

// planFinalize prints what is deleted, and returns what prevents it.
func (s *session) planFinalize(ctx context.Context, h history) ([]string, error) {
	hosted, err := s.hosted(ctx)
	if err != nil {
		return nil, err
	}
	if len(hosted) == 0 {
		return []string{nothingInAnnex}, nil
	}
	s.say("The main cluster's copy is deleted, as it was when the group was moved. annex serves its own objects.")
	if err := s.printHosted(h, hosted); err != nil {
		return nil, err
	}
	var obstacles []string
	for _, resource := range hosted {
		if !isPublished(resource) {
			obstacles = append(obstacles, "annex does not serve "+resource.Name+" to clients of the main cluster")
		}
	}
	switch {
	case len(obstacles) > 0:
	case h.moved == nil:
		s.say("There is no completed Migration that moved %s: how many objects the main cluster keeps is not known.", s.group)
	case h.moved.Status.SwitchTime != nil:
		s.say("annex has served %s for %s.", s.group, table.Since(h.moved.Status.SwitchTime.Time))
	}
	s.say("After this, a rollback creates all objects again, with new UIDs.")
	s.print("")
	return obstacles, nil
}

func (s *session) saveAll(ctx context.Context, folder string) error {
	if folder == "" {
		folder = s.group + "-" + s.now().UTC().Format("20060102-150405")
	}
	hosted, err := s.hosted(ctx)
	if err != nil {
		return err
	}
	// Only their owner may read the objects.
	if err := os.Mkdir(folder, 0o700); err != nil {
		if errors.Is(err, fs.ErrExist) {
			err = errors.New("it exists already")
		}
		return fmt.Errorf("--backup: create the folder %s: %w", folder, err)
	}
	for _, resource := range hosted {
		if err := s.save(ctx, resource.Name, filepath.Join(folder, resource.Name+".backup")); err != nil {
			return fmt.Errorf("--backup: save %s: %w", resource.Name, err)
		}
	}
	return nil
}
