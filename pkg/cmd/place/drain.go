// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package place

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/cmd/internal/login"
	"github.com/annex-dev/annex/pkg/cmd/internal/output"
	annexclient "github.com/annex-dev/annex/pkg/generated/clientset/versioned"
	"github.com/annex-dev/annex/pkg/scheduler"
	"github.com/annex-dev/annex/pkg/scheduler/framework"
)

// clientCommand makes a command run with a client of annex. names complete its argument, if it has one.
func clientCommand(cmd *cobra.Command, options *login.Options, names login.Names, run func(ctx context.Context, annex annexclient.Interface, args []string) error) *cobra.Command {
	options.AddFlags(cmd.Flags(), login.AnnexOrMain)
	if names != nil {
		options.CompleteArgument(cmd, names)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		clients, err := options.ConnectAnnex(cmd.Context(), "annex-"+cmd.Name())
		if err != nil {
			return err
		}
		return run(cmd.Context(), clients.Annex, args)
	}
	return cmd
}

// NewDrainCommand returns `annex drain`.
func NewDrainCommand(out io.Writer) *cobra.Command {
	return clientCommand(&cobra.Command{
		Use:   "drain STORE",
		Short: "Move all resources of a Store to other Stores, while they are used",
		Long: "Make a Store unschedulable and move its resources, one after the other, to the Stores that the\n" +
			"scheduler chooses. Clients of the resources notice nothing. A resource that cannot be moved stays, and\n" +
			"the command fails once the others are moved. It can be repeated.",
		Example: "  annex drain fast",
		Args:    cobra.ExactArgs(1),
	}, &login.Options{}, login.Stores, func(ctx context.Context, annex annexclient.Interface, args []string) error {
		return drain(ctx, annex, args[0], out)
	})
}

func drain(ctx context.Context, annex annexclient.Interface, store string, out io.Writer) error {
	cordon := []byte(`{"spec":{"unschedulable":true}}`)
	if _, err := annex.HostingV1alpha1().Stores().Patch(ctx, store, types.MergePatchType, cordon, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("make Store %s unschedulable: %w", store, err)
	}
	if _, err := fmt.Fprintf(out, "store.hosting.annex.dev/%s is unschedulable\n", store); err != nil {
		return err
	}
	cluster, err := scheduler.ReadCluster(ctx, annex.HostingV1alpha1())
	if err != nil {
		return err
	}
	var errs []error
	for i := range cluster.Resources {
		if cluster.Resources[i].Spec.StoreName != store {
			continue
		}
		if err := drainResource(ctx, annex, &cluster.Resources[i], out); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) > 0 {
		return fmt.Errorf("drain Store %s: %w", store, errors.Join(errs...))
	}
	_, err = fmt.Fprintf(out, "no resource is on Store %s\n", store)
	return err
}

// drainResource moves a resource to where the scheduler would place it now.
func drainResource(ctx context.Context, annex annexclient.Interface, hosted *hostingv1alpha1.HostedResource, out io.Writer) error {
	cluster, err := scheduler.ReadCluster(ctx, annex.HostingV1alpha1())
	if err != nil {
		return err
	}
	decision := cluster.Decide(hosted)
	best, fits := decision.Best()
	if !fits {
		return fmt.Errorf("move %s: %s", hosted.Name, decision)
	}
	return move(ctx, annex, hosted.Name, best.Store, true, out)
}

// NewRebalanceCommand returns `annex rebalance`.
func NewRebalanceCommand(out io.Writer) *cobra.Command {
	dryRun := false
	cmd := clientCommand(&cobra.Command{
		Use:   "rebalance --dry-run",
		Short: "Show which resources the scheduler would place on other Stores, and why",
		Long: "Show the resources that the scheduler would place on other Stores than those that they are on, and why.\n" +
			"Nothing is changed: move them with `annex place`.",
		Example: "  annex rebalance --dry-run",
		Args:    cobra.NoArgs,
	}, &login.Options{}, nil, func(ctx context.Context, annex annexclient.Interface, _ []string) error {
		if !dryRun {
			return errors.New("--dry-run is required: rebalance only shows what to move")
		}
		cluster, err := scheduler.ReadCluster(ctx, annex.HostingV1alpha1())
		if err != nil {
			return err
		}
		return printProposals(out, propose(cluster))
	})
	cmd.Flags().BoolVar(&dryRun, "dry-run", dryRun, "Only show what would be moved.")
	return cmd
}

type proposal struct{ resource, from, to, why string }

// propose returns what the scheduler would move. Each proposal takes the previous ones into
// account, so that together they do not fill a Store.
func propose(cluster scheduler.Cluster) []proposal {
	var proposals []proposal
	for i := range cluster.Resources {
		hosted := &cluster.Resources[i]
		decision := cluster.Decide(hosted)
		best, fits := decision.Best()
		at := slices.IndexFunc(decision, func(result framework.StoreResult) bool { return result.Store == hosted.Spec.StoreName })
		if !fits || at < 0 || best.Store == hosted.Spec.StoreName {
			continue
		}
		present := decision[at]
		why := present.Store + " " + present.Message()
		if present.Fits() {
			if best.Total <= present.Total {
				continue
			}
			why = fmt.Sprintf("score %d instead of %d: %s", best.Total, present.Total, better(best, present))
		}
		proposals = append(proposals, proposal{hosted.Name, present.Store, best.Store, why})
		hosted.Spec.StoreName = best.Store
	}
	return proposals
}

func better(best, present framework.StoreResult) string {
	text := ""
	for i, score := range best.Scores {
		if before := present.Scores[i]; score.Value > before.Value {
			text += fmt.Sprintf(", %s %dx%d instead of %dx%d", score.Plugin, score.Weight, score.Value, before.Weight, before.Value)
		}
	}
	return text[len(", "):]
}

func printProposals(out io.Writer, proposals []proposal) error {
	if len(proposals) == 0 {
		_, err := fmt.Fprintln(out, "every resource is where the scheduler would place it")
		return err
	}
	table := output.NewTable(out)
	fmt.Fprintln(table, "RESOURCE\tFROM\tTO\tWHY")
	for _, p := range proposals {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", p.resource, p.from, p.to, p.why)
	}
	return table.Flush()
}
