// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/client-go/tools/cache"
)

// shareSpecs makes all states of a CRD in an informer share the spec until that changes. The
// status of a new CRD changes several times, and upstream's handler of custom resources keeps the
// state in which a resource was first requested. Schemas are nearly all of the memory of a CRD.
func shareSpecs(informer cache.SharedIndexInformer) error {
	known := informer.GetIndexer()
	err := informer.SetTransform(func(obj any) (any, error) {
		crd, ok := obj.(*apiextensionsv1.CustomResourceDefinition)
		if !ok {
			return obj, nil
		}
		// An indexer reads memory and cannot fail.
		found, exists, _ := known.GetByKey(crd.Name)
		if !exists {
			return obj, nil
		}
		// The generation changes with the spec.
		if before, ok := found.(*apiextensionsv1.CustomResourceDefinition); ok && before.UID == crd.UID && before.Generation == crd.Generation {
			crd.Spec = before.Spec
		}
		return crd, nil
	})
	if err != nil {
		return fmt.Errorf("share the specs of CRDs: %w", err)
	}
	return nil
}
