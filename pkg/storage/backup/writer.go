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
)

// Writer writes a backup as a stream.
type Writer struct {
	out     *bufio.Writer
	sum     hash.Hash
	last    Kind
	trailer Trailer
	scratch []byte
}

// NewWriter begins a backup with its header, whose FormatVersion it sets.
func NewWriter(out io.Writer, header Header) (*Writer, error) {
	w := &Writer{out: bufio.NewWriterSize(out, 64<<10), sum: sha256.New()}
	if err := w.write([]byte(magic)); err != nil {
		return nil, err
	}
	header.FormatVersion = FormatVersion
	return w, w.writeJSON(KindHeader, header)
}

// Write adds a record. Records come in the order of their kinds.
func (w *Writer) Write(record Record) error {
	switch {
	case !record.valid():
		return fmt.Errorf("a record cannot be of kind %q", byte(record.Kind))
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

// Close writes the trailer, without which a backup is not whole, and says what it
// counts. It does not close what is written to.
func (w *Writer) Close() (Trailer, error) { return w.closeAt("") }

// closeAt ends a part of a backup, and says where the next one begins.
func (w *Writer) closeAt(next string) (Trailer, error) {
	if w.last == kindTrailer {
		return w.trailer, errors.New("the backup has its end already")
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
