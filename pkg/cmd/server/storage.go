// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.opentelemetry.io/otel/trace"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/cmd/server/options"
	"github.com/annex-dev/annex/pkg/datadir"
	annexinformers "github.com/annex-dev/annex/pkg/generated/informers/externalversions"
	"github.com/annex-dev/annex/pkg/storage/backup"
	"github.com/annex-dev/annex/pkg/storage/etcd/embeddedetcd"
	_ "github.com/annex-dev/annex/pkg/storage/etcd/etcdclientlog" // quiet by default
	"github.com/annex-dev/annex/pkg/storage/etcd/externaletcd"
	"github.com/annex-dev/annex/pkg/storage/etcd/stores"
	"github.com/annex-dev/annex/pkg/storage/etcd/usage"
	"github.com/annex-dev/annex/pkg/storage/layer/compression"
	"github.com/annex-dev/annex/pkg/storage/routing"
)

// storage is the etcd that holds the objects, the embedded one or an external one.
type storage struct {
	// Stores has this etcd as the Store `default`, and the etcds of Store objects.
	Stores *stores.Pool
	// Usage counts the objects and bytes of each resource in all Stores.
	Usage *usage.Aggregator

	// endpoints are the URLs of the etcd.
	endpoints []string
	prefix    string
	client    *clientv3.Client     // for what is done once, at the start
	shared    *clientv3.Client     // for what is kept there
	embedded  *embeddedetcd.Server // nil when the etcd is another's
	disk      func() (stores.Disk, error)
}

