// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package move implements `annex move`, `annex rollback` and `annex finalize`, which move API groups
// between a main cluster and annex. They are clients of the main cluster: they show a plan, grant annex
// the rights that it needs, create a Migration and present it. A Migration that was created otherwise,
// for example by GitOps, works without them.
// `annex uninstall` rolls back all groups, and removes what annex has written to the main cluster.
package move

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/annex-dev/annex/pkg/cmd/backup"
	"github.com/annex-dev/annex/pkg/cmd/diagnose"
	"github.com/annex-dev/annex/pkg/cmd/internal/login"
	"github.com/annex-dev/annex/pkg/cmd/internal/output"
)

const (
	// rightsTimeout bounds the time in which the main cluster aggregates and uses new rights.
	rightsTimeout = 30 * time.Second
	// settleTimeout bounds what annex still does after the last rollback.
	settleTimeout = time.Minute
	// pollInterval is the time between two reads while the command waits.
	pollInterval = 500 * time.Millisecond
)

type session struct {
	in          *bufio.Reader
	out, errOut io.Writer
	// interactive is set if standard input is a terminal. Then a plan ends with a prompt.
	interactive bool
	// program is the name of the program in suggestions.
	program string
	// group is the API group.
	group string
	// server is the address of the main cluster.
	server string

	// Clients reach the main cluster, and annex through it.
	*login.Clients
	// survey reports on the group in the main cluster.
	survey func(ctx context.Context) (*diagnose.Report, error)
	// probe creates a copy of an object of a resource as a dry run.
	probe func(ctx context.Context, resource schema.GroupVersionResource) error
	// save writes the objects of a resource in annex to a file.
	save func(ctx context.Context, resource, path string) error

	now           func() time.Time
	pollInterval  time.Duration
	rightsTimeout time.Duration
	settleTimeout time.Duration
}

type flags struct {
	login          login.Options
	dryRun, wait   bool
	yes            bool
	exemptWebhooks bool
	timeout        time.Duration
	// printRights prints the roles instead of anything else.
	printRights bool
}

func (f *flags) add(fs *pflag.FlagSet) {
	f.login.AddFlags(fs, "the main cluster")
	fs.BoolVar(&f.dryRun, "dry-run", f.dryRun, "Only show the plan. The exit code is 1 if something prevents it.")
	fs.BoolVar(&f.wait, "wait", true, "Wait until it is done.")
	fs.DurationVar(&f.timeout, "timeout", f.timeout, "How long to wait at most. It goes on after that. 0 means no limit.")
	fs.BoolVar(&f.printRights, "print-rights", f.printRights, "Only print the roles that annex needs, to be applied by an administrator.")
}

// addExempt adds the flags of what may write objects to the main cluster.
func (f *flags) addExempt(fs *pflag.FlagSet, more string) {
	fs.BoolVar(&f.yes, "yes", f.yes, "Do not ask.")
	fs.BoolVar(&f.exemptWebhooks, "exempt-webhooks", f.exemptWebhooks,
		"Exempt annex's account from the webhooks and policies of the main cluster that match the group, while a rollback writes the objects there."+more)
}

// run makes a command run a session.
func run(cmd *cobra.Command, options *login.Options, in io.Reader, out, errOut io.Writer, do func(ctx context.Context, s *session) error) *cobra.Command {
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		s, err := newSession(cmd.Context(), *options, strings.Join(args, ""))
		if err != nil {
			return err
		}
		s.in, s.out, s.errOut, s.interactive = bufio.NewReader(in), out, errOut, output.IsTerminal(in)
		s.program = strings.TrimSuffix(cmd.CommandPath(), " "+cmd.Name())
		return do(cmd.Context(), s)
	}
	return cmd
}

// runGroup is run for a command that has a group as its argument.
func runGroup(cmd *cobra.Command, f *flags, in io.Reader, out, errOut io.Writer, do func(ctx context.Context, s *session) error) *cobra.Command {
	f.add(cmd.Flags())
	cmd.Args = cobra.MatchAll(cobra.ExactArgs(1), isGroup)
	f.login.CompleteArgument(cmd, login.Groups)
	return run(cmd, &f.login, in, out, errOut, do)
}

func isGroup(_ *cobra.Command, args []string) error {
	if problems := validation.IsDNS1123Subdomain(args[0]); len(problems) > 0 || !strings.Contains(args[0], ".") {
		return fmt.Errorf("%q must be an API group with a dot, such as example.com", args[0])
	}
	return nil
}

func newSession(ctx context.Context, options login.Options, group string) (*session, error) {
	clients, err := options.ConnectMain(ctx, "annex-groups")
	if err != nil {
		return nil, err
	}
	s := &session{
		group: group, server: clients.Config.Host, Clients: clients, probe: probeWith(clients.Dynamic),
		now: time.Now, pollInterval: pollInterval, rightsTimeout: rightsTimeout, settleTimeout: settleTimeout,
	}
	s.survey = func(ctx context.Context) (*diagnose.Report, error) {
		return diagnose.Survey(ctx, s.server, clients.Kube.Discovery().RESTClient(), diagnose.Options{Group: group}, s.errOut)
	}
	s.save = func(ctx context.Context, resource, path string) error {
		return backup.Save(ctx, options, resource, path, s.out, s.errOut)
	}
	return s, nil
}

// command returns what to type to run another command with the group.
func (s *session) command(name string, arguments ...string) string {
	return strings.Join(append([]string{s.program, name, s.group}, arguments...), " ")
}

// columns is the width of a terminal.
const columns = 80

func (s *session) print(format string, arguments ...any) {
	_, _ = fmt.Fprintf(s.out, format+"\n", arguments...)
}

// say prints a sentence in lines that fit a terminal. All have the indentation of the first.
func (s *session) say(format string, arguments ...any) {
	s.print("%s", wrap(fmt.Sprintf(format, arguments...)))
}

func wrap(text string) string {
	indent := text[:len(text)-len(strings.TrimLeft(text, " "))]
	var lines []string
	line := indent
	for word := range strings.FieldsSeq(text) {
		if len(line) > len(indent) && len(line)+1+len(word) > columns {
			lines, line = append(lines, line), indent
		}
		if len(line) > len(indent) {
			line += " "
		}
		line += word
	}
	return strings.Join(append(lines, line), "\n")
}

func (s *session) warn(err error) { _, _ = fmt.Fprintf(s.errOut, "annex: warning: %v\n", err) }

// agree prints a question, and returns an error unless the user answers yes.
func (s *session) agree(question, otherwise string) error {
	return s.confirm(question+" [y/N] ", otherwise, "y", "Y", "yes", "Yes", "YES")
}

// confirm prints a question, and returns an error unless the user types one of the accepted answers.
func (s *session) confirm(question, otherwise string, accepted ...string) error {
	_, _ = fmt.Fprint(s.out, question)
	typed, err := s.in.ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the confirmation: %w", err)
	}
	if typed == "" {
		s.print("")
	}
	if !slices.Contains(accepted, strings.TrimSpace(typed)) {
		return errors.New("not confirmed: " + otherwise)
	}
	return nil
}

// printTable prints rows with a header. Cells are separated by tabs.
func (s *session) printTable(header string, rows []string) error {
	w := output.NewTable(s.out)
	for _, row := range append([]string{header}, rows...) {
		_, _ = fmt.Fprintln(w, row) // Flush has the error
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("print the plan: %w", err)
	}
	return nil
}
