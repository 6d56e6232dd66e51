// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package decode

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/annex-dev/annex/pkg/storage/compression"
)

// unwrap returns the value that a tool printed: with its key on a line before it, in
// base64, in hexadecimal, or as the JSON of `etcdctl get`. Other text is returned
// unchanged.
func unwrap(printed []byte) ([]byte, error) {
	if value, found, err := fromJSON(printed); found || err != nil {
		return value, err
	}
	_, afterKey, hasKey := bytes.Cut(printed, []byte("\n"))
	if hasKey && bytes.HasPrefix(printed, []byte("/")) && isOurs(afterKey) {
		return afterKey, nil
	}
	for _, value := range encodings(printed) {
		if isOurs(value) {
			return value, nil
		}
	}
	return printed, nil
}

// isOurs reports whether annex certainly wrote a value.
func isOurs(value []byte) bool {
	return compression.IsCompressed(value) || bytes.HasPrefix(value, []byte(encryptedPrefix))
}

// encodings returns the values that text may encode.
func encodings(text []byte) [][]byte {
	// Lines may be wrapped, and etcdctl --hex prints \x before each byte.
	joined := bytes.Join(bytes.Fields(text), nil)
	var values [][]byte
	if value, err := base64.StdEncoding.AppendDecode(nil, joined); err == nil {
		values = append(values, value)
	}
	if value, err := hex.AppendDecode(nil, bytes.ReplaceAll(joined, []byte(`\x`), nil)); err == nil {
		values = append(values, value)
	}
	return values
}

// fromJSON finds the value in what `etcdctl get --write-out json` prints.
func fromJSON(printed []byte) (value []byte, found bool, err error) {
	var answer struct {
		Header struct {
			ClusterID uint64 `json:"cluster_id"`
		} `json:"header"`
		KVs []struct {
			Value []byte `json:"value"`
		} `json:"kvs"`
	}
	isJSON := json.Unmarshal(printed, &answer) == nil
	if !isJSON || answer.Header.ClusterID == 0 {
		return nil, false, nil
	}
	if len(answer.KVs) != 1 {
		return nil, false, fmt.Errorf("etcdctl found %d keys, give one", len(answer.KVs))
	}
	return answer.KVs[0].Value, true, nil
}
