// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package backup implements `annex backup` and `annex restore`. They are clients of a
// running annex, which reads and writes its Stores part by part. Only a restore of a
// whole Store, for which no annex may run, writes to etcd directly.
package backup

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/cmd/internal/login"
	"github.com/annex-dev/annex/pkg/cmd/internal/output"
	"github.com/annex-dev/annex/pkg/storage/backup"
	"github.com/annex-dev/annex/pkg/table"
)

// Prefixes of the keys of manifests.
const (
	definitionKey = "customresourcedefinitions/"
	hostedKey     = "hostedresources/"
)

type backupOptions struct {
	login           login.Options
	store, resource string
	path            string
}

// NewBackupCommand returns `annex backup`.
func NewBackupCommand(out, errOut io.Writer) *cobra.Command {
	o := &backupOptions{}
	cmd := &cobra.Command{
		Use:   "backup (--store NAME | --resource PLURAL.GROUP) FILE",
		Short: "Write the objects of a Store, or of one resource, to a file",
		Long: "Write the objects of a Store, or of one resource, at one revision to a file, while annex serves. The file has what\n" +
			"a restore needs: objects, definitions, and compression dictionaries. Encrypted values stay encrypted, and their keys\n" +
			"are not included. The file appears once it is complete, and only its owner can read it. With - as FILE the backup is\n" +
			"written to standard output; a restore finds out if it is incomplete.",
		Example: "  annex backup --resource widgets.example.com widgets.backup\n" +
			"  annex backup --store default default.backup\n" +
			"  annex backup --store default - | age -r age1… > default.backup.age",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.path = args[0]
			if (o.store == "") == (o.resource == "") {
				return errors.New("give either --store or --resource")
			}
			return o.run(cmd.Context(), out, errOut)
		},
	}
	fs := cmd.Flags()
	o.login.AddFlags(fs, login.AnnexOrMain)
	fs.StringVar(&o.store, "store", o.store, "The Store to back up.")
	fs.StringVar(&o.resource, "resource", o.resource, "The resource to back up, as PLURAL.GROUP.")
	o.login.CompleteFlag(cmd, "store", login.Stores)
	o.login.CompleteFlag(cmd, "resource", login.HostedResources)
	return cmd
}

// Save writes the objects of a resource, "<plural>.<group>", to a new file, as `annex backup
// --resource` does.
func Save(ctx context.Context, server login.Options, resource, path string, out, errOut io.Writer) error {
	return (&backupOptions{login: server, resource: resource, path: path}).run(ctx, out, errOut)
}

func (o *backupOptions) run(ctx context.Context, out, errOut io.Writer) error {
	annex, err := connect(ctx, &o.login)
	if err != nil {
		return err
	}
	manifests, err := o.manifests(ctx, annex)
	if err != nil {
		return err
	}
	target, err := o.target(out)
	if err != nil {
		return err
	}
	defer target.discard()
	s := &saver{annex: annex, options: o, errOut: errOut}
	trailer, err := s.run(ctx, manifests, target)
	if err != nil {
		return err
	}
	if err := target.finish(); err != nil {
		return err
	}
	what := "Store " + s.header.Store
	if s.header.Resource != "" {
		what = s.header.Resource + " of " + what
	}
	if o.path == standardOutput {
		out = errOut
	}
	_, err = fmt.Fprintf(out, "%s: %s, %s at revision %d\n", o.path, what, amount(trailer), s.header.Revision)
	return errors.Join(err, s.unreadable.warn(errOut, "and in the backup as in etcd"))
}

// standardOutput is the FILE of a backup that is written to standard output.
const standardOutput = "-"

// target is where a backup is written to.
type target interface {
	io.Writer
	// finish makes a complete backup available.
	finish() error
	// discard removes an incomplete one.
	discard()
}

func (o *backupOptions) target(out io.Writer) (target, error) {
	switch {
	case o.path != standardOutput:
		return newFile(o.path)
	case output.IsTerminal(out):
		return nil, errors.New("FILE is -, and standard output is a terminal: redirect it to a file or a program")
	}
	return stream{out}, nil
}

// stream is standard output. The reader of an incomplete backup recognizes it: it has no end.
type stream struct{ io.Writer }

func (stream) finish() error { return nil }
func (stream) discard()      {}

func amount(trailer backup.Trailer) string {
	return fmt.Sprintf("%s (%s)", output.Count(trailer.Objects, "object"), table.Bytes(trailer.Bytes))
}

