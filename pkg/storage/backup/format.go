// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"time"
)

// magic begins every file. The non-text byte and the line endings detect files that were
// copied as text.
const magic = "\x89annex\r\n\x1a\n"

// FormatVersion is the only supported version.
const FormatVersion = 1

// Bounds of lengths, so that a damaged one does not allocate much memory.
const (
	maxKey   = 64 << 10
	maxValue = 256 << 20
)

// maxResourceVersion is above the revisions of any etcd, and leaves room for RevisionGap.
const maxResourceVersion = 1 << 60

// Kind is the kind of a frame.
type Kind byte

// The kinds in the order of a file.
const (
	KindHeader     Kind = 'h'
	KindManifest   Kind = 'm'
	KindDictionary Kind = 'd'
	KindObject     Kind = 'o'
	kindTrailer    Kind = 't'
	// kindUnreadable is an object that is marked as unreadable.
	kindUnreadable Kind = 'u'
)

var order = map[Kind]int{KindHeader: 1, KindManifest: 2, KindDictionary: 3, KindObject: 4, kindUnreadable: 4, kindTrailer: 5}

// Header describes a backup.
type Header struct {
	FormatVersion int `json:"formatVersion"`
	// Store is the name of the Store.
	Store string `json:"store"`
	// Resource is "<plural>.<group>", or empty for a whole Store.
	Resource string `json:"resource,omitempty"`
	// Prefix begins the Store's keys. It ends with a slash.
	Prefix string `json:"prefix"`
	// Revision is the revision of etcd.
	Revision int64 `json:"revision"`
	// ResourceVersion is the highest resource version that clients may have seen at that
	// revision. It differs from Revision for a resource that was restored before.
	ResourceVersion int64 `json:"resourceVersion"`
	// Data identifies the etcd and its history: the cluster, and the UID and epoch in the
	// Store's ownership key.
	Data string `json:"data,omitempty"`
	// Expected is the number of objects for progress bars, including those with leases,
	// which are omitted.
	Expected int64 `json:"expected,omitempty"`
	// Created is the time of the start.
	Created time.Time `json:"created"`
	// CreatedBy is the version of annex.
	CreatedBy string `json:"createdBy"`
}

// Record is a manifest, a dictionary or an object.
type Record struct {
	Kind  Kind
	Key   string
	Value []byte
	// Unreadable marks an object that could not be read during the backup, for example
	// because its encryption key is missing.
	Unreadable bool
}

// Trailer ends a backup, and has the numbers of records.
type Trailer struct {
	Manifests    int64 `json:"manifests"`
	Dictionaries int64 `json:"dictionaries"`
	Objects      int64 `json:"objects"`
	// Unreadable is the number of unreadable objects.
	Unreadable int64 `json:"unreadable,omitempty"`
	// Bytes is the total size of the objects' values.
	Bytes int64 `json:"bytes"`
	// Continue is the position of the next part, if any.
	Continue string `json:"continue,omitempty"`
}

func (r Record) valid() bool {
	switch r.Kind {
	case KindManifest, KindDictionary:
		return !r.Unreadable
	}
	return r.Kind == KindObject
}

func (t *Trailer) count(record Record) {
	switch record.Kind {
	case KindManifest:
		t.Manifests++
	case KindDictionary:
		t.Dictionaries++
	case KindObject:
		t.Objects++
		t.Bytes += int64(len(record.Value))
		if record.Unreadable {
			t.Unreadable++
		}
	}
}

// Errors of invalid files.
var (
	// ErrNotBackup means that a file is not a backup.
	ErrNotBackup = errors.New("it is not a backup of annex")
	// ErrTruncated means that a file lacks its end.
	ErrTruncated = errors.New("the backup is incomplete: its end is missing")
	// ErrDamaged means that the content of a file was changed.
	ErrDamaged = errors.New("the backup is damaged")
	// ErrNewer means that a file has a newer format.
	ErrNewer = errors.New("the backup was made by a newer annex")
)

// Writer writes a backup as a stream.
type Writer struct {
	out     *bufio.Writer
	sum     hash.Hash
	last    Kind
	trailer Trailer
	scratch []byte
}

// NewWriter writes the header with FormatVersion.
func NewWriter(out io.Writer, header Header) (*Writer, error) {
	w := &Writer{out: bufio.NewWriterSize(out, 64<<10), sum: sha256.New()}
	if err := w.write([]byte(magic)); err != nil {
		return nil, err
	}
	header.FormatVersion = FormatVersion
	return w, w.writeJSON(KindHeader, header)
}

// Write writes a record. Records must be in the order of their kinds.
func (w *Writer) Write(record Record) error {
	switch {
	case !record.valid():
		return fmt.Errorf("a record cannot have kind %q", byte(record.Kind))
	case order[record.Kind] < order[w.last]:
		return fmt.Errorf("a record of kind %q cannot follow one of kind %q", byte(record.Kind), byte(w.last))
	case record.Key == "" || len(record.Key) > maxKey:
		return fmt.Errorf("a key of %d bytes cannot be backed up", len(record.Key))
	case len(record.Value) > maxValue:
		return fmt.Errorf("%s: a value of %d bytes cannot be backed up", record.Key, len(record.Value))
	}
	w.trailer.count(record)
	kind := record.Kind
	if record.Unreadable {
		kind = kindUnreadable
	}
	return w.frame(kind, record.Key, record.Value)
}

// Close writes and returns the trailer. It does not close the underlying writer.
func (w *Writer) Close() (Trailer, error) { return w.closeAt("") }

// closeAt ends a part of a backup. next is the position of the next one.
func (w *Writer) closeAt(next string) (Trailer, error) {
	if w.last == kindTrailer {
		return w.trailer, errors.New("the backup is closed already")
	}
	w.trailer.Continue = next
	if err := w.writeJSON(kindTrailer, w.trailer); err != nil {
		return w.trailer, err
	}
	if _, err := w.out.Write(w.sum.Sum(nil)); err != nil {
		return w.trailer, err
	}
	return w.trailer, w.out.Flush()
}

func (w *Writer) writeJSON(kind Kind, content any) error {
	encoded, err := json.Marshal(content)
	if err != nil {
		return fmt.Errorf("encode %T: %w", content, err)
	}
	return w.frame(kind, "", encoded)
}

func (w *Writer) frame(kind Kind, key string, value []byte) error {
	w.last = kind
	w.scratch = append(w.scratch[:0], byte(kind))
	w.scratch = binary.AppendUvarint(w.scratch, uint64(len(key)))
	w.scratch = binary.AppendUvarint(w.scratch, uint64(len(value)))
	w.scratch = append(w.scratch, key...)
	if err := w.write(w.scratch); err != nil {
		return err
	}
	return w.write(value)
}

func (w *Writer) write(data []byte) error {
	w.sum.Write(data) // never fails
	_, err := w.out.Write(data)
	return err
}
