// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package front

import (
	"context"

	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"

	"github.com/annex-dev/annex/pkg/storage/watchcache"
)

// Key returns the key of an object in the storage of an Endpoint. The context has the namespace.
func Key(ctx context.Context, of watchcache.Endpoint, name string) (string, error) {
	if isClusterScoped(of) {
		return genericregistry.NoNamespaceKeyFunc(ctx, of.Prefix, name)
	}
	return genericregistry.NamespaceKeyFunc(ctx, of.Prefix, name)
}

// KeyRoot returns what begins the keys of all objects in the namespace of a context, or of all
// objects if it has none.
func KeyRoot(ctx context.Context, of watchcache.Endpoint) string {
	if isClusterScoped(of) {
		return of.Prefix
	}
	return genericregistry.NamespaceKeyRootFunc(ctx, of.Prefix)
}
