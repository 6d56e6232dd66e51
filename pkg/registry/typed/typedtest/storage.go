// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package typedtest tests the REST storage of resources in a real etcd.
package typedtest

import (
	"path"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/storage/etcd3/testserver"
	"k8s.io/apiserver/pkg/storage/storagebackend"

	"github.com/annex-dev/annex/pkg/apis/scheme"
	"github.com/annex-dev/annex/pkg/registry/typed"
)

// Prefix is the prefix of all keys of a Storage.
const Prefix = "/annex"

// Storage is the etcd of a test. It is a generic.RESTOptionsGetter that stores each resource
// under its plural name, without a watch cache.
type Storage struct {
	// Client reads etcd directly.
	Client *clientv3.Client

	t      testing.TB
	config *storagebackend.Config
}

// NewStorage starts an etcd for the duration of the test, with objects of a version.
func NewStorage(t testing.TB, version schema.GroupVersion) *Storage {
	t.Helper()
	client := testserver.RunEtcd(t, nil)
	config := storagebackend.NewDefaultConfig(Prefix, scheme.Codecs.LegacyCodec(version))
	config.Transport.ServerList = client.Endpoints()
	config.CompactionInterval = 0
	return &Storage{Client: client.Client, t: t, config: config}
}

// Endpoints returns the endpoints of a group with one version, in this etcd.
func (s *Storage) Endpoints(info genericapiserver.APIGroupInfo, err error) typed.Endpoints {
	s.t.Helper()
	if err != nil {
		s.t.Fatalf("create the storage of a group: %v", err)
	}
	endpoints := typed.Endpoints(info.VersionedResourcesStorageMap[info.PrioritizedVersions[0].Version])
	for _, endpoint := range endpoints {
		s.t.Cleanup(endpoint.Destroy)
	}
	return endpoints
}

// GetRESTOptions implements generic.RESTOptionsGetter.
func (s *Storage) GetRESTOptions(resource schema.GroupResource, _ runtime.Object) (generic.RESTOptions, error) {
	return generic.RESTOptions{
		StorageConfig:           s.config.ForResource(resource),
		Decorator:               generic.UndecoratedStorage,
		EnableGarbageCollection: true,
		DeleteCollectionWorkers: 1,
		ResourcePrefix:          resource.Resource,
	}, nil
}

// Key returns the etcd key of an object, from the segments after the prefix.
func (s *Storage) Key(segments ...string) string {
	return path.Join(append([]string{Prefix}, segments...)...)
}

// Stored returns the value of an object in etcd, nil if there is none.
func (s *Storage) Stored(t testing.TB, segments ...string) []byte {
	t.Helper()
	key := s.Key(segments...)
	response, err := s.Client.Get(t.Context(), key)
	if err != nil {
		t.Fatalf("read %s from etcd: %v", key, err)
	}
	if len(response.Kvs) == 0 {
		return nil
	}
	return response.Kvs[0].Value
}
