// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package compression

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/klauspost/compress/zstd"
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
	// blockRaw and blockRLE are the types of a block that is as it was, and of one
	// that is a byte, repeated.
	blockRaw, blockRLE = 0, 1
	// maxBlock is what any other block holds at the most.
	maxBlock = 128 << 10
)

// walk goes over the blocks of a compressed value whose header was parsed, without
// decompressing them. It returns where the value ends, and how much plain text it
// can hold at the most.
func walk(value []byte, h header) (end int, most uint64, err error) {
	end = len(magic) + h.size
	for last := false; !last; {
		if len(value) < end+blockHeaderSize {
			return 0, 0, fmt.Errorf("%w: it ends too early", errDamaged)
		}
		block := uint32(value[end]) | uint32(value[end+1])<<8 | uint32(value[end+2])<<16
		last = block&1 == 1
		end += blockHeaderSize
		size := block >> 3
		switch block >> 1 & 3 {
		case blockRaw:
			end, most = end+int(size), most+uint64(size)
		case blockRLE:
			end, most = end+1, most+uint64(size)
		default:
			end, most = end+int(size), most+maxBlock
		}
	}
	end += checksumSize
	if len(value) < end {
		return 0, 0, fmt.Errorf("%w: it ends too early", errDamaged)
	}
	return end, most, nil
}

// length is how much of a value belongs to it, header and all: what prints values
// may have put a newline behind.
func length(value []byte) (int, error) {
	h, err := parse(value)
	if err != nil {
		return 0, err
	}
	end, _, err := walk(value, h)
	return end, err
}

// believe makes sure that a value may be as large as it says, before so much memory
// is taken for it: nothing is behind it, and its blocks can hold that.
func believe(value []byte, h header) error {
	end, most, err := walk(value, h)
	switch {
	case err != nil:
		return err
	case end != len(value):
		return fmt.Errorf("%w: %d bytes follow it", errDamaged, len(value)-end)
	case most < h.plain:
		return fmt.Errorf("%w: it claims to be of %d bytes and cannot hold more than %d", errDamaged, h.plain, most)
	}
	return nil
}
