// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package stores

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/storage/etcd/keys"
)

// Mark is the record of ownership that annex keeps below a prefix.
type Mark struct {
	// Store is the name of the Store.
	Store string `json:"store"`
	// UID is the UID of the Store, or a random one for the Store "default".
	UID types.UID `json:"uid"`
	// Epoch is random, and different after each claim or adoption of the prefix. It is empty in
	// marks of early releases.
	Epoch string `json:"epoch,omitempty"`
	// Format restricts the releases of annex that may use the keys.
	Format Format `json:"format"`
}

// Format protects the data of a Store from releases that do not know their format. Formats count
// from 1.
type Format struct {
	// MinReader is the minimum format that a release must know to read the data.
	MinReader int `json:"minReader"`
	// MinWriter is the minimum format that a release must know to write.
	MinWriter int `json:"minWriter"`
}

// currentFormat is the format of this release.
const currentFormat = 1

func newMark(store string, uid types.UID) Mark {
	return Mark{
		Store: store, UID: uid, Epoch: string(uuid.NewUUID()),
		Format: Format{MinReader: currentFormat, MinWriter: currentFormat},
	}
}

// encode returns the value that is stored.
func (m Mark) encode() (string, error) {
	value, err := json.Marshal(m)
	if err != nil {
		return "", fmt.Errorf("encode the mark of store %s: %w", m.Store, err)
	}
	return string(value), nil
}

// parseMark parses a stored mark.
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

// DefaultID returns the ID of the objects of the Store "default" below a prefix, from its mark; it
// is empty without one.
func DefaultID(ctx context.Context, etcd clientv3.KV, prefix string) (string, error) {
	found, err := etcd.Get(ctx, keys.Store(prefix))
	if err != nil {
		return "", fmt.Errorf("read the mark of the prefix %s: %w", prefix, err)
	}
	for _, kv := range found.Kvs {
		mark, err := parseMark(kv.Value)
		if err != nil {
			return "", fmt.Errorf("read the mark of the prefix %s: %w", prefix, err)
		}
		if mark.Store == hostingv1alpha1.DefaultStoreName {
			return string(mark.UID), nil
		}
	}
	return "", nil
}

// isNewer reports whether the format is of a later release.
func (f Format) isNewer() bool { return f.MinReader > currentFormat || f.MinWriter > currentFormat }
