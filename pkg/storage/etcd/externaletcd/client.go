// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package externaletcd

import (
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net/url"
	"slices"
	"sync"
	"time"

	grpcprom "github.com/grpc-ecosystem/go-grpc-middleware/providers/prometheus"
	"github.com/prometheus/client_golang/prometheus"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	oteltrace "go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/tracing"
)

// The API server's own values: a connection that a firewall dropped in silence is
// noticed within 40 seconds.
const (
	keepAliveTime    = 30 * time.Second
	keepAliveTimeout = 10 * time.Second
)

// reconnect bounds the time until an etcd that is reachable again is used. gRPC's own backoff grows
// to two minutes.
var reconnect = grpc.ConnectParams{
	Backoff:           backoff.Config{BaseDelay: 200 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second},
	MinConnectTimeout: 10 * time.Second,
}

// NewClient returns a client of the etcd, and with the credentials, that the flags of
// the API server name. It does not wait for a connection.
func NewClient(config storagebackend.TransportConfig) (*clientv3.Client, error) {
	tlsConfig, err := TLS(config)
	if err != nil {
		return nil, err
	}
	client, err := Dial(config.ServerList, tlsConfig, config.TracerProvider)
	if err != nil {
		return nil, fmt.Errorf("--etcd-servers: %w", err)
	}
	return client, nil
}

// Dial returns a client, which connects in the background. It does not log, because all errors
// are returned. It has the metrics and traces of upstream's own clients.
func Dial(endpoints []string, tlsConfig *tls.Config, tracer oteltrace.TracerProvider) (*clientv3.Client, error) {
	switch {
	case tlsConfig != nil:
		tlsConfig = tlsConfig.Clone() // the client adds to it
	case slices.ContainsFunc(endpoints, isHTTPS):
		tlsConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	measured := clientMetrics()
	client, err := clientv3.New(clientv3.Config{
		Endpoints:            endpoints,
		TLS:                  tlsConfig,
		DialKeepAliveTime:    keepAliveTime,
		DialKeepAliveTimeout: keepAliveTimeout,
		// Only etcd limits the size of requests. Responses have no limit.
		MaxCallSendMsgSize: math.MaxInt32,
		MaxCallRecvMsgSize: math.MaxInt32,
		DialOptions: []grpc.DialOption{
			grpc.WithConnectParams(reconnect),
			grpc.WithChainUnaryInterceptor(measured.UnaryClientInterceptor()),
			grpc.WithChainStreamInterceptor(measured.StreamClientInterceptor()),
			grpc.WithStatsHandler(otelgrpc.NewClientHandler(traces(tracer)...)),
		},
		Logger: zap.NewNop(),
	})
	if err != nil {
		return nil, fmt.Errorf("create a client: %w", err)
	}
	return client, nil
}

// clientMetrics are upstream's, which it registers but does not export.
var clientMetrics = sync.OnceValue(func() *grpcprom.ClientMetrics {
	made := grpcprom.NewClientMetrics()
	var taken prometheus.AlreadyRegisteredError
	if err := legacyregistry.Registerer().Register(made); errors.As(err, &taken) {
		if upstream, ok := taken.ExistingCollector.(*grpcprom.ClientMetrics); ok {
			return upstream
		}
	}
	return made
})

// traces returns the options that trace requests to etcd.
func traces(tracer oteltrace.TracerProvider) []otelgrpc.Option {
	options := []otelgrpc.Option{
		otelgrpc.WithMessageEvents(otelgrpc.ReceivedEvents, otelgrpc.SentEvents),
		otelgrpc.WithPropagators(tracing.Propagators()),
	}
	if tracer != nil {
		options = append(options, otelgrpc.WithTracerProvider(tracer))
	}
	return options
}

func isHTTPS(endpoint string) bool {
	u, err := url.Parse(endpoint)
	return err == nil && u.Scheme == "https"
}
