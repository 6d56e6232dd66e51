// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package doctor implements `annex doctor`. It checks everything between a user of the
// main cluster and annex's data, and prints problems and the commands that fix them. It
// changes nothing.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/annex-dev/annex/artifacts/deploy"
	"github.com/annex-dev/annex/pkg/aggregated/maincluster"
	"github.com/annex-dev/annex/pkg/aggregated/servingca"
	"github.com/annex-dev/annex/pkg/cmd/internal/login"
	"github.com/annex-dev/annex/pkg/cmd/internal/output"
)

type options struct {
	login          login.Options
	service        maincluster.Service
	serviceGiven   bool
	serviceAccount string
	annexServer    string
	save, compare  string
	output         output.Format
	printRBAC      bool

	program string
}

// NewCommand returns `annex doctor`.
func NewCommand(out io.Writer) *cobra.Command {
	o := &options{service: maincluster.DefaultService(), serviceAccount: "annex"}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Find problems between a main cluster and annex, and how to fix them",
		Long: "Check everything between a user of the main cluster and annex's data, in the order of its dependencies: the\n" +
			"main cluster, the Service, annex's rights, the front proxy, certificates, APIServices, discovery, OpenAPI, the\n" +
			"conditions of each resource, and clocks. Each line is ok, warn, FAIL or skip, with the command that fixes a\n" +
			"problem below it. It changes nothing, and exits with 1 if a check fails. Run it as an administrator of the\n" +
			"main cluster.",
		Example: "  # Before annex is installed, or a group is taken over, and after:\n" +
			"  kubectl annex doctor --save before.json\n" +
			"  kubectl annex doctor --compare before.json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.serviceGiven = cmd.Flags().Changed("publish-service")
			o.program = strings.TrimSuffix(cmd.CommandPath(), " "+cmd.Name())
			if o.serviceAccount == "" {
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
	fs.Var(&o.service, "publish-service",
		"The Service in the main cluster through which it reaches annex. If not set, the one that APIService "+hostingAPIService+" names, if that is there.")
	fs.StringVar(&o.serviceAccount, "service-account", o.serviceAccount, "The service account of annex, in the namespace of the Service.")
	fs.StringVar(&o.annexServer, "annex-server", o.annexServer,
		"An address of annex, HOST:PORT, that can be reached from here, to check its serving certificate. If not set, the Service is tried if it can be reached.")
	fs.StringVar(&o.save, "save", o.save, "Write a summary of the main cluster's OpenAPI documents to this file.")
	fs.StringVar(&o.compare, "compare", o.compare, "Compare the main cluster's OpenAPI documents with a file written by --save.")
	o.output.AddFlag(fs)
	fs.BoolVar(&o.printRBAC, "print-rbac", o.printRBAC, "Only print the RBAC manifests that annex needs in the main cluster, to apply with kubectl.")
}

func (o *options) rbacManifest() string {
	manifest := deploy.RBAC
	if o.service.Namespace != manifestNamespace {
		manifest = strings.ReplaceAll(manifest, "namespace: "+manifestNamespace, "namespace: "+o.service.Namespace)
	}
	if o.service.Name != manifestService {
		for of, name := range map[string]string{manifestLease: o.service.Lease(), manifestSecret: servingca.SecretName(o.service.Name)} {
			manifest = strings.ReplaceAll(manifest, "resourceNames: ["+of+"]", "resourceNames: ["+name+"]")
		}
	}
	if o.serviceAccount != manifestServiceAccount {
		subject := "- kind: ServiceAccount\n  name: "
		manifest = strings.ReplaceAll(manifest, subject+manifestServiceAccount+"\n", subject+o.serviceAccount+"\n")
	}
	return manifest
}

func (o *options) run(ctx context.Context, out io.Writer) error {
	if o.printRBAC {
		_, err := io.WriteString(out, o.rbacManifest())
		return err
	}
	e, err := newEnvironment(ctx, o)
	if err != nil {
		return err
	}
	findings := examine(ctx, e, checks)
	count := failed(findings)
	if err := o.output.Print(out, summary{count, findings}, func() error { return printText(out, findings) }); err != nil {
		return fmt.Errorf("print the findings: %w", err)
	}
	if count > 0 {
		return fmt.Errorf("%d of %d findings are failures", count, len(findings))
	}
	return nil
}
