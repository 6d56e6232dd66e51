// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package compression

import (
	"bytes"
	"fmt"
)

// Decode turns back a value that is not encrypted, or not any more. What is not
// compressed is returned as it is. dictionary returns the content of the dictionary
// with an ID, which annex's own are never asked for.
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

// Trim returns a compressed value without the newline that etcdctl prints behind it.
func Trim(printed []byte) ([]byte, error) {
	end, err := length(printed)
	if err != nil {
		return nil, err
	}
	if behind := printed[end:]; len(behind) > 0 && string(behind) != "\n" {
		return nil, fmt.Errorf("%w: %d bytes follow it", errDamaged, len(behind))
	}
	return printed[:end], nil
}

// TrimDictionary does the same for the dictionary with an ID, and makes sure that it
// is that.
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
