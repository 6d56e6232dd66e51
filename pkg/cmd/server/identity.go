// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"

	"github.com/annex-dev/annex/pkg/aggregated/maincluster"
	"github.com/annex-dev/annex/pkg/aggregated/servingca"
	"github.com/annex-dev/annex/pkg/cmd/server/options"
	"github.com/annex-dev/annex/pkg/datadir"
	"github.com/annex-dev/annex/pkg/pki"
)

// ownServerName is what admin.kubeconfig asks for where annex serves everybody
// else with --tls-cert-file, or with what the main cluster verifies: that
// certificate need not be good for the local address, and its authority may be
// unknown or change. annex answers to this name with a certificate of its own.
const ownServerName = "annex.local-administrator"

// identity is annex's own authority and what it signed, and what annex serves
// with behind a main cluster.
type identity struct {
	dir       string
	wanted    pki.Options
	files     *pki.Files
	published servingca.Source // nil where annex stands alone
	// root is what clients verify annex with, where it stands alone and was told.
	root *rootCA
}

// rootCA follows a file of authorities.
type rootCA struct {
	*dynamiccertificates.DynamicFileCAContent
}

// CABundle are the authorities, in PEM.
func (r *rootCA) CABundle() []byte { return r.CurrentCABundleContent() }

// AddListener has listener called whenever CABundle changes.
func (r *rootCA) AddListener(listener func()) { r.DynamicFileCAContent.AddListener(onChange(listener)) }

// onChange implements dynamiccertificates.Listener.
type onChange func()

// Enqueue is called for each change.
func (f onChange) Enqueue() { f() }

// ensureIdentity makes or checks the certificates in the data directory and,
// unless others are given, serves with them.
func ensureIdentity(o options.CompletedOptions, dir *datadir.Dir) (*identity, error) {
	i := &identity{dir: dir.PKIDir(), wanted: pki.Options{BindAddress: o.Serving.BindAddress}}
	for _, name := range []string{o.Generic.ExternalHost, o.Generic.AdvertiseAddress.String()} {
		if name != "" {
			i.wanted.ExtraNames = append(i.wanted.ExtraNames, name)
		}
	}
	if o.Main.Enabled() || !o.Serving.OwnCertificate() {
		i.wanted.ServerName = ownServerName
	}
	if err := i.ensure(); err != nil {
		return nil, err
	}
	o.Serving.UseOwnCertificate(i.files.ServingCert, i.files.ServingKey, i.wanted.ServerName)
	if err := i.openRoot(o); err != nil {
		return nil, err
	}
	if !o.Main.Enabled() && o.Tokens.OwnKey() {
		key, err := pki.EnsureTokenKey(i.dir)
		if err != nil {
			return nil, fmt.Errorf("--data-dir: %w", err)
		}
		o.Tokens.UseOwnKey(key)
	}
	return i, nil
}

// openRoot finds out what clients verify annex with where it stands alone. A certificate
// that others made does not tell.
func (i *identity) openRoot(o options.CompletedOptions) error {
	file := o.Main.PublishCAFile
	if i.wanted.ServerName == "" {
		file = i.files.CACert
	}
	if o.Main.Enabled() || file == "" {
		return nil
	}
	content, err := dynamiccertificates.NewDynamicCAContentFromFile("root-ca", file)
	if err != nil {
		return fmt.Errorf("--publish-ca-file: %w", err)
	}
	i.root = &rootCA{content}
	return nil
}

func (i *identity) ensure() (err error) {
	if i.files, err = pki.Ensure(i.dir, i.wanted); err != nil {
		return fmt.Errorf("--data-dir: %w", err)
	}
	return nil
}

// UsePublished makes annex serve with what the main cluster verifies it with: a
// certificate of the CA that all replicas share, or --tls-cert-file. It waits for
// the main cluster, and must be called before the serving options are applied.
func (i *identity) UsePublished(ctx context.Context, o options.CompletedOptions, main *maincluster.Cluster) error {
	var err error
	if o.Serving.OwnCertificate() {
		i.published, err = i.openShared(ctx, o.Main, main)
	} else {
		i.published, err = servingca.OpenProvided(servingca.ProvidedConfig{
			CertFile:        o.Serving.ServerCert.CertKey.CertFile,
			KeyFile:         o.Serving.ServerCert.CertKey.KeyFile,
			CAFile:          o.Main.PublishCAFile,
			MainAPIServices: main.APIRegistration.ApiregistrationV1().APIServices(),
			Namespace:       o.Main.PublishService.Namespace,
			Name:            o.Main.PublishService.Name,
			Lifetimes:       o.Main.ServingCA,
		})
	}
	if err != nil {
		return err
	}
	o.Serving.UseCertificate(i.published.ServingCert())
	return nil
}

func (i *identity) openShared(ctx context.Context, o *options.Main, main *maincluster.Cluster) (servingca.Source, error) {
	shared := servingca.NewShared(servingca.SharedConfig{
		Main:            main.Kube,
		MainAPIServices: main.APIRegistration.ApiregistrationV1().APIServices(),
		Namespace:       o.PublishService.Namespace,
		Name:            o.PublishService.Name,
		BindAddress:     i.wanted.BindAddress,
		ExtraNames:      i.wanted.ExtraNames,
		Lifetimes:       o.ServingCA,
	})
	var unusable error
	err := main.Retry(ctx, func(ctx context.Context) error {
		err := shared.Open(ctx)
		if errors.Is(err, servingca.ErrUnusable) {
			// Waiting does not mend it.
			unusable = err
			return nil
		}
		return err
	})
	if err = errors.Join(unusable, err); err != nil {
		return nil, err
	}
	return shared, nil
}

// CAFile is the certificate of annex's own authority.
func (i *identity) CAFile() string { return i.files.CACert }

// CABundle is what the main cluster verifies annex with. There is none, and this
// must not be called, where annex stands alone.
func (i *identity) CABundle() []byte { return i.published.CABundle() }

// AddListener has listener called whenever CABundle changes.
func (i *identity) AddListener(listener func()) { i.published.AddListener(listener) }

// WriteKubeconfig writes the administrator's kubeconfig for the given URL, once
// there is nothing left that could keep annex from serving there, and from then
// on with every renewal.
func (i *identity) WriteKubeconfig(path, url string) error {
	i.wanted.KubeconfigFile, i.wanted.ServerURL = path, url
	return i.ensure()
}

// Run renews certificates until ctx is done. The server takes them up while it
// serves.
func (i *identity) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	if i.published != nil {
		running.Go(func() { i.published.Run(ctx) })
	}
	if i.root != nil {
		running.Go(func() { i.root.Run(ctx, 1) })
	}
	pki.NewRenewer(i.dir, i.wanted).Run(ctx)
}
