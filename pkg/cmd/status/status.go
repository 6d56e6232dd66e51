// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package status implements `annex status` and `annex top`, which show what annex serves.
package status

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/annex-dev/annex/pkg/cmd/internal/health"
	"github.com/annex-dev/annex/pkg/cmd/internal/login"
	"github.com/annex-dev/annex/pkg/cmd/internal/output"
)

// watchInterval is the time between two readings of --watch.
const watchInterval = 2 * time.Second

type statusOptions struct {
	login  login.Options
	output output.Format
	watch  bool

	program string
	out     io.Writer
}

// NewCommand returns `annex status`.
func NewCommand(out io.Writer) *cobra.Command {
	o := &statusOptions{out: out}
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show annex, the groups that it serves, its Stores, moves under way, and what needs attention",
		Long: "Show annex and its main cluster, the groups that annex serves and the Stores that hold them, Migrations under\n" +
			"way, StaticSources, and what needs attention, with what to do. It changes nothing, and exits with 1 if there is\n" +
			"a line with FAIL. Lines with warn are of problems without effect yet, and lines with info wait for a decision.\n" +
			"The command doctor checks more of what is between a main cluster and annex.",
		Example: "  kubectl annex status\n" +
			"  # Until interrupted:\n" +
			"  kubectl annex status --watch\n" +
			"  # For programs:\n" +
			"  kubectl annex status -o json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.program = strings.TrimSuffix(cmd.CommandPath(), " "+cmd.Name())
			return o.run(cmd.Context())
		},
	}
	fs := cmd.Flags()
	o.login.AddFlags(fs, login.AnnexOrMain)
	o.output.AddFlag(fs, output.Wide)
	fs.BoolVarP(&o.watch, "watch", "w", o.watch, "Show the status again after each change, until interrupted.")
	return cmd
}

func (o *statusOptions) run(ctx context.Context) error {
	clients, err := o.login.ConnectAnnex(ctx, "annex-status")
	if err != nil {
		return err
	}
	scope := health.Status
	if clients.IsAnnex(ctx) {
		scope = health.Direct
	}
	if o.watch {
		return o.follow(ctx, clients, scope)
	}
	shown, err := o.read(ctx, clients, scope)
	if err != nil {
		return err
	}
	if _, err := o.out.Write(shown.text); err != nil {
		return fmt.Errorf("print the status: %w", err)
	}
	if shown.failed > 0 {
		return fmt.Errorf("%s found", output.Count(int64(shown.failed), "problem"))
	}
	return nil
}

// view is a status as it is printed.
type view struct {
	text   []byte
	failed int
	// content has no ages, which change all the time.
	content []byte
}

func (o *statusOptions) read(ctx context.Context, clients *login.Clients, scope health.Scope) (*view, error) {
	options := health.DefaultOptions(o.program)
	found, err := health.Examine(ctx, clients, &options, scope)
	if err != nil {
		return nil, err
	}
	r := newReport(found)
	var text bytes.Buffer
	if err := o.output.Print(&text, r, func() error { return r.print(&text, o.output.Is(output.Wide)) }); err != nil {
		return nil, fmt.Errorf("print the status: %w", err)
	}
	content, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode the status: %w", err)
	}
	return &view{text.Bytes(), health.Failed(r.NeedsAttention), content}, nil
}

// follow prints the status after each change until ctx is done. A terminal shows the last one only.
func (o *statusOptions) follow(ctx context.Context, clients *login.Clients, scope health.Scope) error {
	ticker := time.NewTicker(watchInterval)
	defer ticker.Stop()
	var last *view
	for {
		shown, err := o.read(ctx, clients, scope)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if err := o.show(shown, last); err != nil {
			return fmt.Errorf("print the status: %w", err)
		}
		last = shown
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

const clearScreen = "\x1b[H\x1b[2J\x1b[3J"

func (o *statusOptions) show(now, last *view) error {
	text := now.text
	switch {
	case output.IsTerminal(o.out):
		text = append([]byte(clearScreen), text...)
	case last == nil:
	case bytes.Equal(now.content, last.content):
		return nil
	default:
		text = append([]byte("\n"), text...)
	}
	_, err := o.out.Write(text)
	return err
}
