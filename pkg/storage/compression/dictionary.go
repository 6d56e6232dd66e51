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

// dictionary is text that values may refer to. It never changes.
type dictionary struct {
	// id is what values say. Dictionaries of different resources may have the same.
	id      uint32
	sum     [sha256.Size]byte
	content []byte
}

const (
	// genericID1 and those that may follow are of dictionaries that are part of
	// annex. Two bytes are enough for them.
	genericID1 uint32 = 1<<15 + 1

	// firstTrainedID is above all of those; four bytes are needed for the others.
	firstTrainedID uint32 = 1 << 16
	lastTrainedID  uint32 = 1<<31 - 1
)

// generic1 has what objects of Kubernetes have in common. Values are read with it
// for ever: a better one gets another ID.
//
//go:embed generic-1.txt
var generic1 []byte

// newestGeneric is what values are compressed with where there is nothing better.
var newestGeneric = &dictionary{id: genericID1, sum: sha256.Sum256(generic1), content: generic1}

// generic returns the dictionary of an ID that is part of annex, or nil.
func generic(id uint32) *dictionary {
	if id == genericID1 {
		return newestGeneric
	}
	return nil
}

// trained makes a dictionary of content, whose ID follows from that.
func trained(content []byte) *dictionary {
	sum := sha256.Sum256(content)
	id := binary.BigEndian.Uint32(sum[:]) & lastTrainedID
	if id < firstTrainedID {
		id |= 1 << 30
	}
	return &dictionary{id: id, sum: sum, content: content}
}

// parseDictionary checks that content is that of the dictionary with an ID.
func parseDictionary(id uint32, content []byte) (*dictionary, error) {
	d := trained(content)
	if d.id != id {
		return nil, fmt.Errorf("it is damaged, or another: its content is that of dictionary %d", d.id)
	}
	return d, nil
}

// dictionaryName is the last part of a dictionary's key.
func dictionaryName(id uint32) string { return strconv.FormatUint(uint64(id), 10) }

func parseDictionaryName(name string) (uint32, error) {
	id, err := strconv.ParseUint(name, 10, 32)
	if err != nil || uint32(id) < firstTrainedID || uint32(id) > lastTrainedID {
		return 0, fmt.Errorf("%q is not the ID of a dictionary", name)
	}
	return uint32(id), nil
}
