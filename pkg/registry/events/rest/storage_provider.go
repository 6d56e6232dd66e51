// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rest maps the resources of events.k8s.io to their REST storage.
package rest

import (
	"time"

	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apiserver/pkg/registry/generic"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"github.com/annex-dev/annex/pkg/registry/core/event"
	"github.com/annex-dev/annex/pkg/registry/typed"
)

// StorageProvider creates the REST storage of events.k8s.io.
type StorageProvider struct {
	typed.Serialization

	// TTL is how long events are kept after their last write.
	TTL time.Duration
}

// NewRESTStorage implements apiserver.StorageProvider.
func (p StorageProvider) NewRESTStorage(getter generic.RESTOptionsGetter) (genericapiserver.APIGroupInfo, error) {
	return p.NewGroup(eventsv1.SchemeGroupVersion, getter, event.Resource(p.Scheme, p.TTL))
}