// startStorage starts the embedded etcd, or checks the external one of --etcd-servers.
// ctx must outlive the servers that use it. readSecret reads the certificates of other
// Stores.
func startStorage(ctx context.Context, o *options.Etcd, dir *datadir.Dir, traces trace.TracerProvider, readSecret stores.ReadSecret) (*storage, error) {
	s := &storage{prefix: o.StorageConfig.Prefix, Usage: usage.NewAggregator()}
	recorded, err := recordedEtcd(o, dir)
	if err != nil {
		return nil, err
	}
	if o.Embedded() {
		err = s.startEmbedded(ctx, o, dir)
	} else {
		err = s.openExternal(ctx, o)
	}
	if err != nil {
		return nil, err
	}
	err = s.checkRestored(ctx)
	if err == nil {
		err = s.checkEtcd(ctx, dir, recorded)
	}
	if err == nil {
		err = s.openStores(ctx, o, traces, readSecret)
	}
	if err == nil {
		err = s.recordEtcd(dir)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// openStores opens the Store `default` of the etcd, with a shared client. The embedded
// etcd is used like an external one, through its socket.
func (s *storage) openStores(ctx context.Context, o *options.Etcd, traces trace.TracerProvider, readSecret stores.ReadSecret) error {
	transport := o.Served(s.endpoints).StorageConfig.Transport
	transport.TracerProvider = traces
	var err error
	if s.shared, err = externaletcd.NewClient(transport); err != nil {
		return err
	}
	tlsConfig, err := externaletcd.TLS(transport)
	if err != nil {
		return err
	}
	s.Stores, err = stores.Open(ctx, stores.Config{
		Default: stores.Default{
			Client: s.shared, Endpoints: s.endpoints, TLS: tlsConfig, Prefix: s.prefix, Embedded: s.embedded != nil, Disk: s.disk,
		},
		CompactionInterval: o.StorageConfig.CompactionInterval,
		Tracer:             traces,
		ReadSecret:         readSecret,
		Usage:              s.Usage,
		PlainSize:          compression.PlainSize,
	})
	return err
}

// Store returns a Store by its name.
func (s *storage) Store(name string) (routing.Store, error) { return s.Stores.Get(name) }

func (s *storage) startEmbedded(ctx context.Context, o *options.Etcd, dir *datadir.Dir) error {
	socket, err := dir.EtcdSocket()
	if err != nil {
		return fmt.Errorf("--data-dir: %w", err)
	}
	if err := dir.CheckRestored(); err != nil {
		return err
	}
	s.disk = func() (stores.Disk, error) {
		free, size, err := o.Disk(dir.Path())
		return stores.Disk{Free: free, Size: size}, err
	}
	quota := o.QuotaBackendBytes
	if volume, err := s.disk(); err == nil && quota == 0 {
		quota = volume.Quota(embeddedetcd.DatabaseSize(dir.EtcdDir()), embeddedetcd.DefaultQuotaBytes)
	}
	s.embedded, err = embeddedetcd.Start(ctx, embeddedetcd.Config{
		Dir:             dir.EtcdDir(),
		SocketPath:      socket,
		QuotaBytes:      quota,
		MaxRequestBytes: o.MaxEtcdRequestBytes(),
		UnsafeNoFsync:   o.UnsafeNoFsync,
	})
	if err != nil {
		return fmt.Errorf("--data-dir: %w", err)
	}
	s.client = s.embedded.Client()
	s.endpoints = []string{s.embedded.Endpoint()}
	return nil
}

func (s *storage) openExternal(ctx context.Context, o *options.Etcd) error {
	transport := o.StorageConfig.Transport
	if err := externaletcd.Check(ctx, transport); err != nil {
		return err
	}
	var err error
	if s.client, err = externaletcd.NewClient(transport); err != nil {
		return err
	}
	s.endpoints = transport.ServerList
	return nil
}

// checkRestored returns an error for an etcd that has only a part of a backup.
func (s *storage) checkRestored(ctx context.Context) error {
	unfinished, err := backup.Unfinished(ctx, s.client, s.prefix)
	if err == nil && unfinished != "" {
		err = fmt.Errorf("--etcd-servers: the restore of a backup (%s) did not come to its end: run the same `annex restore` again", unfinished)
	}
	return err
}

// Shared reports whether other replicas may keep their objects in the same etcd.
func (s *storage) Shared() bool { return s.embedded == nil }

// Spec describes the etcd as the Store `default` does.
func (s *storage) Spec() hostingv1alpha1.StoreSpec {
	if s.embedded != nil {
		return hostingv1alpha1.StoreSpec{Embedded: &hostingv1alpha1.EmbeddedStore{}}
	}
	return hostingv1alpha1.StoreSpec{Etcd: &hostingv1alpha1.EtcdStore{Endpoints: s.endpoints, KeyPrefix: s.prefix}}
}

// Failed receives an error when the embedded etcd stops by itself. An external etcd
// never fails for good: its clients retry.
func (s *storage) Failed() <-chan error {
	if s.embedded == nil {
		return nil
	}
	return s.embedded.Err()
}

// Close stops the embedded etcd, or closes the client of the external one. Everything
// that uses it must have stopped.
func (s *storage) Close() error {
	if s.Stores != nil {
		s.Stores.Close()
	}
	var err error
	if s.shared != nil {
		err = s.shared.Close()
	}
	if s.embedded == nil {
		return errors.Join(err, s.client.Close())
	}
	return errors.Join(err, s.embedded.Close())
}

// secretReader reads the certificates of Stores from Secrets of the cluster that serves
// the Kubernetes kinds. It reads one at a time, so that annex needs no permission to
// list Secrets there.
func secretReader(kube kubernetes.Interface) stores.ReadSecret {
	return func(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
		return kube.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
	}
}

// watchStores requests the informer of Stores, and returns a function that connects to
// those until its context is done.
func (s *storage) watchStores(informers annexinformers.SharedInformerFactory) func(context.Context) {
	informer := informers.Hosting().V1alpha1().Stores().Informer()
	return func(ctx context.Context) {
		if err := s.Stores.Run(ctx, informer); err != nil {
			klog.FromContext(ctx).Error(err, "Stores are not watched")
		}
	}
}
