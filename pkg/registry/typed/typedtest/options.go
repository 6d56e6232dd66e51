// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package typedtest lets the tests of registries run over a real etcd.
package typedtest

import (
	"path"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage/etcd3/testserver"
	"k8s.io/apiserver/pkg/storage/storagebackend"
)

// Prefix is the root under which a Storage keeps everything.
const Prefix = "/annex"

// Storage is an etcd of the test's own. It is a generic.RESTOptionsGetter that
// puts each resource under its plural name, without a watch cache.
type Storage struct {
	// Client reads what is really stored.
	Client *clientv3.Client

	config *storagebackend.Config
}

// NewStorage starts an etcd that lives as long as the test. Objects are encoded
// by codec, which must also decode into the hub version.
func NewStorage(t testing.TB, codec runtime.Codec) *Storage {
	t.Helper()
	client := testserver.RunEtcd(t, nil)
	config := storagebackend.NewDefaultConfig(Prefix, codec)
	config.Transport.ServerList = client.Endpoints()
	// Nothing in a test lives long enough to need compaction.
	config.CompactionInterval = 0
	return &Storage{Client: client.Client, config: config}
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

// Key is the etcd key of an object, given the segments after the root.
func (s *Storage) Key(segments ...string) string {
	return path.Join(append([]string{Prefix}, segments...)...)
}

// Stored returns what etcd holds under the key of an object, nil if nothing.
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
