// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package objectsize

import (
	"bytes"

	"go.yaml.in/yaml/v2"
)

// ExpandedYAML returns about how many bytes the values in a document of YAML have with its aliases
// replaced, which may grow with the square of the document. The decoder limits their number only, and
// lets values share text that is written once for each of them as JSON.
func ExpandedYAML(text []byte) int64 {
	var decoded any
	if !bytes.ContainsRune(text, '&') || !bytes.ContainsRune(text, '*') || yaml.Unmarshal(text, &decoded) != nil {
		return int64(len(text)) // without aliases, or invalid
	}
	return bytesOf(decoded)
}

func bytesOf(value any) int64 {
	total := int64(1)
	switch value := value.(type) {
	case string:
		total += int64(len(value))
	case []any:
		for _, item := range value {
			total += bytesOf(item)
		}
	case map[any]any:
		for key, item := range value {
			total += bytesOf(key) + bytesOf(item)
		}
	}
	return total
}
