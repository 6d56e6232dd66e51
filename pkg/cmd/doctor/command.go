// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package doctor implements `annex doctor`, which prints all findings of pkg/cmd/internal/health.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/annex-dev/annex/pkg/cmd/internal/health"
	"github.com/annex-dev/annex/pkg/cmd/internal/login"
	"github.com/annex-dev/annex/pkg/cmd/internal/output"
)

type options struct {
	health.Options

	login     login.Options
	output    output.Format
	printRBAC bool
	preflight bool
}

// NewCommand returns `annex doctor`.
func NewCommand(out io.Writer) *cobra.Command {
	o := &options{Options: health.DefaultOptions("")}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Find problems between a main cluster and annex, and how to fix them",
		Long: "Check everything between a user of the main cluster and annex's data, in the order of its dependencies: the\n" +
			"main cluster, the Service, annex's rights, the front proxy, certificates, APIServices, Stores, resources,\n" +
			"Migrations, discovery, OpenAPI, and clocks. Each line is ok, info, warn, FAIL or skip, with the command that fixes\n" +
			"a problem below it. It changes nothing, and exits with 1 if a check fails. Run it as an administrator of the\n" +
			"main cluster.\n\n" +
			"--preflight checks a main cluster before annex is installed there: your rights, the aggregation layer, ClusterRole\n" +
			"aggregation, admission policies, volumes, discovery and OpenAPI.",
		Example: "  # Before annex is installed, and after:\n" +
			"  kubectl annex doctor --preflight --save before.json\n" +
			"  kubectl annex doctor --compare before.json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.ServiceGiven = cmd.Flags().Changed("publish-service")
			o.Program = strings.TrimSuffix(cmd.CommandPath(), " "+cmd.Name())
			if o.ServiceAccount == "" {
				return errors.New("--service-account must not be empty")
			}
			return o.run(cmd.Context(), out)
		},
	}
	o.addFlags(cmd)
	return cmd
}

func (o *options) addFlags(cmd *cobra.Command) {
	fs := cmd.Flags()
	o.login.AddFlags(fs, "the main cluster")
	fs.Var(&o.Service, "publish-service",
		"The Service in the main cluster through which it reaches annex. If not set, the one that APIService "+health.HostingAPIService+" names, if that is there.")
	fs.StringVar(&o.ServiceAccount, "service-account", o.ServiceAccount, "The service account of annex, in the namespace of the Service.")
	fs.StringVar(&o.AnnexServer, "annex-server", o.AnnexServer,
		"An address of annex, HOST:PORT, that can be reached from here, to check its serving certificate. If not set, the Service is tried if it can be reached.")
	fs.StringVar(&o.Save, "save", o.Save, "Write a summary of the main cluster's OpenAPI documents to this file.")
	fs.StringVar(&o.Compare, "compare", o.Compare, "Compare the main cluster's OpenAPI documents with a file written by --save.")
	o.output.AddFlag(fs)
	fs.BoolVar(&o.printRBAC, "print-rbac", o.printRBAC, "Only print the RBAC manifests that annex needs in the main cluster, to apply with kubectl.")
	fs.BoolVar(&o.preflight, "preflight", o.preflight, "Check whether annex can be installed in the main cluster.")
}

func (o *options) run(ctx context.Context, out io.Writer) error {
	if o.printRBAC {
		_, err := io.WriteString(out, o.RBACManifest())
		return err
	}
	clients, err := o.login.ConnectMain(ctx, "annex-doctor")
	if err != nil {
		return err
	}
	scope := health.Doctor
	if o.preflight {
		scope = health.Preflight
	}
	report, err := health.Examine(ctx, clients, &o.Options, scope)
	if err != nil {
		return err
	}
	count := health.Failed(report.Findings)
	if err := o.output.Print(out, summary{count, report.Findings}, func() error { return health.Print(out, report.Findings) }); err != nil {
		return fmt.Errorf("print the findings: %w", err)
	}
	if count > 0 {
		return fmt.Errorf("%d of %d findings are failures", count, len(report.Findings))
	}
	return nil
}

type summary struct {
	Failed   int              `json:"failed"`
	Findings []health.Finding `json:"findings"`
}
