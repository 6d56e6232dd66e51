// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package core is the REST storage of the core group, one file per resource, and of
// events.k8s.io, which serves the same events.
package core

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/registry/generic"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"github.com/annex-dev/annex/pkg/registry/typed"
	"github.com/annex-dev/annex/pkg/standalone/serviceaccount"
)

// NewGroup creates the storage of the core group. Events expire eventTTL after their last write.
func NewGroup(getter generic.RESTOptionsGetter, eventTTL time.Duration, tokens serviceaccount.TokenConfig) (genericapiserver.APIGroupInfo, error) {
	endpoints, err := typed.NewEndpoints(getter, namespaces, configMaps, secrets, serviceAccounts, events(eventTTL), resourceQuotas)
	if err != nil {
		return genericapiserver.APIGroupInfo{}, err
	}
	store := endpoints.REST("namespaces")
	endpoints["namespaces"] = &namespaceREST{namespaceVerbs: store, store: store}
	endpoints["namespaces/status"] = store.Subresource(namespaceStatusStrategy{mainNamespaceStrategy})
	endpoints["namespaces/finalize"] = store.Subresource(namespaceFinalizeStrategy{mainNamespaceStrategy})
	endpoints["serviceaccounts/token"] = newTokenREST(tokens, endpoints.REST("serviceaccounts"), endpoints.REST("secrets"))
	return endpoints.Group(corev1.SchemeGroupVersion), nil
}
