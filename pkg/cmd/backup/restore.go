// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/annex-dev/annex/pkg/cmd/internal/login"
	"github.com/annex-dev/annex/pkg/cmd/internal/output"
	"github.com/annex-dev/annex/pkg/storage/backup"
)

type restoreOptions struct {
	offline
	login           login.Options
	store, resource string
	skipUnreadable  bool
	dryRun          bool
	path            string
}

// NewRestoreCommand returns `annex restore`.
func NewRestoreCommand(out, errOut io.Writer) *cobra.Command {
	o := &restoreOptions{}
	cmd := &cobra.Command{
		Use:   "restore FILE",
		Short: "Restore a file of `annex backup`",
		Long: "Restore a file of `annex backup`.\n\n" +
			"Into a running annex: the custom resources in the file, or the one that --resource names, with their definitions, to the\n" +
			"Store they were in or to another. Their definitions must not exist. Everything is checked before anything is written,\n" +
			"including encryption keys and dictionaries.\n\n" +
			"With --data-dir or --etcd-servers: the whole Store into an empty data directory or etcd that no annex uses meanwhile.\n\n" +
			"Nothing is overwritten. Repeat the same command to continue a restore that ended early. Resource versions continue above\n" +
			"those that clients have seen.",
		Example: "  annex restore widgets.backup --store fast\n" +
			"  annex restore default.backup --data-dir .annex",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.path = args[0]
			if err := o.validate(); err != nil {
				return err
			}
			if o.enabled() {
				return o.offline.run(cmd.Context(), o.path, o.dryRun, out, errOut)
			}
			return o.run(cmd.Context(), out, errOut)
		},
	}
	fs := cmd.Flags()
	o.login.AddFlags(fs, login.AnnexOrMain)
	o.addFlags(fs)
	fs.StringVar(&o.store, "store", o.store, "The Store to restore to. If not set, the one that held each resource.")
	fs.StringVar(&o.resource, "resource", o.resource, "The only resource to restore, as PLURAL.GROUP.")
	o.login.CompleteFlag(cmd, "store", login.Stores)
	o.login.CompleteFlag(cmd, "resource", login.HostedResources)
	fs.BoolVar(&o.skipUnreadable, "skip-unreadable", o.skipUnreadable, "Skip objects that cannot be read, and print their names, instead of restoring nothing.")
	fs.BoolVar(&o.dryRun, "dry-run", o.dryRun, "Only check whether the file can be restored.")
	return cmd
}

func (o *restoreOptions) validate() error {
	if o.enabled() && (o.store != "" || o.resource != "" || o.skipUnreadable || o.login.Given()) {
		return errors.New("--data-dir and --etcd-servers restore a whole Store without a running annex: --store, --resource, --skip-unreadable, --kubeconfig and --context cannot be set with them")
	}
	return o.offline.validate()
}

func (o *restoreOptions) run(ctx context.Context, out, errOut io.Writer) error {
	a, err := openArchive(o.path)
	if err != nil {
		return err
	}
	wanted, err := o.wanted(a)
	if err != nil {
		return err
	}
	annex, err := connect(ctx, &o.login)
	if err != nil {
		return err
	}
	r := &restorer{annex: annex, archive: a, wanted: wanted, errOut: errOut, stores: map[string]string{}}
	for _, resource := range wanted {
		if err := r.admit(ctx, resource, o.store); err != nil {
			return err
		}
	}
	if err := r.check(ctx, o.skipUnreadable); err != nil {
		return fmt.Errorf("no change was made: %w", err)
	}
	const fate = "and skipped"
	if o.dryRun {
		_, err := fmt.Fprintf(out, "%s can be restored\n", o.path)
		return errors.Join(err, r.unreadable.warn(errOut, fate))
	}
	if _, err := r.send(ctx, "Restoring", backup.Options{SkipUnreadable: o.skipUnreadable}); err != nil {
		return fmt.Errorf("%w; run the same command again to continue", err)
	}
	for _, resource := range wanted {
		if err := r.publish(ctx, resource); err != nil {
			return fmt.Errorf("%s: its objects are restored, but it is not served: %w", resource.name, err)
		}
		if _, err := fmt.Fprintf(out, "%s: %s restored to Store %s\n", resource.name, output.Count(r.restored[resource.name], "object"), r.stores[resource.name]); err != nil {
			return err
		}
	}
	return r.unreadable.warn(errOut, fate)
}

func (o *restoreOptions) wanted(a *archive) ([]*saved, error) {
	if o.resource != "" {
		found := a.resources[o.resource]
		if found == nil || found.definition == nil {
			return nil, fmt.Errorf("--resource: %s has no %s", o.path, o.resource)
		}
		return []*saved{found}, nil
	}
	var wanted []*saved
	for _, name := range a.order {
		if a.resources[name].definition != nil {
			wanted = append(wanted, a.resources[name])
		}
	}
	if len(wanted) == 0 {
		return nil, fmt.Errorf("%s has no custom resources: with --data-dir or --etcd-servers a whole Store is restored", o.path)
	}
	return wanted, nil
}
