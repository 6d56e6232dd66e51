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

// ownServerName is what admin.kubeconfig asks for where --tls-cert-file is set:
// that certificate need not be good for the local address, nor is its authority
// known. annex answers to this name with a certificate of its own.
const ownServerName = "annex.local-administrator"

// identity is annex's own authority and what it signed.
type identity struct {
	files   *pki.Files
	renewer *pki.Renewer
}

// ensureIdentity makes or checks the certificates in the data directory and,
// unless others are given, serves with them.
func ensureIdentity(o options.CompletedOptions, dir *datadir.Dir) (*identity, error) {
	wanted := pki.Options{
		BindAddress:    o.Serving.BindAddress,
		KubeconfigFile: dir.AdminKubeconfig(),
		ServerURL:      o.Serving.URL(),
	}
	for _, name := range []string{o.Generic.ExternalHost, o.Generic.AdvertiseAddress.String()} {
		if name != "" {
			wanted.ExtraNames = append(wanted.ExtraNames, name)
		}
	}
	if !o.Serving.OwnCertificate() {
		wanted.ServerName = ownServerName
	}
	files, err := pki.Ensure(dir.PKIDir(), wanted)
	if err != nil {
		return nil, fmt.Errorf("--data-dir: %w", err)
	}
	o.Serving.UseOwnCertificate(files.ServingCert, files.ServingKey, wanted.ServerName)
	return &identity{files: files, renewer: pki.NewRenewer(dir.PKIDir(), wanted)}, nil
}

// CAFile is the certificate of annex's own authority.
func (i *identity) CAFile() string { return i.files.CACert }

// Run renews certificates until ctx is done. The server reads them again when
// the files change.
func (i *identity) Run(ctx context.Context) { i.renewer.Run(ctx) }
