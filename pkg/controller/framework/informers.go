// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/cache"
)

// Source is an informer and a controller's handler for its events.
type Source struct {
	// Name is the plural of the objects, for errors.
	Name     string
	Informer cache.SharedIndexInformer
	Handler  cache.ResourceEventHandler
}

// AddEventHandlers adds the handler of each source to its informer. The checkers it
// returns are done once the handlers have received the initial lists.
func AddEventHandlers(sources ...Source) ([]cache.DoneChecker, error) {
	synced := make([]cache.DoneChecker, 0, len(sources))
	for _, source := range sources {
		registration, err := source.Informer.AddEventHandler(source.Handler)
		if err != nil {
			return nil, fmt.Errorf("watch %s: %w", source.Name, err)
		}
		synced = append(synced, registration.HasSyncedChecker())
	}
	return synced, nil
}

// IgnoreNotFound returns nil and no error for an object that does not exist.
func IgnoreNotFound[T any](object *T, err error) (*T, error) {
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return object, err
}
