// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package archive implements `annex archive`, which reads the objects that retentions archived
// before they deleted them. It needs no running annex, only the files.
package archive

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/annex-dev/annex/pkg/cmd/internal/output"
	"github.com/annex-dev/annex/pkg/storage/archive"
	"github.com/annex-dev/annex/pkg/table"
)

// NewCommand returns `annex archive`, which prints to out.
func NewCommand(out io.Writer) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "archive",
		Short: "Read the objects that retentions archived",
		Long: "Read the objects that retentions archived before they deleted them, from a folder that `annex serve\n" +
			"--archive-dir` writes, or a copy of it.",
		Args: cobra.NoArgs,
	}
	cmd.AddCommand(newSearchCommand(out), newCatCommand(out))
	return cmd
}

// found is an archived object, an element of -o json.
type found struct {
	Archived  time.Time `json:"archived"`
	Resource  string    `json:"resource"`
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	Rule      string    `json:"rule"`
	UID       types.UID `json:"uid"`
}

func newSearchCommand(out io.Writer) *cobra.Command {
	o, format := &options{}, output.Format{}
	cmd := &cobra.Command{
		Use:     "search",
		Short:   "List archived objects",
		Example: "  annex archive search --archive-dir /var/lib/annex/archive --resource widgets.example.com --since 24h",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			objects := []found{}
			err := o.read(func(record archive.Record, object *metav1.ObjectMeta) error {
				objects = append(objects, found{record.Archived, record.Resource, object.Namespace, object.Name, record.Rule, object.UID})
				return nil
			})
			return errors.Join(format.Print(out, objects, func() error { return printFound(out, objects, format.Is(output.Wide)) }), err)
		},
	}
	o.addFlags(cmd.Flags())
	format.AddFlag(cmd.Flags(), output.Wide)
	return cmd
}

func printFound(out io.Writer, objects []found, wide bool) error {
	w := output.NewTable(out)
	t := output.Columns{{"ARCHIVED", true}, {"RESOURCE", true}, {"NAMESPACE", true}, {"NAME", true}, {"RULE", wide}, {"UID", wide}}
	t.Header(w)
	for _, of := range objects {
		archived := table.Since(of.Archived)
		if wide {
			archived = of.Archived.Format(time.RFC3339)
		}
		t.Row(w, archived, of.Resource, of.Namespace, of.Name, of.Rule, of.UID)
	}
	return w.Flush()
}

func newCatCommand(out io.Writer) *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:   "cat",
		Short: "Print archived objects as JSON, one per line",
		Long: "Print archived objects as JSON, one per line, as they were stored. kubectl creates them again without the fields\n" +
			"that the server sets:\n\n" +
			"  annex archive cat --archive-dir DIR --name first | jq 'del(.metadata.uid, .metadata.resourceVersion)' | kubectl create -f -",
		Example: "  annex archive cat --archive-dir /var/lib/annex/archive --resource widgets.example.com -n team --name first",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return o.read(func(record archive.Record, _ *metav1.ObjectMeta) error {
				_, err := fmt.Fprintf(out, "%s\n", record.Object)
				return err
			})
		},
	}
	o.addFlags(cmd.Flags())
	return cmd
}

type options struct {
	dir             string
	resource        string
	namespace, name string
	selector        string
	since, until    string
}

func (o *options) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.dir, "archive-dir", o.dir, "The folder of the archive. Required.")
	fs.StringVar(&o.resource, "resource", o.resource, "Only objects of this resource, <plural>.<group>.")
	fs.StringVarP(&o.namespace, "namespace", "n", o.namespace, "Only objects in this namespace.")
	fs.StringVar(&o.name, "name", o.name, "Only objects of this name.")
	fs.StringVarP(&o.selector, "selector", "l", o.selector, "Only objects with these labels, as in kubectl.")
	fs.StringVar(&o.since, "since", o.since, "Only objects that were archived at or after this time: RFC 3339, or a duration before now, such as 24h.")
	fs.StringVar(&o.until, "until", o.until, "Only objects that were archived before this time, as in --since.")
}

// read calls visit for each record that the flags select.
func (o *options) read(visit func(archive.Record, *metav1.ObjectMeta) error) error {
	if o.dir == "" {
		return errors.New("--archive-dir is required")
	}
	selector, err := labels.Parse(o.selector)
	if err != nil {
		return fmt.Errorf("--selector: %w", err)
	}
	now := time.Now()
	since, err := parseTime(o.since, now)
	if err != nil {
		return fmt.Errorf("--since: %w", err)
	}
	until, err := parseTime(o.until, now)
	if err != nil {
		return fmt.Errorf("--until: %w", err)
	}
	return archive.Read(o.dir, o.resource, func(record archive.Record) error {
		if record.Archived.Before(since) || !until.IsZero() && !record.Archived.Before(until) {
			return nil
		}
		var object struct {
			Metadata metav1.ObjectMeta `json:"metadata"`
		}
		if err := json.Unmarshal(record.Object, &object); err != nil {
			return fmt.Errorf("decode an archived object of %s: %w", record.Resource, err)
		}
		if o.namespace != "" && object.Metadata.Namespace != o.namespace || o.name != "" && object.Metadata.Name != o.name || !selector.Matches(labels.Set(object.Metadata.Labels)) {
			return nil
		}
		return visit(record, &object.Metadata)
	})
}

// parseTime parses a time, or a duration before now. The zero time is no limit.
func parseTime(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if ago, err := time.ParseDuration(text); err == nil {
		return now.Add(-ago), nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, fmt.Errorf("%q is neither a time in RFC 3339 nor a duration", text)
	}
	return t, nil
}
