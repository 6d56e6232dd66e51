// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package diagnose implements `annex diagnose`, which shows what the custom resources of a
// cluster cost, and which groups annex can take over. It reads a cluster without annex, and
// changes nothing.
package diagnose

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/annex-dev/annex/pkg/cmd/internal/login"
	"github.com/annex-dev/annex/pkg/cmd/internal/output"
)

// Formats of --output that other commands lack.
const (
	csvFormat  = "csv"
	htmlFormat = "html"
)

// NewCommand returns `annex diagnose`.
func NewCommand(out, errOut io.Writer) *cobra.Command {
	var (
		server  login.Options
		options = Options{SortBy: SortKeys[0]}
		format  output.Format
		user    string
	)
	cmd := &cobra.Command{
		Use:   "diagnose",
		Short: "Show which API groups fill a cluster's etcd and kube-apiserver, and which can move to annex",
		Long: "Show each API group that has CRDs: its objects, their size in etcd, the memory that kube-apiserver needs for\n" +
			"them, open watches, and whether the group can move to annex. The cluster needs no annex. The command changes\n" +
			"nothing, and lists in small pages.\n\n" +
			"It needs the right to list customresourcedefinitions, apiservices and the objects of each group. With the right\n" +
			"to get /metrics it lists few objects, and also knows watches, rates of writes and the size of etcd. What it may\n" +
			"not read is shown as forbidden.\n\n" +
			"With --window it watches for a time, and shows how often objects are written, and how fast they become more.",
		Example: "  kubectl annex diagnose\n" +
			"  # Each resource of a group, and the command that moves it:\n" +
			"  kubectl annex diagnose --group=example.com\n" +
			"  # The groups with the most writes in a minute:\n" +
			"  kubectl annex diagnose --window=1m --sort-by=writes\n" +
			"  # A page with pictures:\n" +
			"  kubectl annex diagnose -o html > report.html",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !slices.Contains(SortKeys, options.SortBy) {
				return fmt.Errorf("--sort-by %q: must be %s", options.SortBy, strings.Join(SortKeys, ", "))
			}
			if options.Window < 0 {
				return fmt.Errorf("--window %s: must not be negative", options.Window)
			}
			clients, err := server.ConnectMain(cmd.Context(), "annex-diagnose")
			if err != nil {
				return err
			}
			client := clients.Kube.Discovery().RESTClient()
			if user != "" {
				return PrintRights(cmd.Context(), client, user, out)
			}
			report, err := Survey(cmd.Context(), clients.Config.Host, client, options, errOut)
			if err != nil {
				return err
			}
			return format.Print(out, report, func() error {
				switch {
				case format.Is(csvFormat):
					return report.printCSV(out)
				case format.Is(htmlFormat):
					return report.printHTML(out, time.Now())
				default:
					return report.print(out, options.Group != "", format.Is(output.Wide), cmd.CommandPath())
				}
			})
		},
	}
	fs := cmd.Flags()
	server.AddFlags(fs, "the cluster")
	fs.StringVar(&options.Group, "group", options.Group, "Show only this API group, with each of its resources.")
	fs.DurationVar(&options.Window, "window", options.Window, "Measure writes and growth for this time, for example 1m.")
	fs.StringVar(&options.SortBy, "sort-by", options.SortBy, "The order of the groups: "+strings.Join(SortKeys, ", ")+".")
	fs.StringVar(&user, "print-rights", user, "Only print the role that this user needs for a complete report, to be applied by an administrator.")
	format.AddFlag(fs, output.Wide, csvFormat, htmlFormat)
	return cmd
}
