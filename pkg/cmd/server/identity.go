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
	if o.Generic.ExternalHost != "" {
		wanted.ExtraNames = append(wanted.ExtraNames, o.Generic.ExternalHost)
	}
	files, err := pki.Ensure(dir.PKIDir(), wanted)
	if err != nil {
		return nil, fmt.Errorf("--data-dir: %w", err)
	}
	if o.Serving.OwnCertificate() {
		o.Serving.ServerCert.CertKey.CertFile = files.ServingCert
		o.Serving.ServerCert.CertKey.KeyFile = files.ServingKey
	}
	return &identity{files: files, renewer: pki.NewRenewer(dir.PKIDir(), wanted)}, nil
}

// CAFile is the certificate of annex's own authority.
func (i *identity) CAFile() string { return i.files.CACert }

// Run renews certificates until ctx is done. The server reads them again when
// the files change.
func (i *identity) Run(ctx context.Context) { i.renewer.Run(ctx) }
