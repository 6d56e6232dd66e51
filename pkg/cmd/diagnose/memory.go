// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"encoding/json"
	"fmt"
	"math/bits"
)

// Sizes of Go's values in bytes, on 64 bits.
const (
	word        = 8
	stringSize  = 2 * word
	sliceSize   = 3 * word
	valueSize   = 2 * word // of an interface
	mapSize     = 6 * word
	tableSize   = 5 * word
	groupSlots  = 8
	groupSize   = word + groupSlots*(stringSize+valueSize)
	sizeClasses = 8 // sizes of the allocator per power of two
)

// decodedSize returns the size of an object as kube-apiserver's watch cache holds it: maps, slices and strings, each of them
// allocated. It differs widely by the object: many short fields take 20 times their JSON, a long string as much as its JSON.
func decodedSize(object json.RawMessage) (int64, error) {
	var value any
	if err := json.Unmarshal(object, &value); err != nil {
		return 0, fmt.Errorf("decode an object: %w", err)
	}
	return sizeOf(value), nil
}

// sizeOf returns what a value takes beside the interface that refers to it.
func sizeOf(value any) int64 {
	switch value := value.(type) {
	case map[string]any:
		size := mapSize + tablesSize(len(value))
		for key, element := range value {
			size += allocated(int64(len(key))) + sizeOf(element)
		}
		return size
	case []any:
		size := allocated(sliceSize) + valueSize*doubled(len(value))
		for _, element := range value {
			size += sizeOf(element)
		}
		return size
	case string:
		return stringSize + allocated(int64(len(value)))
	case float64:
		return 2 * word // the allocator packs two of them, of which one is often gone
	default: // true, false and null are not allocated
		return 0
	}
}

// tablesSize returns the size of a map's slots. A map with more than one group is at most 7/8 full, and its size doubles.
func tablesSize(length int) int64 {
	if length == 0 {
		return 0
	}
	if length <= groupSlots {
		return allocated(groupSize)
	}
	slots := 2 * groupSlots
	for length > slots*7/8 {
		slots *= 2
	}
	return word + allocated(tableSize) + allocated(int64(slots/groupSlots*groupSize))
}

// doubled returns the capacity of a slice to which elements were appended one after another.
func doubled(length int) int64 {
	if length == 0 {
		return 0
	}
	return int64(1) << bits.Len(uint(length-1))
}

// allocated returns the size class of an allocation: an eighth of a power of two.
func allocated(size int64) int64 {
	if size <= 0 {
		return 0
	}
	step := max(word, int64(1)<<bits.Len64(uint64(size-1))/(2*sizeClasses))
	return (size + step - 1) / step * step
}
