// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"os"

	"github.com/annex-dev/annex/pkg/cmd/server/options"
	"github.com/annex-dev/annex/pkg/datadir"
	"github.com/annex-dev/annex/pkg/pki"
)

// ownServerName is what admin.kubeconfig asks for where --tls-cert-file is set:
// that certificate need not be good for the local address, nor is its authority
// known. annex answers to this name with a certificate of its own.
const ownServerName = "annex.local-administrator"

// identity is annex's own authority and what it signed.
type identity struct {
	dir    string
	wanted pki.Options
	files  *pki.Files
}

// ensureIdentity makes or checks the certificates in the data directory and,
// unless others are given, serves with them.
func ensureIdentity(o options.CompletedOptions, dir *datadir.Dir) (*identity, error) {
	i := &identity{dir: dir.PKIDir(), wanted: pki.Options{BindAddress: o.Serving.BindAddress}}
	for _, name := range []string{o.Generic.ExternalHost, o.Generic.AdvertiseAddress.String()} {
		if name != "" {
			i.wanted.ExtraNames = append(i.wanted.ExtraNames, name)
		}
	}
	if o.Main.Enabled() {
		i.wanted.ExtraNames = append(i.wanted.ExtraNames, o.Main.PublishService.ServerName())
	}
	if !o.Serving.OwnCertificate() {
		i.wanted.ServerName = ownServerName
	}
	if err := i.ensure(); err != nil {
		return nil, err
	}
	o.Serving.UseOwnCertificate(i.files.ServingCert, i.files.ServingKey, i.wanted.ServerName)
	return i, nil
}

func (i *identity) ensure() (err error) {
	if i.files, err = pki.Ensure(i.dir, i.wanted); err != nil {
		return fmt.Errorf("--data-dir: %w", err)
	}
	return nil
}

// CAFile is the certificate of annex's own authority.
func (i *identity) CAFile() string { return i.files.CACert }

// CABundle is what the main cluster verifies annex with.
func (i *identity) CABundle() []byte {
	bundle, err := os.ReadFile(i.files.CACert)
	if err != nil {
		return nil
	}
	return bundle
}

// AddListener has changes of CABundle told.
func (i *identity) AddListener(func()) {}

// WriteKubeconfig writes the administrator's kubeconfig for the given URL, once
// there is nothing left that could keep annex from serving there, and from then
// on with every renewal.
func (i *identity) WriteKubeconfig(path, url string) error {
	i.wanted.KubeconfigFile, i.wanted.ServerURL = path, url
	return i.ensure()
}

// Run renews certificates until ctx is done. The server reads them again when
// the files change.
func (i *identity) Run(ctx context.Context) { pki.NewRenewer(i.dir, i.wanted).Run(ctx) }
