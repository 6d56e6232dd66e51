// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package compression

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/klauspost/compress/zstd"
)

// magic begins every compressed value, and no JSON, protobuf, CBOR or encrypted one. It
// contains the version of the format.
const magic = "\x00annex:zstd:1\x00"

const (
	// minSize is the size of the smallest values that are compressed.
	minSize = 512

	// MaxPlainSize bounds the size of a value before compression, and so the memory for
	// decompressing one. It is above the highest --max-object-bytes with managed fields.
	MaxPlainSize = 160 << 20
)

var (
	errDamaged  = errors.New("the compressed value is damaged")
	errNoMagic  = errors.New("the value is not compressed")
	errTooLarge = fmt.Errorf("its header claims more than %d bytes", MaxPlainSize)
)

// IsCompressed reports whether a decrypted value is compressed.
func IsCompressed(value []byte) bool { return bytes.HasPrefix(value, []byte(magic)) }

// PlainSize returns the size of a value before compression, without decompressing it.
// known is false if the value is damaged. An encrypted value counts as plain.
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

// DictionaryID returns the trained dictionary of a compressed value. It returns false if
// the value is plain, damaged or uses the generic dictionary.
func DictionaryID(value []byte) (uint32, bool) {
	header, err := parse(value)
	return header.dictionary, err == nil && generic(header.dictionary) == nil
}

// header begins a compressed value.
type header struct {
	dictionary uint32
	plain      uint64 // size before compression
	size       int    // of the frame's header
}

func parse(value []byte) (header, error) {
	frame, found := bytes.CutPrefix(value, []byte(magic))
	if !found {
		return header{}, errNoMagic
	}
	var h zstd.Header
	if err := h.Decode(frame); err != nil {
		return header{}, fmt.Errorf("%w: %w", errDamaged, err)
	}
	// All frames of this package have these.
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
	// Types of blocks: uncompressed, and one repeated byte.
	blockRaw, blockRLE = 0, 1
	// maxBlock is the size of any other block after decompression.
	maxBlock = 128 << 10
)

// walk iterates over the blocks of a compressed value without decompressing them. It
// returns the end of the value, and the maximum size that the blocks can decompress to.
func walk(value []byte, h header) (end int, maxPlain uint64, err error) {
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
			end, maxPlain = end+int(size), maxPlain+uint64(size)
		case blockRLE:
			end, maxPlain = end+1, maxPlain+uint64(size)
		default:
			end, maxPlain = end+int(size), maxPlain+maxBlock
		}
	}
	end += checksumSize
	if len(value) < end {
		return 0, 0, fmt.Errorf("%w: it ends too early", errDamaged)
	}
	return end, maxPlain, nil
}

// checkSize checks that the blocks of a value can decompress to the size in its header,
// before that much memory is allocated, and that nothing follows them.
func checkSize(value []byte, h header) error {
	end, maxPlain, err := walk(value, h)
	switch {
	case err != nil:
		return err
	case end != len(value):
		return fmt.Errorf("%w: %d bytes follow it", errDamaged, len(value)-end)
	case maxPlain < h.plain:
		return fmt.Errorf("%w: its header claims %d bytes, its blocks hold at most %d", errDamaged, h.plain, maxPlain)
	}
	return nil
}

// Decode decompresses a decrypted value. A plain value is returned as is. dictionary
// returns the content of a trained dictionary.
func Decode(data []byte, dictionary func(id uint32) ([]byte, error)) ([]byte, error) {
	if !IsCompressed(data) {
		return data, nil
	}
	h, err := parse(data)
	if err != nil {
		return nil, err
	}
	d := generic(h.dictionary)
	if d == nil {
		content, err := dictionary(h.dictionary)
		if err != nil {
			return nil, fmt.Errorf("get dictionary %d: %w", h.dictionary, err)
		}
		if d, err = parseDictionary(h.dictionary, content); err != nil {
			return nil, fmt.Errorf("dictionary %d: %w", h.dictionary, err)
		}
	}
	return decompress(d, data, h)
}

// Trim removes the newline that etcdctl prints after a compressed value.
func Trim(printed []byte) ([]byte, error) {
	h, err := parse(printed)
	if err != nil {
		return nil, err
	}
	if value, found := bytes.CutSuffix(printed, []byte("\n")); found && checkSize(value, h) == nil {
		return value, nil
	}
	return printed, checkSize(printed, h)
}

// TrimDictionary is Trim for the dictionary with an ID, which it verifies.
func TrimDictionary(id uint32, printed []byte) ([]byte, error) {
	_, err := parseDictionary(id, printed)
	if err == nil {
		return printed, nil
	}
	if content, found := bytes.CutSuffix(printed, []byte("\n")); found {
		if _, err := parseDictionary(id, content); err == nil {
			return content, nil
		}
	}
	return nil, err
}
