// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package login

import (
	"context"
	"errors"

	"github.com/spf13/pflag"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apiserver/pkg/storage/storagebackend"

	"github.com/annex-dev/annex/pkg/storage/etcd/externaletcd"
)

// Etcd selects an etcd to connect to directly. The zero value means none.
type Etcd struct{ storagebackend.TransportConfig }

// AddFlags adds the flags, with the names that annex serve has. What describes the etcd in a
// sentence.
func (o *Etcd) AddFlags(fs *pflag.FlagSet, what string) {
	fs.StringSliceVar(&o.ServerList, "etcd-servers", o.ServerList, what)
	fs.StringVar(&o.TrustedCAFile, "etcd-cafile", o.TrustedCAFile, "The CA of that etcd's certificates.")
	fs.StringVar(&o.CertFile, "etcd-certfile", o.CertFile, "The client certificate for that etcd.")
	fs.StringVar(&o.KeyFile, "etcd-keyfile", o.KeyFile, "The key of the client certificate.")
}

// Given reports whether an etcd is selected.
func (o *Etcd) Given() bool { return len(o.ServerList) > 0 }

// Validate rejects certificates without --etcd-servers.
func (o *Etcd) Validate() error {
	if !o.Given() && (o.TrustedCAFile != "" || o.CertFile != "" || o.KeyFile != "") {
		return errors.New("--etcd-cafile, --etcd-certfile and --etcd-keyfile are for --etcd-servers")
	}
	return nil
}

// Connect checks that etcd can be used and returns a client.
func (o *Etcd) Connect(ctx context.Context) (*clientv3.Client, error) {
	if err := externaletcd.Check(ctx, o.TransportConfig); err != nil {
		return nil, err
	}
	return externaletcd.NewClient(o.TransportConfig)
}
