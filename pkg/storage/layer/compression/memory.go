// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package compression

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Dictionary compresses values that stay in memory.
type Dictionary dictionary

// Generic returns the generic dictionary.
func Generic() *Dictionary { return (*Dictionary)(newestGeneric) }

// Dictionary returns the dictionary that new values of a resource are compressed with, which is
// the generic one until the resource has its own.
func (m *Manager) Dictionary(ctx context.Context, store string, name schema.GroupResource, kv clientv3.KV) *Dictionary {
	m.mu.Lock()
	found := m.resources[resourceKey{store, name, kv}]
	m.mu.Unlock()
	if found == nil {
		return Generic()
	}
	return (*Dictionary)(found.current(ctx))
}

// Is reports whether both are the same dictionary, or nil.
func (d *Dictionary) Is(other *Dictionary) bool {
	if d == nil || other == nil {
		return d == other
	}
	return d.sum == other.sum
}

// Compress returns the compressed data, or false if that is hardly shorter.
func (d *Dictionary) Compress(data []byte) (compressed []byte, ok bool, err error) {
	if len(data) < minSize || len(data) > MaxPlainSize {
		return nil, false, nil
	}
	value, err := compress((*dictionary)(d), data)
	if err != nil || !worthwhile(value, data) {
		return nil, false, err
	}
	return value[len(magic):], true, nil
}

// Decompress appends the data of a compressed value to a buffer.
func (d *Dictionary) Decompress(buffer, compressed []byte) ([]byte, error) {
	decoder, err := decoders.take((*dictionary)(d))
	if err != nil {
		return buffer, fmt.Errorf("decompress with dictionary %d: %w", d.id, err)
	}
	before := len(buffer)
	result, err := decoder.DecodeAll(compressed, buffer)
	// A decoder retains its last result.
	if len(result)-before <= maxRetained {
		decoders.put(decoder, (*dictionary)(d))
	} else {
		decoders.drop()
	}
	if err != nil {
		return buffer, fmt.Errorf("%w: %w", errDamaged, err)
	}
	return result, nil
}
