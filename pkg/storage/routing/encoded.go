// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
)

// encodedStorage is lazyStorage that reads encoded or packed objects.
type encodedStorage struct{ *lazyStorage }

var _ storage.Interface = encodedStorage{}

// Packed returns storage that reads the Packed objects of a resource for which Config.Packed is true.
func Packed(of storage.Interface) (storage.Interface, error) {
	lazy, ok := of.(*lazyStorage)
	if !ok || !lazy.config.packed {
		return nil, fmt.Errorf("read packed objects from a %T: it has none", of)
	}
	return encodedStorage{lazy}, nil
}

// Get implements storage.Interface.
func (s encodedStorage) Get(ctx context.Context, key string, options storage.GetOptions, out runtime.Object) error {
	return s.get(ctx, options, func(b *backend) error { return b.encoded.Get(ctx, key, options, out) })
}

// GetList implements storage.Interface.
func (s encodedStorage) GetList(ctx context.Context, key string, options storage.ListOptions, list runtime.Object) error {
	return s.getList(ctx, options, list, func(b *backend, options storage.ListOptions) error { return b.encoded.GetList(ctx, key, options, list) })
}

// Watch implements storage.Interface.
func (s encodedStorage) Watch(ctx context.Context, key string, options storage.ListOptions) (watch.Interface, error) {
	return s.watch(ctx, options, func(b *backend) (watch.Interface, error) { return b.encoded.Watch(ctx, key, options) })
}
