// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package server is the command `annex serve`. It turns flags into options, options
// into a configuration, and that into a running chain, with its storage, certificates
// and controllers. It is the only package that imports all of them.
package server

import (
	"context"
	"fmt"
	"io"
	"sync"

	"github.com/spf13/cobra"

	genericapiserver "k8s.io/apiserver/pkg/server"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/term"

	"github.com/annex-dev/annex/pkg/cmd/internal/output"
	"github.com/annex-dev/annex/pkg/cmd/server/options"
	"github.com/annex-dev/annex/pkg/storage/watchcache"
	"github.com/annex-dev/annex/pkg/version"
)

// NewCommand returns `annex serve`.
func NewCommand(out io.Writer) *cobra.Command {
	o := options.New()
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve custom resources",
		Long: "Serve an API server for custom resources, on its own: no Kubernetes and no etcd are needed.\n" +
			"Everything it keeps is in --data-dir. When it is ready it prints how to use it.\n\n" +
			"With --main-kubeconfig or --main-in-cluster it runs behind a Kubernetes cluster, which then\n" +
			"sends the requests for annex's resources here.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			quietUntilApplied(cmd.ErrOrStderr())
			limitMemory(watchcache.ContainerLimit()) // before the options: the budget of the watch caches depends on it
			completed, err := o.Complete()
			if err != nil {
				return err
			}
			if err := completed.Validate(); err != nil {
				return err
			}
			ctx := genericapiserver.SetupSignalContext()
			if err := applyLogs(ctx, completed); err != nil {
				return err
			}
			managing, stop := context.WithCancel(ctx)
			var running sync.WaitGroup
			defer running.Wait()
			defer stop()
			return Run(ctx, completed, func(ready Ready) {
				running.Go(func() { manageMemory(managing) })
				printReady(out, ready)
			})
		},
	}
	sets := o.Flags()
	for _, set := range sets.FlagSets {
		cmd.Flags().AddFlagSet(set)
	}
	columns, _, _ := term.TerminalSize(out)
	cliflag.SetUsageAndHelpFunc(cmd, sets, columns)
	return cmd
}

func printReady(out io.Writer, ready Ready) {
	_, _ = fmt.Fprintf(out, "annex %s is ready at %s, use it with: export KUBECONFIG=%s\n", version.Annex(), ready.URL, output.ShellWord(ready.Kubeconfig))
}
