// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiserver/pkg/storage"
)

// Endpoint is the storage of a served version of a custom resource.
type Endpoint struct {
	// Definition is the CustomResourceDefinition that the storage was created for.
	Definition *apiextensionsv1.CustomResourceDefinition
	Resource   *Resource
	// Storage reads Objects. It does not write.
	Storage storage.Interface
	// Prefix begins all keys.
	Prefix string
}
