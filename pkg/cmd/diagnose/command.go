// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package diagnose implements `annex diagnose`, which shows what the custom resources of a
// cluster cost, and which groups annex can take over. It reads a cluster without annex, and
// changes nothing.
package diagnose

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/annex-dev/annex/pkg/cmd/login"
)

const (
	outputText = "text"
	outputJSON = "json"
)

// options are the flags.
type options struct {
	login  login.Options
	group  string
	output string
	// program is the name of the command in suggestions.
	program string
}

// NewCommand returns `annex diagnose`.
func NewCommand(out, errOut io.Writer) *cobra.Command {
	o := &options{output: outputText}
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
			if o.output != outputText && o.output != outputJSON {
				return fmt.Errorf("--output %q must be %s or %s", o.output, outputText, outputJSON)
			}
			o.program = cmd.CommandPath()
			c, err := newCluster(cmd.Context(), o.login)
			if err != nil {
				return err
			}
			report, err := c.survey(cmd.Context(), o.group, errOut)
			if err != nil {
				return err
			}
			return o.print(out, report)
		},
	}
	fs := cmd.Flags()
	o.login.AddFlags(fs, "the cluster")
	fs.StringVar(&o.group, "group", o.group, "Show only this API group, with each of its resources.")
	fs.StringVarP(&o.output, "output", "o", o.output, "The output format: text or json.")
	return cmd
}

func (o *options) print(out io.Writer, report *Report) error {
	var err error
	switch {
	case o.output == outputJSON:
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		encoder.SetEscapeHTML(false)
		err = encoder.Encode(report)
	case o.group != "":
		err = printGroup(out, report)
	default:
		err = printGroups(out, report, o.program)
	}
	if err != nil {
		return fmt.Errorf("print the report: %w", err)
	}
	return nil
}
