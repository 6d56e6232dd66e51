// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package externaletcd

import (
	"crypto/tls"
	"fmt"
	"math"
	"net/url"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/component-base/tracing"
)

// The API server's own values: a connection that a firewall dropped in silence is
// noticed within 40 seconds.
const (
	keepAliveTime    = 30 * time.Second
	keepAliveTimeout = 10 * time.Second
)

// NewClient returns a client of the same etcd, with the same credentials, as the
// API server will use for config. It does not wait for a connection. The client is
// silent: whatever fails, its caller is told.
func NewClient(config storagebackend.TransportConfig) (*clientv3.Client, error) {
	tlsConfig, err := loadTLS(config)
	if err != nil {
		return nil, err
	}
	if tlsConfig == nil && slices.ContainsFunc(config.ServerList, isHTTPS) {
		tlsConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints:            config.ServerList,
		TLS:                  tlsConfig,
		DialKeepAliveTime:    keepAliveTime,
		DialKeepAliveTimeout: keepAliveTimeout,
		// etcd alone says what is too large for it, and nothing of ours limits what
		// it may answer.
		MaxCallSendMsgSize: math.MaxInt32,
		MaxCallRecvMsgSize: math.MaxInt32,
		DialOptions:        []grpc.DialOption{grpc.WithStatsHandler(otelgrpc.NewClientHandler(traces(config)...))},
		Logger:             zap.NewNop(),
	})
	if err != nil {
		return nil, fmt.Errorf("--etcd-servers: making a client: %w", err)
	}
	return client, nil
}

// traces has requests to etcd appear in the traces of what they are made for.
func traces(config storagebackend.TransportConfig) []otelgrpc.Option {
	options := []otelgrpc.Option{otelgrpc.WithPropagators(tracing.Propagators())}
	if config.TracerProvider != nil {
		options = append(options, otelgrpc.WithTracerProvider(config.TracerProvider))
	}
	return options
}

func isHTTPS(endpoint string) bool {
	u, err := url.Parse(endpoint)
	return err == nil && u.Scheme == "https"
}
