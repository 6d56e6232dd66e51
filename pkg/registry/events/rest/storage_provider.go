// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rest is the map of what the group events.k8s.io serves: the events of
// the core group, under another name.
package rest

import (
	"fmt"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"github.com/annex-dev/annex/pkg/registry/core/event"
	"github.com/annex-dev/annex/pkg/registry/typed"
)

// StorageProvider makes the REST storage of events.k8s.io.
type StorageProvider struct {
	typed.Serialization

	// TTL is how long an event is kept after its last write.
	TTL time.Duration
}

// NewRESTStorage returns the group.
func (p StorageProvider) NewRESTStorage(getter generic.RESTOptionsGetter) (genericapiserver.APIGroupInfo, error) {
	info := p.GroupInfo(eventsv1.GroupName)
	events, err := event.NewStorage(p.Scheme, getter, p.TTL)
	if err != nil {
		return genericapiserver.APIGroupInfo{}, fmt.Errorf("serve %s: %w", eventsv1.SchemeGroupVersion, err)
	}
	info.VersionedResourcesStorageMap[eventsv1.SchemeGroupVersion.Version] = map[string]rest.Storage{"events": events}
	return info, nil
}
