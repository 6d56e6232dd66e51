// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/storage/backup"
)

// Folders of the keys of manifests.
const (
	definitionKey = "customresourcedefinitions/"
	hostedKey     = "hostedresources/"
)

// backupOptions are the flags of `annex backup`.
type backupOptions struct {
	login
	store, resource string
	path            string
}

// NewBackupCommand returns `annex backup`.
func NewBackupCommand(out, errOut io.Writer) *cobra.Command {
	o := &backupOptions{}
	cmd := &cobra.Command{
		Use:   "backup (--store NAME | --resource PLURAL.GROUP) FILE",
		Short: "Write what a Store, or one resource, holds to a file",
		Long: "Write what a Store, or one resource, holds to a file, as it was at one moment, while annex serves. The file has what\n" +
			"is needed to restore it: objects, definitions, and dictionaries of compression; what is encrypted stays encrypted, and\n" +
			"its keys are not part of it. The file appears once it is whole, and only its owner may read it.",
		Example: "  annex backup --resource widgets.example.com widgets.backup\n" +
			"  annex backup --store default default.backup",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.path = args[0]
			if (o.store == "") == (o.resource == "") {
				return errors.New("give either --store or --resource")
			}
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			return o.run(ctx, out, errOut)
		},
	}
	fs := cmd.Flags()
	o.addFlags(fs)
	fs.StringVar(&o.store, "store", o.store, "The Store to back up.")
	fs.StringVar(&o.resource, "resource", o.resource, "The resource to back up, as PLURAL.GROUP.")
	return cmd
}

func (o *backupOptions) run(ctx context.Context, out, errOut io.Writer) error {
	annex, err := o.connect()
	if err != nil {
		return err
	}
	manifests, err := o.manifests(ctx, annex)
	if err != nil {
		return err
	}
	target, err := newFile(o.path)
	if err != nil {
		return err
	}
	defer target.discard()
	header, trailer, err := o.save(ctx, annex, manifests, target, errOut)
	if err != nil {
		return err
	}
	if err := target.finish(); err != nil {
		return err
	}
	what := "Store " + header.Store
	if header.Resource != "" {
		what = header.Resource + " of " + what
	}
	_, err = fmt.Fprintf(out, "%s: %s, %s at revision %d\n", o.path, what, amount(trailer), header.Revision)
	return err
}

func amount(trailer backup.Trailer) string {
	noun := "objects"
	if trailer.Objects == 1 {
		noun = "object"
	}
	return fmt.Sprintf("%d %s (%s)", trailer.Objects, noun, inBytes(trailer.Bytes))
}

// manifests reads the definitions of what is backed up. They are read before the
// objects are: an object is then never newer than what it is restored with.
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

// save puts the parts together.
func (o *backupOptions) save(ctx context.Context, annex *client, manifests []backup.Record, target io.Writer, errOut io.Writer) (backup.Header, backup.Trailer, error) {
	kind, name := "stores", o.store
	if o.resource != "" {
		kind, name = "hostedresources", o.resource
	}
	var header backup.Header
	var writer *backup.Writer
	var bar *progress
	var objects, size int64
	after := ""
	for {
		part, err := annex.readPart(ctx, kind, name, header.Revision, after)
		if apierrors.IsResourceExpired(err) {
			return header, backup.Trailer{}, fmt.Errorf("back up %s %s: %w; begin again, nearer to annex or with a longer --etcd-compaction-interval", kind, name, err)
		}
		if err != nil {
			return header, backup.Trailer{}, fmt.Errorf("back up %s %s: %w", kind, name, err)
		}
		if writer == nil {
			if header, writer, err = begin(target, part, manifests); err != nil {
				return header, backup.Trailer{}, err
			}
			bar = newProgress(errOut, name, header.Expected)
			defer bar.end()
		}
		_, trailer, err := readPart(part, writer.Write)
		if err != nil {
			return header, backup.Trailer{}, fmt.Errorf("write the backup: %w", err)
		}
		objects, size = objects+trailer.Objects, size+trailer.Bytes
		bar.show(objects, size)
		if after = trailer.Continue; after == "" {
			break
		}
	}
	trailer, err := writer.Close()
	if err != nil {
		return header, trailer, fmt.Errorf("write the backup: %w", err)
	}
	return header, trailer, nil
}

// begin writes what comes before the first object.
func begin(target io.Writer, part []byte, manifests []backup.Record) (backup.Header, *backup.Writer, error) {
	header, _, err := readPart(part, func(backup.Record) error { return nil })
	if err != nil {
		return header, nil, err
	}
	writer, err := backup.NewWriter(target, header)
	for _, manifest := range manifests {
		if err == nil {
			err = writer.Write(manifest)
		}
	}
	if err != nil {
		return header, nil, fmt.Errorf("write the backup: %w", err)
	}
	return header, writer, nil
}
