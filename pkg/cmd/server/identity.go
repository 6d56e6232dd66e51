// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"

	"github.com/annex-dev/annex/pkg/cmd/server/options"
	"github.com/annex-dev/annex/pkg/datadir"
	"github.com/annex-dev/annex/pkg/pki"
)

// ownServerName is the server name in admin.kubeconfig where annex serves a certificate
// that is not its own: that certificate may be invalid for the local address, and its
// authority unknown. annex serves this name with a certificate of its own.
const ownServerName = "annex.local-administrator"

// identity is annex's own certificate authority and the certificates it signed.
type identity struct {
	dir    string
	wanted pki.Options
	files  *pki.Files
}

// ensureIdentity creates or checks the certificates in the data directory and, unless
// others are given, serves with them.
func ensureIdentity(ctx context.Context, o options.CompletedOptions, dir *datadir.Dir, mode mode) (*identity, error) {
	i := &identity{dir: dir.PKIDir(), wanted: pki.Options{BindAddress: o.Serving.BindAddress, ServerName: mode.adminServerName(o)}}
	for _, name := range []string{o.Generic.ExternalHost, o.Generic.AdvertiseAddress.String()} {
		if name != "" {
			i.wanted.ExtraNames = append(i.wanted.ExtraNames, name)
		}
	}
	if err := i.ensure(); err != nil {
		return nil, err
	}
	o.Serving.UseOwnCertificate(i.files.Serving, i.wanted.ServerName)
	return i, mode.prepareServing(ctx, o, i)
}

func (i *identity) ensure() (err error) {
	if i.files, err = pki.Ensure(i.dir, i.wanted); err != nil {
		return fmt.Errorf("--data-dir: %w", err)
	}
	return nil
}

// CAFile is the certificate of annex's own authority.
func (i *identity) CAFile() string { return i.files.CACert }

// WriteKubeconfig writes the administrator's kubeconfig for the given URL, now and with
// every renewal. It is called when nothing can keep annex from serving there.
func (i *identity) WriteKubeconfig(path, url string) error {
	i.wanted.KubeconfigFile, i.wanted.ServerURL = path, url
	return i.ensure()
}

// Run renews certificates until ctx is done. The server reloads them.
func (i *identity) Run(ctx context.Context) { pki.NewRenewer(i.dir, i.wanted).Run(ctx) }
