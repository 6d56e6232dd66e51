// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package compression

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/klauspost/compress/zstd"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// magic begins every compressed value. No JSON, protobuf, CBOR or encrypted value
// begins like that. The number is that of the format.
const magic = "\x00annex:zstd:1\x00"

const (
	// minSize is the size from which on compression is tried.
	minSize = 512

	// MaxPlainSize is the size up to which a value is compressed, and what a
	// value may claim to be when it is read: it costs that much memory. It is above
	// the highest --max-object-bytes with all that annex adds to an object.
	MaxPlainSize = 160 << 20
)

var (
	errDamaged  = errors.New("the compressed value is damaged")
	errNoMagic  = errors.New("the value is not compressed")
	errTooLarge = fmt.Errorf("it claims to be of more than %d bytes", MaxPlainSize)
)

// IsCompressed reports whether a value was written by this package. An encrypted
// one has to be decrypted first.
func IsCompressed(value []byte) bool { return bytes.HasPrefix(value, []byte(magic)) }

// PlainSize is the size of a value before compression, without decompressing it. A
// value that is not compressed is as large as it is; known is false for one that is
// damaged.
func PlainSize(value []byte) (size int64, known bool) {
	if !IsCompressed(value) {
		return int64(len(value)), true
	}
	header, err := parse(value)
	if err != nil {
		return 0, false
	}
	return int64(header.plain), true
}

// Measure is PlainSize for who measures all values of a Store. What is encrypted is
// as large as it is there: to look inside costs too much.
func Measure(_ schema.GroupResource, _, value []byte) (size int64, known bool) {
	return PlainSize(value)
}

// DictionaryID is the dictionary that a compressed value needs. False is returned
// for a value that is not compressed, damaged, or needs none but annex's own.
func DictionaryID(value []byte) (uint32, bool) {
	header, err := parse(value)
	return header.dictionary, err == nil && generic(header.dictionary) == nil
}

// header is what a compressed value says about itself.
type header struct {
	dictionary uint32
	plain      uint64
	size       int // of the frame's header
}

// parse reads the header of a compressed value.
func parse(value []byte) (header, error) {
	frame, found := bytes.CutPrefix(value, []byte(magic))
	if !found {
		return header{}, errNoMagic
	}
	var h zstd.Header
	if err := h.Decode(frame); err != nil {
		return header{}, fmt.Errorf("%w: %w", errDamaged, err)
	}
	// All that this package writes has them.
	if h.Skippable || !h.HasFCS || !h.HasCheckSum || h.DictionaryID == 0 {
		return header{}, fmt.Errorf("%w: not a frame of annex", errDamaged)
	}
	if h.FrameContentSize > MaxPlainSize {
		return header{}, fmt.Errorf("%w: %w", errDamaged, errTooLarge)
	}
	return header{dictionary: h.DictionaryID, plain: h.FrameContentSize, size: h.HeaderSize}, nil
}

const (
	blockHeaderSize = 3
	checksumSize    = 4
	// blockRLE is the type of a block that is one byte, repeated.
	blockRLE = 1
)

// length is how much of a value belongs to it, header and all: what prints values
// may have put a newline behind.
func length(value []byte) (int, error) {
	h, err := parse(value)
	if err != nil {
		return 0, err
	}
	at := len(magic) + h.size
	for last := false; !last; {
		if len(value) < at+blockHeaderSize {
			return 0, fmt.Errorf("%w: it ends too early", errDamaged)
		}
		block := binary.LittleEndian.Uint32(append([]byte{0}, value[at:at+blockHeaderSize]...)) >> 8
		last = block&1 == 1
		at += blockHeaderSize
		if block>>1&3 == blockRLE {
			at++
		} else {
			at += int(block >> 3)
		}
	}
	at += checksumSize
	if len(value) < at {
		return 0, fmt.Errorf("%w: it ends too early", errDamaged)
	}
	return at, nil
}
