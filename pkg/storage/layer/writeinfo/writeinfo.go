// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package writeinfo describes one write to all layers of the storage stack. It is the only
// value that they pass in the context: the layers above upstream's etcd3 storage and those
// below it have no other way to reach each other.
package writeinfo

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/storage"
)

// Info describes the current attempt of a write. Only the goroutine of the write uses it.
type Info struct {
	// Update is set for updates: the object is read to be changed.
	Update bool
	// Status is set for updates of the status, by which controllers report.
	Status bool
	// Terminating is set if the object that is written has a deletion timestamp.
	Terminating bool
	// PlainBytes and StoredBytes are the sizes of the object as it is encoded and as it is
	// stored, 0 before that is known.
	PlainBytes, StoredBytes int
}

type contextKey struct{}

// NewContext returns a context for the write that info describes.
func NewContext(ctx context.Context, info *Info) context.Context {
	return context.WithValue(ctx, contextKey{}, info)
}

// FromContext returns the description of the write, nil if there is none.
func FromContext(ctx context.Context) *Info {
	info, _ := ctx.Value(contextKey{}).(*Info)
	return info
}

// IsUpdate reports whether an object is read to be changed.
func IsUpdate(ctx context.Context) bool {
	info := FromContext(ctx)
	return info != nil && info.Update
}

// Storage describes the writes of a storage to the layers inside of it.
func Storage(inner storage.Interface) storage.Interface { return describing{inner} }

type describing struct{ storage.Interface }

// Create implements storage.Interface.
func (d describing) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	return d.Interface.Create(NewContext(ctx, &Info{}), key, obj, out, ttl)
}

// GuaranteedUpdate implements storage.Interface.
func (d describing) GuaranteedUpdate(
	ctx context.Context, key string, destination runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, update storage.UpdateFunc, cached runtime.Object,
) error {
	ofRequest, found := request.RequestInfoFrom(ctx)
	info := &Info{Update: true, Status: found && ofRequest.Subresource == "status"}
	described := func(input runtime.Object, response storage.ResponseMeta) (runtime.Object, *uint64, error) {
		output, ttl, err := update(input, response)
		if accessor, accessErr := meta.Accessor(output); err == nil && accessErr == nil {
			info.Terminating = accessor.GetDeletionTimestamp() != nil
		}
		return output, ttl, err
	}
	return d.Interface.GuaranteedUpdate(NewContext(ctx, info), key, destination, ignoreNotFound, preconditions, described, cached)
}