// manifests reads the definitions. They are read before the objects, so that no object is
// newer than its definition.
func (o *backupOptions) manifests(ctx context.Context, annex *client) ([]backup.Record, error) {
	var resources []hostingv1alpha1.HostedResource
	if o.resource != "" {
		hosted, err := annex.hosting.HostedResources().Get(ctx, o.resource, metav1.GetOptions{})
		if err != nil {
			return nil, fmt.Errorf("--resource: %w", err)
		}
		resources = append(resources, *hosted)
	} else {
		selector := fields.OneTermEqualSelector(hostingv1alpha1.HostedResourceStoreNameField, o.store).String()
		list, err := annex.hosting.HostedResources().List(ctx, metav1.ListOptions{FieldSelector: selector})
		if err != nil {
			return nil, fmt.Errorf("list what Store %s holds: %w", o.store, err)
		}
		resources = list.Items
	}
	var records []backup.Record
	for _, hosted := range resources {
		hosted.APIVersion, hosted.Kind = hostingv1alpha1.SchemeGroupVersion.String(), "HostedResource"
		encoded, err := json.Marshal(hosted)
		if err != nil {
			return nil, fmt.Errorf("encode hostedresource %s: %w", hosted.Name, err)
		}
		records = append(records, backup.Record{Kind: backup.KindManifest, Key: hostedKey + hosted.Name, Value: encoded})
		definition, err := annex.definition(ctx, hosted.Name)
		if err != nil {
			return nil, err
		}
		if definition != nil {
			records = append(records, backup.Record{Kind: backup.KindManifest, Key: definitionKey + hosted.Name, Value: definition})
		}
	}
	return records, nil
}

type saver struct {
	annex   *client
	options *backupOptions
	errOut  io.Writer

	header     backup.Header
	writer     *backup.Writer // nil until the first part is read
	bar        *output.Bar
	unreadable unreadable
}

func (s *saver) run(ctx context.Context, manifests []backup.Record, target io.Writer) (backup.Trailer, error) {
	kind, name, what := "stores", s.options.store, "--store "+s.options.store
	if s.options.resource != "" {
		kind, name, what = "hostedresources", s.options.resource, "--resource "+s.options.resource
	}
	var objects, size int64
	for after := ""; ; {
		part, header, err := s.annex.readPart(ctx, kind, name, s.header, after)
		switch {
		case apierrors.IsResourceExpired(err):
			return backup.Trailer{}, fmt.Errorf("%s: %w; run it again, with a faster connection to annex or a longer --etcd-compaction-interval", what, err)
		case err != nil:
			return backup.Trailer{}, fmt.Errorf("%s: %w", what, err)
		}
		if s.writer == nil {
			s.header = header
			if err := s.begin(target, manifests); err != nil {
				return backup.Trailer{}, fmt.Errorf("write the backup: %w", err)
			}
			s.bar = output.NewBar(s.errOut, name)
			defer s.bar.End()
		}
		_, trailer, err := readRecords(bytes.NewReader(part), s.write)
		if err != nil {
			return backup.Trailer{}, fmt.Errorf("write the backup: %w", err)
		}
		objects, size = objects+trailer.Objects, size+trailer.Bytes
		s.bar.Show(objects, s.header.Expected, size)
		if after = trailer.Continue; after == "" {
			break
		}
	}
	trailer, err := s.writer.Close()
	if err != nil {
		return trailer, fmt.Errorf("write the backup: %w", err)
	}
	return trailer, nil
}

func (s *saver) begin(target io.Writer, manifests []backup.Record) error {
	var err error
	if s.writer, err = backup.NewWriter(target, s.header); err != nil {
		return err
	}
	for _, manifest := range manifests {
		if err := s.writer.Write(manifest); err != nil {
			return err
		}
	}
	return nil
}

func (s *saver) write(record backup.Record) error {
	if record.Unreadable {
		s.unreadable.add(record.Key)
	}
	return s.writer.Write(record)
}

const maxNamed = 10

type unreadable struct {
	count int64
	named []string
}

func (u *unreadable) add(keys ...string) {
	u.count += int64(len(keys))
	u.named = append(u.named, keys[:min(len(keys), maxNamed-len(u.named))]...)
}

// warn prints a warning that names the objects and their fate, if there are any.
func (u *unreadable) warn(errOut io.Writer, fate string) error {
	if u.count == 0 {
		return nil
	}
	names := strings.Join(u.named, ", ")
	if others := u.count - int64(len(u.named)); others > 0 {
		names += fmt.Sprintf(" and %d others", others)
	}
	_, err := fmt.Fprintf(errOut, "annex: warning: %s cannot be read, %s: %s\n", output.Count(u.count, "object"), fate, names)
	return err
}
