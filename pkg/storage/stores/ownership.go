// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package stores

import (
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
)

// Mark says whose the keys below a prefix are, and which data they are.
type Mark struct {
	// Store is the name of the Store.
	Store string `json:"store"`
	// UID is that of the Store, or one made up for the Store "default".
	UID types.UID `json:"uid"`
	// Epoch is random, and different after each claim and each adoption of the prefix.
	// It is empty in marks of releases that did not have it.
	Epoch string `json:"epoch,omitempty"`
	// Format says which releases of annex may use the keys.
	Format Format `json:"format"`
}

// Format is a note in each Store for releases of annex that do not know a format
// which came after them. Formats count from 1.
type Format struct {
	// MinReader is the lowest format that a release must know to read what is there.
	MinReader int `json:"minReader"`
	// MinWriter is the lowest format that a release must know to write there.
	MinWriter int `json:"minWriter"`
}

// currentFormat is the format that this release knows and writes.
const currentFormat = 1

func newMark(store string, uid types.UID) Mark {
	return Mark{
		Store: store, UID: uid, Epoch: string(uuid.NewUUID()),
		Format: Format{MinReader: currentFormat, MinWriter: currentFormat},
	}
}

// encode is the mark as etcd has it.
func (m Mark) encode() (string, error) {
	value, err := json.Marshal(m)
	if err != nil {
		return "", fmt.Errorf("encode the mark of store %s: %w", m.Store, err)
	}
	return string(value), nil
}

// parseMark reads a mark. One that was written in part only is an error.
func parseMark(value []byte) (*Mark, error) {
	m := &Mark{}
	if err := json.Unmarshal(value, m); err != nil {
		return nil, err
	}
	if m.Store == "" {
		return nil, errors.New("it names no store")
	}
	return m, nil
}

// isNewer reports whether the format is of a release after this one.
func (f Format) isNewer() bool { return f.MinReader > currentFormat || f.MinWriter > currentFormat }
