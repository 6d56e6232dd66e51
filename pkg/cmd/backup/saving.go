// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"bytes"
	"context"
	"fmt"
	"io"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/annex-dev/annex/pkg/storage/backup"
)

// saver writes a backup.
type saver struct {
	annex   *client
	options *backupOptions
	errOut  io.Writer

	header     backup.Header
	writer     *backup.Writer // nil until the first part is read
	bar        *progress
	unreadable unreadable
}

// run reads all parts and writes them to target.
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
			s.bar = newProgress(s.errOut, name, s.header.Expected)
			defer s.bar.end()
		}
		_, trailer, err := readRecords(bytes.NewReader(part), s.write)
		if err != nil {
			return backup.Trailer{}, fmt.Errorf("write the backup: %w", err)
		}
		objects, size = objects+trailer.Objects, size+trailer.Bytes
		s.bar.show(objects, size)
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

// begin writes the header and the manifests.
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
