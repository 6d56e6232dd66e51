// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package place implements the commands that show and change where resources are: `annex place`, `annex drain`
// and `annex rebalance`. All are clients of annex.
package place

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/cmd/internal/login"
	"github.com/annex-dev/annex/pkg/cmd/internal/output"
	annexclient "github.com/annex-dev/annex/pkg/generated/clientset/versioned"
	"github.com/annex-dev/annex/pkg/scheduler"
	"github.com/annex-dev/annex/pkg/scheduler/framework"
)

type placeOptions struct {
	store string
	wait  bool
}

// NewCommand returns `annex place`.
func NewCommand(out io.Writer) *cobra.Command {
	o, options := &placeOptions{wait: true}, &login.Options{}
	cmd := clientCommand(&cobra.Command{
		Use:   "place PLURAL.GROUP",
		Short: "Show on which Store a resource would be placed and why, or place or move it",
		Long: "Show the result of the scheduler's filters and scores for every Store, the best first. Nothing is\n" +
			"changed. With --store, a resource without a Store is placed there, whatever the result, and a resource\n" +
			"on another Store is moved there while it is used: a Migration copies and verifies the objects, then\n" +
			"switches. The command shows it, and succeeds once the new Store serves the resource.",
		Example: "  annex place widgets.example.com\n" +
			"  annex place widgets.example.com --store fast",
		Args: cobra.MatchAll(cobra.ExactArgs(1), isResource),
	}, options, login.HostedResources, func(ctx context.Context, annex annexclient.Interface, args []string) error {
		if o.store != "" {
			return o.place(ctx, annex, args[0], out)
		}
		return o.show(ctx, annex, args[0], out)
	})
	cmd.Flags().StringVar(&o.store, "store", o.store, "Place the resource on this Store, or move it there.")
	cmd.Flags().BoolVar(&o.wait, "wait", o.wait, "Wait for the end of a move.")
	options.CompleteFlag(cmd, "store", login.Stores)
	return cmd
}

// isResource checks the form of the name before the command logs in.
func isResource(_ *cobra.Command, args []string) error {
	if !strings.Contains(args[0], ".") {
		return fmt.Errorf("%q must be of the form <plural>.<group>", args[0])
	}
	return nil
}

func (o *placeOptions) place(ctx context.Context, annex annexclient.Interface, name string, out io.Writer) error {
	hosted, err := annex.HostingV1alpha1().HostedResources().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("place %s on Store %s: %w", name, o.store, err)
	}
	if on := hosted.Spec.StoreName; on != "" && on != o.store {
		return move(ctx, annex, name, o.store, o.wait, out)
	}
	_, err = annex.HostingV1alpha1().HostedResources().Bind(ctx, name, &hostingv1alpha1.HostedResourceBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: hosted.UID}, StoreName: o.store,
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("place %s on Store %s: %w", name, o.store, err)
	}
	_, err = fmt.Fprintf(out, "%s is on Store %s\n", name, o.store)
	return err
}

// keepFinished is the time for which a finished Migration of a command is kept, in seconds: a drain
// creates one per resource.
const keepFinished = 24 * 60 * 60

// move moves a resource to a Store. If wait is set, it shows the Migration until that ends.
func move(ctx context.Context, annex annexclient.Interface, resource, store string, wait bool, out io.Writer) error {
	migration, err := annex.HostingV1alpha1().Migrations().Create(ctx, &hostingv1alpha1.Migration{
		ObjectMeta: metav1.ObjectMeta{GenerateName: resource + "-"},
		Spec:       hostingv1alpha1.MigrationSpec{Resource: resource, StoreName: store, TTLSecondsAfterFinished: new(int32(keepFinished))},
	}, metav1.CreateOptions{})
	if err == nil {
		_, err = fmt.Fprintf(out, "migration.hosting.annex.dev/%s created\n", migration.Name)
	}
	if err == nil && wait {
		view := output.MigrationView{Annex: annex, Out: out}
		if err = view.Show(ctx, migration); err == nil {
			_, err = fmt.Fprintf(out, "%s is on Store %s\n", resource, store)
		}
	}
	if err != nil {
		return fmt.Errorf("move %s to Store %s: %w", resource, store, err)
	}
	return nil
}

func (o *placeOptions) show(ctx context.Context, annex annexclient.Interface, name string, out io.Writer) error {
	cluster, err := scheduler.ReadCluster(ctx, annex.HostingV1alpha1())
	if err != nil {
		return err
	}
	hosted, err := annex.HostingV1alpha1().HostedResources().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		hosted, err = &hostingv1alpha1.HostedResource{ObjectMeta: metav1.ObjectMeta{Name: name}}, nil
	}
	if err != nil {
		return fmt.Errorf("get HostedResource %s: %w", name, err)
	}
	decision := cluster.Decide(hosted)
	if _, err := fmt.Fprintln(out, summary(hosted, decision)); err != nil {
		return err
	}
	return printDecision(out, decision)
}

// summary describes where a resource is and where it would be placed.
func summary(hosted *hostingv1alpha1.HostedResource, decision framework.Decision) string {
	choice := "fits on no Store"
	if best, ok := decision.Best(); ok {
		choice = "would be placed on " + best.Store
	}
	switch {
	case hosted.UID == "":
		return fmt.Sprintf("There is no HostedResource %s. One that asks for nothing %s.", hosted.Name, choice)
	case hosted.Spec.StoreName != "":
		return fmt.Sprintf("%s is on Store %s. If it were not, it %s.", hosted.Name, hosted.Spec.StoreName, choice)
	case hosted.Spec.SchedulerName != hostingv1alpha1.DefaultSchedulerName:
		return fmt.Sprintf("%s waits for the scheduler %s. Here it %s.", hosted.Name, hosted.Spec.SchedulerName, choice)
	default:
		return fmt.Sprintf("%s %s.", hosted.Name, choice)
	}
}

func printDecision(out io.Writer, decision framework.Decision) error {
	table := output.NewTable(out)
	fmt.Fprintln(table, "STORE\tFITS\tSCORE\tWHY")
	for _, result := range decision {
		if !result.Fits() {
			fmt.Fprintf(table, "%s\tno\t-\t%s\n", result.Store, result.Message())
			continue
		}
		scores := make([]string, 0, len(result.Scores))
		for _, s := range result.Scores {
			scores = append(scores, fmt.Sprintf("%s %dx%d", s.Plugin, s.Weight, s.Value))
		}
		fmt.Fprintf(table, "%s\tyes\t%d\t%s\n", result.Store, result.Total, strings.Join(scores, ", "))
	}
	return table.Flush()
}
