// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"github.com/annex-dev/annex/pkg/storage/canonicaljson"
	"github.com/annex-dev/annex/pkg/storage/layer/compression"
)

// text is the JSON of an object, which ends with a newline. With a dictionary data is
// compressed.
type text struct {
	data       string
	dictionary *compression.Dictionary
}

// newText returns a text that is compressed with a dictionary, unless that is nil or the text
// would hardly become shorter.
func newText(json string, dictionary *compression.Dictionary) (*text, error) {
	if dictionary == nil {
		return &text{data: json}, nil
	}
	compressed, ok, err := dictionary.Compress(canonicaljson.BytesOf(json))
	if err != nil || !ok {
		return &text{data: json}, err
	}
	return &text{string(compressed), dictionary}, nil
}

// json returns the JSON.
func (r *record) json() (string, error) {
	t := r.text.Load()
	if t.dictionary == nil {
		return t.data, nil
	}
	json, err := t.dictionary.Decompress(nil, canonicaljson.BytesOf(t.data))
	return canonicaljson.StringOf(json), err
}

// appendJSON appends the JSON to a buffer.
func (o *Object) appendJSON(buffer []byte) ([]byte, error) {
	if o.record != nil {
		if t := o.text.Load(); t.dictionary != nil {
			return t.dictionary.Decompress(buffer, canonicaljson.BytesOf(t.data))
		}
	}
	json, err := o.JSON()
	return append(buffer, json...), err
}
