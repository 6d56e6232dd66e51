// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/informers"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/apiserver"
	"github.com/annex-dev/annex/pkg/cmd/server/options"
	"github.com/annex-dev/annex/pkg/controller"
	"github.com/annex-dev/annex/pkg/leader"
	"github.com/annex-dev/annex/pkg/pki"
	standalonecontrollers "github.com/annex-dev/annex/pkg/standalone"
	"github.com/annex-dev/annex/pkg/standalone/authorization/rbac"
)

// standaloneLease is the Lease that the replica with the controllers holds.
const standaloneLease = "annex-controllers"

// standalone is the mode of a server of its own: it serves the Kubernetes kinds that
// authentication, authorization and admission read.
type standalone struct {
	// root verifies annex's serving certificate; nil if the authority is unknown.
	root *rootCA
}

func (m *standalone) adminServerName(o options.CompletedOptions) string {
	if o.Serving.OwnCertificate() {
		return ""
	}
	return ownServerName
}

func (m *standalone) prepareServing(_ context.Context, o options.CompletedOptions, identity *identity) error {
	file := o.Main.PublishCAFile
	if identity.wanted.ServerName == "" {
		file = identity.CAFile() // annex serves a certificate of its own
	}
	// The authority of a certificate that others issued is unknown without the flag.
	if file != "" {
		content, err := dynamiccertificates.NewDynamicCAContentFromFile("root-ca", file)
		if err != nil {
			return fmt.Errorf("--publish-ca-file: %w", err)
		}
		m.root = &rootCA{content}
	}
	if !o.Tokens.OwnKey() {
		return nil
	}
	key, err := pki.EnsureTokenKey(identity.dir)
	if err != nil {
		return fmt.Errorf("--data-dir: %w", err)
	}
	o.Tokens.UseOwnKey(key)
	return nil
}

func (m *standalone) kubernetes(own *clients) *kubernetesCluster {
	return &kubernetesCluster{
		kube: own.kube, dynamic: own.dynamic, informers: informers.NewSharedInformerFactory(own.kube, informerResync),
	}
}

func (m *standalone) applyTo(_ context.Context, o options.CompletedOptions, config *apiserver.Config, kinds *kubernetesCluster, identity *identity) error {
	generic, extra := config.Generic, &config.Extra
	extra.Groups = apiserver.AllGroups()
	extra.ServiceResolver = apiserver.NoServices
	extra.WebhookCredentials = loopbackWebhookCredentials(generic)

	authenticators := options.Authenticators{OwnCAFile: identity.CAFile(), TokenCacheTTL: o.Main.Reviews.TokenCacheTTL}
	if err := o.Tokens.ApplyTo(generic, extra, kinds.kube, kinds.informers, &authenticators); err != nil {
		return err
	}
	issuers, err := o.Authentication.ApplyTo(generic, authenticators)
	if err != nil {
		return err
	}
	// Readiness waits for its informers, as for all others.
	roles, err := rbac.New(kinds.informers.Rbac().V1())
	if err != nil {
		return fmt.Errorf("watch roles and bindings: %w", err)
	}
	authorizer, err := o.Authorization.ApplyTo(generic, roles, o.Main.Reviews)
	if err != nil {
		return err
	}
	extra.Runnables = append(extra.Runnables, issuers.Run, authorizer.Run)
	return nil
}

// loopbackWebhookCredentials are annex's own for a webhook at kubernetes.default.svc,
// which is annex itself.
func loopbackWebhookCredentials(generic *genericapiserver.Config) webhook.AuthenticationInfoResolverWrapper {
	return webhook.NewDefaultAuthenticationInfoResolverWrapper(nil, nil, generic.LoopbackClientConfig, generic.TracerProvider)
}

func (m *standalone) controllers(o options.CompletedOptions, config *apiserver.Config, chain *apiserver.Chain) controller.Mode {
	mode := &standalonecontrollers.Controllers{
		Informers: config.Extra.Informers,
		StoredObjects: func(crd *apiextensionsv1.CustomResourceDefinition, in string) (standalonecontrollers.StoredObjects, error) {
			return chain.StoredObjects(crd, in)
		},
		CollectGarbage: o.Etcd.EnableGarbageCollection,
	}
	if m.root != nil {
		mode.RootCA = m.root
	}
	return mode
}

func (m *standalone) election(_ options.CompletedOptions, config controller.Config, store *storage) (leader.Config, bool) {
	return leader.Config{
		Leases: config.AnnexKube.CoordinationV1(), Namespace: hostingv1alpha1.NamespaceAnnexSystem, Name: standaloneLease,
	}, store.Shared()
}

func (m *standalone) run(ctx context.Context) {
	if m.root != nil {
		m.root.Run(ctx, 1)
	}
}

// rootCA reloads a file of authorities when it changes.
type rootCA struct {
	*dynamiccertificates.DynamicFileCAContent
}

// CABundle returns the authorities, in PEM.
func (r *rootCA) CABundle() []byte { return r.CurrentCABundleContent() }

// AddListener registers a function that is called after each change of CABundle.
func (r *rootCA) AddListener(listener func()) { r.DynamicFileCAContent.AddListener(onChange(listener)) }

// onChange implements dynamiccertificates.Listener.
type onChange func()

// Enqueue is called for each change.
func (f onChange) Enqueue() { f() }
