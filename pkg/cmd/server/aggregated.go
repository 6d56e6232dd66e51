// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime"
	genericapiserver "k8s.io/apiserver/pkg/server"

	aggregatedcontrollers "github.com/annex-dev/annex/pkg/aggregated"
	"github.com/annex-dev/annex/pkg/aggregated/discovery"
	"github.com/annex-dev/annex/pkg/aggregated/maincluster"
	"github.com/annex-dev/annex/pkg/aggregated/servingca"
	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/apiserver"
	"github.com/annex-dev/annex/pkg/cmd/server/options"
	"github.com/annex-dev/annex/pkg/controller"
	"github.com/annex-dev/annex/pkg/leader"
	"github.com/annex-dev/annex/pkg/storage/routing"
)

// aggregated is the mode behind a main cluster, which authenticates and authorizes
// callers, serves the Kubernetes kinds, and sends requests for annex's resources here.
type aggregated struct {
	*maincluster.Cluster
	// serving is the certificate that the main cluster verifies.
	serving servingca.Source
}

func newAggregated(ctx context.Context, o *options.Main) (*aggregated, error) {
	main, err := maincluster.Open(o.Kubeconfig)
	if err != nil {
		return nil, err
	}
	return &aggregated{Cluster: main}, main.Wait(ctx)
}

// adminServerName is never empty: the authority of the published certificate may be
// unknown to the administrator, or change.
func (m *aggregated) adminServerName(options.CompletedOptions) string { return ownServerName }

// prepareServing selects the certificate that the main cluster verifies: one of the CA
// that all replicas share, or --tls-cert-file.
func (m *aggregated) prepareServing(ctx context.Context, o options.CompletedOptions, identity *identity) error {
	var err error
	config := servingca.Config{
		MainAPIServices: m.APIRegistration.ApiregistrationV1().APIServices(),
		Namespace:       o.Main.PublishService.Namespace,
		Name:            o.Main.PublishService.Name,
		Lifetimes:       o.Main.ServingCA,
	}
	if o.Serving.OwnCertificate() {
		m.serving, err = m.openShared(ctx, servingca.SharedConfig{
			Config: config, Main: m.Kube, BindAddress: identity.wanted.BindAddress, ExtraNames: identity.wanted.ExtraNames,
		})
	} else {
		files := o.Serving.ServerCert.CertKey
		m.serving, err = servingca.OpenProvided(servingca.ProvidedConfig{
			Config: config, CertFile: files.CertFile, KeyFile: files.KeyFile, CAFile: o.Main.PublishCAFile,
		})
	}
	if err != nil {
		return err
	}
	o.Serving.UseCertificate(m.serving.ServingCert())
	return nil
}

func (m *aggregated) openShared(ctx context.Context, config servingca.SharedConfig) (servingca.Source, error) {
	shared := servingca.NewShared(config)
	var unusable error
	err := m.Retry(ctx, func(ctx context.Context) error {
		err := shared.Open(ctx)
		if errors.Is(err, servingca.ErrUnusable) {
			unusable = err // a retry cannot succeed
			return nil
		}
		return err
	})
	if err = errors.Join(unusable, err); err != nil {
		return nil, err
	}
	return shared, nil
}

func (m *aggregated) kubernetes(*clients) *kubernetesCluster {
	return &kubernetesCluster{kube: m.Kube, dynamic: m.Dynamic, informers: m.Informers}
}

func (m *aggregated) applyTo(ctx context.Context, o options.CompletedOptions, config *apiserver.Config, _ *kubernetesCluster, identity *identity) error {
	generic, extra := config.Generic, &config.Extra
	extra.Groups = apiserver.OwnGroups()
	extra.StorageLayers.OwnTokens = true
	extra.ServiceResolver = m.ServiceResolver()
	extra.WebhookCredentials = m.WebhookCredentials(generic.TracerProvider)

	delegated, err := m.Authenticator(ctx, generic, o.Main.Reviews)
	if err != nil {
		return err
	}
	issuers, err := o.Authentication.ApplyTo(generic, options.Authenticators{
		OwnCAFile: identity.CAFile(), TokenCacheTTL: o.Main.Reviews.TokenCacheTTL, Delegated: delegated,
	})
	if err != nil {
		return err
	}
	if generic.Authorization.Authorizer, err = m.Authorizer(o.Main.Reviews, options.OpenPaths); err != nil {
		return err
	}
	apis, err := m.APIs(o.Main.PublishService)
	if err != nil {
		return err
	}
	extra.Runnables = append(extra.Runnables, issuers.Run, m.Monitor)
	extra.PostStartHooks = map[string]genericapiserver.PostStartHookFunc{
		"annex-main-apis": func(hook genericapiserver.PostStartHookContext) error {
			go apis.Run(hook)
			return nil
		},
	}
	extra.WrapAPIs = discovery.Filter(apis)
	extra.WrapAll = responses(o.Main.PublishService)
	return o.Admission.RequireKinds(ctx, m.Cluster)
}

// responses sets the header that names annex's Service in each response, returns 503 for requests that
// the main cluster could not decide on, and lets writes be repeated in the main cluster at once when a
// group has been returned to it.
func responses(service maincluster.Service) func(http.Handler, runtime.NegotiatedSerializer) http.Handler {
	value := hostingv1alpha1.PublishedBy(service.Namespace, service.Name)
	return func(next http.Handler, serializer runtime.NegotiatedSerializer) http.Handler {
		next = maincluster.WithUnavailableStatus(routing.WithRepeats(next), serializer)
		return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			w.Header().Set(hostingv1alpha1.PublishedByHeader, value)
			next.ServeHTTP(w, req)
		})
	}
}

func (m *aggregated) controllers(o options.CompletedOptions, _ *apiserver.Config, _ *apiserver.Chain) controller.Mode {
	return &aggregatedcontrollers.Controllers{
		Login:           m.Config,
		Kube:            m.Kube,
		Dynamic:         m.Dynamic,
		APIExtensions:   m.APIExtensions,
		APIRegistration: m.APIRegistration,
		ServedBy:        m.ServedBy,
		Discovered:      m.Discovered,
		PublishService:  o.Main.PublishService,
		CABundle:        m.serving,
	}
}

func (m *aggregated) election(o options.CompletedOptions, _ controller.Config, _ *storage) (leader.Config, bool) {
	return leader.Config{
		Leases: m.Kube.CoordinationV1(), Namespace: o.Main.PublishService.Namespace, Name: o.Main.PublishService.Lease(),
	}, true
}

func (m *aggregated) run(ctx context.Context) { m.serving.Run(ctx) }
