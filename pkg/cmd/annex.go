// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cmd is the root of annex's commands.
package cmd

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/logs"
	"k8s.io/klog/v2"

	"github.com/annex-dev/annex/pkg/cmd/archive"
	"github.com/annex-dev/annex/pkg/cmd/backup"
	"github.com/annex-dev/annex/pkg/cmd/decode"
	"github.com/annex-dev/annex/pkg/cmd/diagnose"
	"github.com/annex-dev/annex/pkg/cmd/doctor"
	"github.com/annex-dev/annex/pkg/cmd/injector"
	"github.com/annex-dev/annex/pkg/cmd/kubeconfig"
	"github.com/annex-dev/annex/pkg/cmd/move"
	"github.com/annex-dev/annex/pkg/cmd/place"
	"github.com/annex-dev/annex/pkg/cmd/scheduler"
	"github.com/annex-dev/annex/pkg/cmd/server"
	"github.com/annex-dev/annex/pkg/cmd/status"
	"github.com/annex-dev/annex/pkg/version"
)

// Execute runs the command that args name and returns the process's exit code. An error
// is printed to errOut as one line.
func Execute(args []string, out, errOut io.Writer) int {
	defer logs.FlushLogs()
	root := NewCommand(out, errOut)
	if filepath.Base(os.Args[0]) == "kubectl_complete-annex" {
		args = append([]string{cobra.ShellCompRequestCmd}, args...) // from kubectl, for its plugin
	}
	root.SetArgs(args)
	if err := root.Execute(); err != nil {
		_, _ = fmt.Fprintf(errOut, "annex: %v%s\n", err, suggestion(root, args))
		return 1
	}
	return 0
}

// suggestion returns what an unknown command may mean, in one line with the error.
func suggestion(root *cobra.Command, args []string) string {
	if len(args) == 0 || strings.HasPrefix(args[0], "-") {
		return ""
	}
	if found, _, err := root.Find(args); err == nil && found != root {
		return ""
	}
	similar := root.SuggestionsFor(args[0])
	if len(similar) == 0 {
		return ""
	}
	return fmt.Sprintf("; did you mean %s?", strings.Join(similar, " or "))
}

// NewCommand returns the command annex with all subcommands.
func NewCommand(out, errOut io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use:   "annex",
		Short: "An API server for custom resources",
		Long:  "annex serves custom resources, any CRD, from stores of its own. It is used with kubectl.",
		// Execute prints errors, and usage is printed only on request.
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       versions(),
		// An error is one line: see suggestion.
		DisableSuggestions:         true,
		SuggestionsMinimumDistance: 2,
		Annotations:                map[string]string{cobra.CommandDisplayNameAnnotation: displayName(os.Args[0])},
	}
	root.SetVersionTemplate("annex {{.Version}}\n")
	root.SetOut(out)
	root.SetErr(errOut)
	root.SetGlobalNormalizationFunc(cliflag.WordSepNormalizeFunc)
	root.AddCommand(server.NewCommand(out), kubeconfig.NewCommand(out), doctor.NewCommand(out), newVersionCommand(out))
	root.AddCommand(decode.NewCommand(os.Stdin, out), archive.NewCommand(out))
	root.AddCommand(place.NewCommand(out), place.NewDrainCommand(out), place.NewRebalanceCommand(out))
	root.AddCommand(status.NewCommand(out), status.NewTopCommand(out), diagnose.NewCommand(out, errOut))
	for _, cmd := range []*cobra.Command{
		scheduler.NewCommand(out), injector.NewCommand(out), backup.NewBackupCommand(out, errOut), backup.NewRestoreCommand(out, errOut),
		move.NewMoveCommand(os.Stdin, out, errOut), move.NewRollbackCommand(os.Stdin, out, errOut), move.NewFinalizeCommand(os.Stdin, out, errOut),
		move.NewUninstallCommand(os.Stdin, out, errOut),
	} {
		interruptible(cmd)
		root.AddCommand(cmd)
	}
	addVerbosity(root.Commands())
	return root
}

// addVerbosity adds kubectl's -v, hidden, to commands that do not have it: -v=6 logs requests.
func addVerbosity(commands []*cobra.Command) {
	verbosity := flag.NewFlagSet("", flag.ContinueOnError)
	klog.InitFlags(verbosity)
	for _, cmd := range commands {
		if fs := cmd.Flags(); fs.Lookup("v") == nil {
			fs.AddGoFlag(verbosity.Lookup("v"))
			fs.Lookup("v").Hidden = true
		}
	}
}

// interruptible cancels the context of a command at the first interrupt, so that the command cleans up. A second
// interrupt ends the process.
func interruptible(cmd *cobra.Command) {
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
		defer stop()
		context.AfterFunc(ctx, stop)
		cmd.SetContext(ctx)
		return run(cmd, args)
	}
}

// displayName returns the name users type: kubectl finds plugins by their file name, and
// kubectl-annex is a link to this program.
func displayName(program string) string {
	if strings.HasPrefix(filepath.Base(program), "kubectl-annex") {
		return "kubectl annex"
	}
	return "annex"
}

func newVersionCommand(out io.Writer) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print annex's version and the Kubernetes version it serves",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintln(out, "annex", versions())
			return err
		},
	}
}

// versions returns annex's version, the commit it was built from, if it is known, and the Kubernetes version.
func versions() string {
	built := ""
	if commit := version.Commit(); commit != "" {
		built = ", commit " + commit[:min(len(commit), 12)]
	}
	return fmt.Sprintf("%s (Kubernetes v%s%s)", version.Annex(), version.Kubernetes(), built)
}
