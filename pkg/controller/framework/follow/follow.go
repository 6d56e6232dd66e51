// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package follow has a controller told of the objects it depends on.
package follow

import (
	"fmt"

	"k8s.io/client-go/tools/cache"
)

// Source is objects that a controller follows.
type Source struct {
	// What they are, for errors.
	What     string
	Informer cache.SharedIndexInformer
	Handler  cache.ResourceEventHandler
}

// All adds the handler of each source to its informer. What it returns is done once
// the handlers have been told of everything that there was.
func All(sources ...Source) ([]cache.DoneChecker, error) {
	synced := make([]cache.DoneChecker, 0, len(sources))
	for _, source := range sources {
		registration, err := source.Informer.AddEventHandler(source.Handler)
		if err != nil {
			return nil, fmt.Errorf("watch %s: %w", source.What, err)
		}
		synced = append(synced, registration.HasSyncedChecker())
	}
	return synced, nil
}
