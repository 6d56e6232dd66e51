// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"go.uber.org/zap"
	"k8s.io/apiserver/pkg/features"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	"k8s.io/apiserver/pkg/storage/etcd3"
	storagetesting "k8s.io/apiserver/pkg/storage/testing"
	"k8s.io/apiserver/pkg/storage/value"

	"github.com/annex-dev/annex/pkg/storage/revision"
)

// buildOfParts builds the same storage by hand, for what needs something put between
// its parts: a shift of revisions, a recorder of requests, or a transformer whose
// errors are not taken for corrupt objects.
func buildOfParts(t *testing.T, subject *subject, etcdOptions *genericoptions.EtcdOptions, s shape) {
	t.Helper()
	client, err := kubernetes.New(clientv3.Config{Endpoints: etcdOptions.StorageConfig.Transport.ServerList, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	plain := client
	client = revision.Client(client, subject.offset)
	if client != plain {
		t.Cleanup(func() { client.Close() })
	}
	subject.recorder = storagetesting.NewKubernetesRecorder(client.Kubernetes)
	client.KV = storagetesting.NewKVRecorder(client.KV, subject.recorder)
	client.Kubernetes = subject.recorder

	compactor := etcd3.StartCompactorPerEndpoint(plain.Client, etcdOptions.StorageConfig.CompactionInterval)
	t.Cleanup(compactor.Stop)
	versioner := storage.APIObjectVersioner{}
	var transformer value.Transformer = subject.transformer
	decoder := etcd3.NewDefaultDecoder(subject.codec, versioner)
	if !s.parts && enabled(features.AllowUnsafeMalformedObjectDeletion) {
		transformer, decoder = etcd3.WithCorruptObjErrorHandlingTransformer(transformer), etcd3.WithCorruptObjErrorHandlingDecoder(decoder)
	}
	raw, err := etcd3.New(client, revision.Compactor(compactor, subject.offset), subject.codec, newPod, newPodList, etcdOptions.StorageConfig.Prefix, resourcePrefix, pods,
		transformer, etcdOptions.StorageConfig.LeaseManagerConfig, decoder, versioner)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(raw.Close)
	subject.Interface = etcd3.NewStoreWithUnsafeCorruptObjectDeletion(raw, pods)
	if !subject.cached {
		return
	}
	triggers, indexers := s.indexes()
	watchCache, err := cacher.NewCacherFromConfig(cacher.Config{
		Storage:             raw,
		Versioner:           versioner,
		GroupResource:       pods,
		EventsHistoryWindow: etcdOptions.StorageConfig.EventsHistoryWindow,
		ResourcePrefix:      resourcePrefix,
		KeyFunc:             s.keyFunc(),
		NewFunc:             newPod,
		NewListFunc:         newPodList,
		GetAttrsFunc:        podAttrs,
		IndexerFuncs:        triggers,
		Indexers:            indexers,
		Codec:               subject.codec,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(watchCache.Stop)
	delegator := cacher.NewCacheDelegator(watchCache, raw)
	t.Cleanup(delegator.Stop)
	subject.Interface = delegator
}
