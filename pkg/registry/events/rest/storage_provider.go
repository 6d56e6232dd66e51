// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rest maps the resources of events.k8s.io to their REST storage.
package rest

import (
	"time"

	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
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
	events, err := event.NewStorage(p.Scheme, getter, p.TTL)
	if err != nil {
		return genericapiserver.APIGroupInfo{}, err
	}
	return p.GroupInfo(eventsv1.SchemeGroupVersion, map[string]rest.Storage{"events": events}), nil
}
