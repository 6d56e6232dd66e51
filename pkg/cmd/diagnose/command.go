// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package diagnose implements `annex diagnose`, which shows what the custom resources of a
// cluster cost, and which groups annex can take over. It reads a cluster without annex, and
// changes nothing.
package diagnose

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/annex-dev/annex/pkg/cmd/internal/login"
	"github.com/annex-dev/annex/pkg/cmd/internal/output"
)

// NewCommand returns `annex diagnose`.
func NewCommand(out, errOut io.Writer) *cobra.Command {
	var (
		server login.Options
		format output.Format
		group  string
	)
	cmd := &cobra.Command{
		Use:   "diagnose",
		Short: "Show which API groups fill a cluster's etcd and kube-apiserver, and which can move to annex",
		Long: "Show each API group that has CRDs: its objects, their size in etcd, the memory that kube-apiserver needs for\n" +
			"them, open watches, and whether the group can move to annex. The cluster needs no annex. The command only\n" +
			"reads, with GET and LIST in pages.\n\n" +
			"It needs the right to list customresourcedefinitions, apiservices and the objects of each group. With the right\n" +
			"to get /metrics it lists few objects, and also knows watches and the size of etcd. What it may not read is shown\n" +
			"as forbidden.",
		Example: "  kubectl annex diagnose\n" +
			"  # Each resource of a group, and the command that moves it:\n" +
			"  kubectl annex diagnose --group=example.com",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			clients, err := server.ConnectMain(cmd.Context(), "annex-diagnose")
			if err != nil {
				return err
			}
			report, err := Survey(cmd.Context(), clients.Config.Host, clients.Kube.Discovery().RESTClient(), group, errOut)
			if err != nil {
				return err
			}
			return format.Print(out, report, func() error { return report.print(out, group != "", cmd.CommandPath()) })
		},
	}
	fs := cmd.Flags()
	server.AddFlags(fs, "the cluster")
	fs.StringVar(&group, "group", group, "Show only this API group, with each of its resources.")
	format.AddFlag(fs)
	return cmd
}
