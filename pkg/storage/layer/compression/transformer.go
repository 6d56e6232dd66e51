// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package compression

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/klog/v2"

	"github.com/annex-dev/annex/pkg/storage/layer/writeinfo"
)

var _ value.Transformer = &resource{}

// No codec writes such a value.
var errMagic = errors.New("the plain value begins like a compressed one")

// TransformToStorage compresses data if enabled and worthwhile, then encrypts it.
func (r *resource) TransformToStorage(ctx context.Context, data []byte, dataCtx value.Context) ([]byte, error) {
	if IsCompressed(data) {
		return nil, fmt.Errorf("write %s: %w", dataCtx.AuthenticatedData(), errMagic)
	}
	if r.enabled() {
		compressed, ok, err := r.compress(ctx, data)
		if err != nil {
			return nil, fmt.Errorf("write %s: %w", dataCtx.AuthenticatedData(), err)
		}
		if ok {
			data = compressed
		}
		r.writes.Add(1)
	}
	return r.encryption().TransformToStorage(ctx, data, dataCtx)
}

// TransformFromStorage decrypts and decompresses data. It is stale if it would be written
// differently now, for example with a newer dictionary. No-op updates write stale values.
func (r *resource) TransformFromStorage(ctx context.Context, data []byte, dataCtx value.Context) ([]byte, bool, error) {
	data, stale, err := r.encryption().TransformFromStorage(ctx, data, dataCtx)
	if err != nil {
		return nil, stale, err
	}
	if !IsCompressed(data) {
		// Only updates use stale, and computing it takes longer than the rest of a read.
		if stale || !r.enabled() || !writeinfo.IsUpdate(ctx) {
			return data, stale, nil
		}
		// A value that does not compress is not stale, or every no-op update would be a
		// write.
		_, compresses, err := r.compress(ctx, data)
		return data, compresses && err == nil, nil
	}
	h, err := parse(data)
	if err != nil {
		return nil, stale, fmt.Errorf("read %s: %w", dataCtx.AuthenticatedData(), err)
	}
	d, err := r.dictionary(ctx, h.dictionary)
	if err != nil {
		return nil, stale, fmt.Errorf("read %s: %w", dataCtx.AuthenticatedData(), err)
	}
	plain, err := decompress(d, data, h)
	if err != nil {
		return nil, stale, fmt.Errorf("read %s: %w", dataCtx.AuthenticatedData(), err)
	}
	return plain, stale || !r.enabled() || d.id != r.current(ctx).id, nil
}

// compress returns the compressed data, or false if data stays plain.
func (r *resource) compress(ctx context.Context, data []byte) ([]byte, bool, error) {
	if len(data) < minSize || len(data) > MaxPlainSize {
		return nil, false, nil
	}
	compressed, err := compress(r.current(ctx), data)
	return compressed, err == nil && worthwhile(compressed, data), err
}

// current returns the dictionary for writes. If it cannot be read, the generic one is used,
// so that the write succeeds.
func (r *resource) current(ctx context.Context) *Dictionary {
	d, err := r.dictionaries.current(ctx)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Compressing without the dictionary of the resource", "resource", r.name, "store", r.store, "err", err)
		return newestGeneric
	}
	return d
}

func (r *resource) dictionary(ctx context.Context, id uint32) (*Dictionary, error) {
	if d := generic(id); d != nil {
		return d, nil
	}
	return r.dictionaries.get(ctx, id)
}
