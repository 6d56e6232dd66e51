// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package externaletcd checks at the start whether an external etcd can be used, and creates
// clients of it.
//
// The API server itself would retry for ever and report only that it is not ready. Check reports
// in one line which endpoint is down, refuses the TLS credentials, or is too old.
package externaletcd

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/klog/v2"
)

// MinimumVersion is the first etcd whose progress notifications on request can
// be relied on: before, they could overtake events (etcd issues 15220, 17507).
// The API server serves consistent lists and streaming lists from its watch
// cache with them, and without them sends every list to etcd. 3.4.31 has the
// fix too, but the 3.4 line is no longer maintained.
const MinimumVersion = "3.5.13"

// Timeout bounds the check of each endpoint, as upstream's client bounds a connection attempt.
// An etcd on a busy machine may take seconds for its first answer.
const Timeout = 20 * time.Second

var minimumVersion = version.MustParseSemantic(MinimumVersion)

// errTooOld is an error that no other endpoint makes up for: the API server uses features of
// etcd only if all endpoints have them.
var errTooOld = errors.New("too old")

// Check requests the status of every endpoint, concurrently. It returns nil if at least one can be
// used and none is too old, and logs the problems of the others. The error names the flag and
// the endpoint.
func Check(ctx context.Context, config storagebackend.TransportConfig) error {
	if len(config.ServerList) == 0 {
		return errors.New("--etcd-servers: no endpoint given")
	}
	tlsConfig, err := TLS(config)
	if err != nil {
		return err
	}
	errs := make([]error, len(config.ServerList))
	var wg sync.WaitGroup
	for i, endpoint := range config.ServerList {
		wg.Go(func() {
			if err := checkEndpoint(ctx, endpoint, config, tlsConfig); err != nil {
				errs[i] = fmt.Errorf("--etcd-servers: %s: %w", endpoint, err)
			}
		})
	}
	wg.Wait()
	return judge(ctx, errs)
}

func judge(ctx context.Context, errs []error) error {
	usable := false
	var first error
	for _, err := range errs {
		if errors.Is(err, errTooOld) {
			return err
		}
		if err == nil {
			usable = true
		} else if first == nil {
			first = err
		}
	}
	if !usable {
		if others := len(errs) - 1; others > 0 {
			return fmt.Errorf("%w (and none of %d other endpoints can be used)", first, others)
		}
		return first
	}
	for _, err := range errs {
		if err != nil {
			klog.FromContext(ctx).Error(err, "An etcd endpoint cannot be used, continuing with the others")
		}
	}
	return nil
}

// TLS returns the TLS configuration from the flags; nil if there is none.
func TLS(config storagebackend.TransportConfig) (*tls.Config, error) {
	info := transport.TLSInfo{
		CertFile:      config.CertFile,
		KeyFile:       config.KeyFile,
		TrustedCAFile: config.TrustedCAFile,
	}
	if info.CertFile == "" && info.KeyFile == "" && info.TrustedCAFile == "" {
		return nil, nil
	}
	// With a file without a certificate, each connection would fail.
	if info.TrustedCAFile != "" {
		raw, err := os.ReadFile(info.TrustedCAFile)
		if err != nil {
			return nil, fmt.Errorf("--etcd-cafile: %w", err)
		}
		if !x509.NewCertPool().AppendCertsFromPEM(raw) {
			return nil, fmt.Errorf("--etcd-cafile %s: contains no PEM certificate", info.TrustedCAFile)
		}
	}
	tlsConfig, err := info.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("--etcd-certfile %s, --etcd-keyfile %s: %w", info.CertFile, info.KeyFile, err)
	}
	return tlsConfig, nil
}

func checkEndpoint(ctx context.Context, endpoint string, config storagebackend.TransportConfig, tlsConfig *tls.Config) error {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	if err := probe(ctx, endpoint, tlsConfig); err != nil {
		return explain(err, Timeout)
	}
	config.ServerList = []string{endpoint}
	client, err := NewClient(config)
	if err != nil {
		return err
	}
	defer client.Close() // nothing is lost if that fails
	response, err := client.Status(ctx, endpoint)
	if err != nil {
		return explain(err, Timeout)
	}
	if err := checkStatus(ctx, endpoint, response); err != nil {
		return err
	}
	return CheckTransactions(ctx, client)
}

// CheckVersion returns an error for a version of etcd that annex cannot use.
func CheckVersion(found string) error {
	parsed, err := version.ParseSemantic(found)
	if err != nil {
		return fmt.Errorf("has the version %q: %w", found, err)
	}
	if parsed.LessThan(minimumVersion) {
		return fmt.Errorf("etcd %s is %w, annex needs %s or newer", found, errTooOld, MinimumVersion)
	}
	return nil
}

func checkStatus(ctx context.Context, endpoint string, response *clientv3.StatusResponse) error {
	if err := CheckVersion(response.Version); err != nil {
		return err
	}
	if response.Header.GetClusterId() == 0 {
		return notEtcd("its status names no cluster")
	}
	if response.Leader == 0 {
		return errors.New("its cluster has no leader")
	}
	for _, problem := range response.Errors {
		klog.FromContext(ctx).Info("Etcd reports a problem", "endpoint", endpoint, "problem", problem)
	}
	return nil
}
