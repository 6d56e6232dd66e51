// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"

	"go.etcd.io/etcd/client/v3/kubernetes"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/apiserver/pkg/storage/storagebackend"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/storage/externaletcd"
	"github.com/annex-dev/annex/pkg/storage/routing"
	"github.com/annex-dev/annex/pkg/storage/usage"
)

// defaultStore is the Store that the command line describes. All resources share its
// client.
type defaultStore struct {
	prefix    string
	client    *kubernetes.Client
	compactor etcd3.Compactor
	usage     *usage.Tracker
	stop      func()
}

var _ routing.Store = &defaultStore{}

func newDefaultStore(config storagebackend.Config) (*defaultStore, error) {
	client, err := externaletcd.NewClient(config.Transport)
	if err != nil {
		return nil, err
	}
	s := &defaultStore{prefix: config.Prefix, client: &kubernetes.Client{Client: client}, stop: func() {}}
	s.client.Kubernetes = s.client
	if config.CompactionInterval > 0 {
		compactor := etcd3.StartCompactorPerEndpoint(client, config.CompactionInterval)
		s.compactor, s.stop = compactor, compactor.Stop
	}
	return s, nil
}

// Name implements routing.Store.
func (s *defaultStore) Name() string { return hostingv1alpha1.DefaultStoreName }

// Prefix implements routing.Store.
func (s *defaultStore) Prefix() string { return s.prefix }

// Client implements routing.Store.
func (s *defaultStore) Client() *kubernetes.Client { return s.client }

// Compactor implements routing.Store.
func (s *defaultStore) Compactor() etcd3.Compactor { return s.compactor }

// Available implements routing.Store.
func (s *defaultStore) Available() error { return nil }

// Usage implements routing.Store.
func (s *defaultStore) Usage() *usage.Tracker { return s.usage }

// Close ends the compactor and the connection.
func (s *defaultStore) Close() error {
	s.stop()
	return s.client.Close()
}

// Store finds a Store by its name.
func (s *storage) Store(name string) (routing.Store, error) {
	if name != hostingv1alpha1.DefaultStoreName {
		return nil, fmt.Errorf("there is no store %q", name)
	}
	return s.shared, nil
}
