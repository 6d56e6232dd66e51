// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
)

// Reader reads a backup as a stream.
type Reader struct {
	in      *bufio.Reader
	sum     hash.Hash
	header  Header
	last    Kind
	trailer Trailer
	done    bool
}

// NewReader reads the header of a backup.
func NewReader(in io.Reader) (*Reader, error) {
	r := &Reader{in: bufio.NewReaderSize(in, 64<<10), sum: sha256.New(), last: KindHeader}
	if err := r.readMagic(); err != nil {
		return nil, err
	}
	record, err := r.frame()
	if err != nil {
		return nil, err
	}
	if record.Kind != KindHeader {
		return nil, fmt.Errorf("%w: it does not begin with a header", ErrDamaged)
	}
	if err := json.Unmarshal(record.Value, &r.header); err != nil {
		return nil, fmt.Errorf("%w: its header cannot be read: %w", ErrDamaged, err)
	}
	switch {
	case r.header.FormatVersion > FormatVersion:
		return nil, fmt.Errorf("%w: it has format %d, this annex knows %d", ErrNewer, r.header.FormatVersion, FormatVersion)
	case r.header.FormatVersion != FormatVersion:
		return nil, fmt.Errorf("%w: its header has format %d", ErrDamaged, r.header.FormatVersion)
	case r.header.Revision < 0 || r.header.ResourceVersion < 0 || r.header.ResourceVersion > maxResourceVersion:
		return nil, fmt.Errorf("%w: its header has the resource version %d at revision %d, which no etcd reaches",
			ErrDamaged, r.header.ResourceVersion, r.header.Revision)
	}
	return r, nil
}

// Header returns the header.
func (r *Reader) Header() Header { return r.header }

// Next returns the next record, or io.EOF after the last one of a complete, undamaged
// backup. After any other error, the records before must not be used.
func (r *Reader) Next() (Record, error) {
	if r.done {
		return Record{}, io.EOF
	}
	record, err := r.frame()
	if err != nil {
		return Record{}, err
	}
	if record.Kind == kindTrailer {
		if err := r.finish(record.Value); err != nil {
			return Record{}, err
		}
		return Record{}, io.EOF
	}
	if record.Kind == KindHeader || order[record.Kind] < order[r.last] {
		return Record{}, fmt.Errorf("%w: a record of kind %q is out of order", ErrDamaged, byte(record.Kind))
	}
	if record.Key == "" {
		return Record{}, fmt.Errorf("%w: a record has no key", ErrDamaged)
	}
	r.last = record.Kind
	if record.Kind == kindUnreadable {
		record.Kind, record.Unreadable = KindObject, true
	}
	r.trailer.count(record)
	return record, nil
}

// Trailer returns the numbers of records read.
func (r *Reader) Trailer() Trailer { return r.trailer }

func (r *Reader) readMagic() error {
	begin := make([]byte, len(magic))
	n, err := io.ReadFull(r.in, begin)
	switch {
	case n == 0 && errors.Is(err, io.EOF):
		return fmt.Errorf("%w: it is empty", ErrTruncated)
	case errors.Is(err, io.ErrUnexpectedEOF) && bytes.HasPrefix([]byte(magic), begin[:n]):
		return ErrTruncated
	case err != nil && !errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("read the backup: %w", err)
	case string(begin) != magic:
		return ErrNotBackup
	}
	r.sum.Write(begin)
	return nil
}

// finish verifies the trailer.
func (r *Reader) finish(encoded []byte) error {
	var trailer Trailer
	if err := json.Unmarshal(encoded, &trailer); err != nil {
		return fmt.Errorf("%w: its end cannot be read: %w", ErrDamaged, err)
	}
	want := r.sum.Sum(nil)
	got := make([]byte, sha256.Size)
	if _, err := io.ReadFull(r.in, got); err != nil {
		return truncated(err)
	}
	if !bytes.Equal(want, got) {
		return fmt.Errorf("%w: its checksum is wrong", ErrDamaged)
	}
	r.trailer.Continue = trailer.Continue
	if trailer != r.trailer {
		return fmt.Errorf("%w: it has %d objects, its trailer counts %d", ErrDamaged, r.trailer.Objects, trailer.Objects)
	}
	if _, err := r.in.ReadByte(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: it has data after its end", ErrDamaged)
	}
	r.done = true
	return nil
}

func (r *Reader) frame() (Record, error) {
	kind, err := r.ReadByte()
	if err != nil {
		return Record{}, truncated(err)
	}
	if order[Kind(kind)] == 0 {
		return Record{}, fmt.Errorf("%w: there is no kind %q", ErrDamaged, kind)
	}
	keyLength, err := r.length(maxKey)
	if err != nil {
		return Record{}, err
	}
	valueLength, err := r.length(maxValue)
	if err != nil {
		return Record{}, err
	}
	key, err := r.bytes(keyLength)
	if err != nil {
		return Record{}, err
	}
	value, err := r.bytes(valueLength)
	return Record{Kind: Kind(kind), Key: string(key), Value: value}, err
}

// ReadByte implements io.ByteReader, for lengths.
func (r *Reader) ReadByte() (byte, error) {
	b, err := r.in.ReadByte()
	if err == nil {
		r.sum.Write([]byte{b})
	}
	return b, err
}

func (r *Reader) length(limit uint64) (int64, error) {
	length, err := binary.ReadUvarint(r)
	switch {
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return 0, ErrTruncated
	case err != nil || length > limit:
		return 0, fmt.Errorf("%w: a length is too large", ErrDamaged)
	}
	return int64(length), nil
}

// bytes reads n bytes, and allocates memory only for those that exist.
func (r *Reader) bytes(n int64) ([]byte, error) {
	var buffer bytes.Buffer
	if _, err := io.CopyN(&buffer, r.in, n); err != nil {
		return nil, truncated(err)
	}
	r.sum.Write(buffer.Bytes())
	return buffer.Bytes(), nil
}

// truncated distinguishes the end of the file from other errors.
func truncated(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return ErrTruncated
	}
	return fmt.Errorf("read the backup: %w", err)
}
