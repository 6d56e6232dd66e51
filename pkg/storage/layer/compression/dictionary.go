// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package compression

import (
	"crypto/sha256"
	_ "embed"
	"encoding/binary"
	"fmt"
	"strconv"
)

// Dictionary compresses similar values. It is immutable.
type Dictionary struct {
	// id is in the header of values. Dictionaries of different resources may collide.
	id      uint32
	sum     [sha256.Size]byte
	content []byte
}

const (
	// genericID1 is the first generic dictionary. Two bytes encode its ID.
	genericID1 uint32 = 1<<15 + 1

	// Four bytes encode the IDs of trained dictionaries.
	firstTrainedID uint32 = 1 << 16
	lastTrainedID  uint32 = 1<<31 - 1
)

// generic1 never changes, because stored values need it. A better one gets another ID.
//
//go:embed generic-1.txt
var generic1 []byte

var newestGeneric = &Dictionary{id: genericID1, sum: sha256.Sum256(generic1), content: generic1}

// Generic returns the generic dictionary.
func Generic() *Dictionary { return newestGeneric }

// Is reports whether both are the same dictionary, or nil.
func (d *Dictionary) Is(other *Dictionary) bool {
	if d == nil || other == nil {
		return d == other
	}
	return d.sum == other.sum
}

// generic returns the generic dictionary with an ID, or nil.
func generic(id uint32) *Dictionary {
	if id == genericID1 {
		return newestGeneric
	}
	return nil
}

// trained returns the dictionary of a content, from which its ID is derived.
func trained(content []byte) *Dictionary {
	sum := sha256.Sum256(content)
	id := binary.BigEndian.Uint32(sum[:]) & lastTrainedID
	if id < firstTrainedID {
		id |= 1 << 30
	}
	return &Dictionary{id: id, sum: sum, content: content}
}

// parseDictionary verifies the content against the ID.
func parseDictionary(id uint32, content []byte) (*Dictionary, error) {
	d := trained(content)
	if d.id != id {
		return nil, fmt.Errorf("it is damaged or a different one: its content is that of dictionary %d", d.id)
	}
	return d, nil
}

// dictionaryName is the last segment of the key.
func dictionaryName(id uint32) string { return strconv.FormatUint(uint64(id), 10) }

func parseDictionaryName(name string) (uint32, error) {
	id, err := strconv.ParseUint(name, 10, 32)
	if err != nil || uint32(id) < firstTrainedID || uint32(id) > lastTrainedID {
		return 0, fmt.Errorf("%q is not the ID of a dictionary", name)
	}
	return uint32(id), nil
}
