// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package storeaccess refuses Stores with which a caller would gain access through annex:
// annex connects to the endpoints of a Store from its own network, with the credentials of
// a Secret that it reads with its own rights.
package storeaccess

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

// PluginName is the name in --enable-admission-plugins.
const PluginName = "StoreAccess"

// The permission for endpoints that --store-endpoints does not list. It is on a resource
// that is not served, so only roles that name it, or wildcards, grant it.
const (
	endpointsVerb        = "use"
	endpointsSubresource = "endpoints"
)

// Plugin checks changes of the endpoints and credentials of a Store.
type Plugin struct {
	*admission.Handler
	authorizer authorizer.UnconditionalAuthorizer
	allowed    Endpoints
}

var (
	_ admission.ValidationInterface            = &Plugin{}
	_ initializer.WantsUnconditionalAuthorizer = &Plugin{}
)

// New returns the plugin, which needs an authorizer and Endpoints.
func New() *Plugin {
	return &Plugin{Handler: admission.NewHandler(admission.Create, admission.Update)}
}

// SetUnconditionalAuthorizer implements initializer.WantsUnconditionalAuthorizer.
func (p *Plugin) SetUnconditionalAuthorizer(authorizer authorizer.UnconditionalAuthorizer) {
	p.authorizer = authorizer
}

// ValidateInitialization implements admission.InitializationValidator.
func (p *Plugin) ValidateInitialization() error {
	if p.authorizer == nil {
		return errors.New("the authorizer is missing")
	}
	return nil
}

// Validate refuses endpoints that the caller may not use, and a Secret that the caller
// cannot read. Messages do not reveal what exists.
func (p *Plugin) Validate(ctx context.Context, attributes admission.Attributes, _ admission.ObjectInterfaces) error {
	if attributes.GetResource().GroupResource() != v1alpha1.Resource("stores") || attributes.GetSubresource() != "" {
		return nil
	}
	store, ok := attributes.GetObject().(*v1alpha1.Store)
	if !ok {
		return apierrors.NewInternalError(fmt.Errorf("expected a Store, got %T", attributes.GetObject()))
	}
	etcd, before := store.Spec.Etcd, &v1alpha1.EtcdStore{}
	if old, ok := attributes.GetOldObject().(*v1alpha1.Store); ok && old.Spec.Etcd != nil {
		before = old.Spec.Etcd
	}
	if etcd == nil || slices.Equal(etcd.Endpoints, before.Endpoints) && equality.Semantic.DeepEqual(etcd.TLS, before.TLS) {
		return nil
	}
	added := slices.DeleteFunc(slices.Clone(etcd.Endpoints), func(endpoint string) bool {
		return slices.Contains(before.Endpoints, endpoint)
	})
	if err := p.checkEndpoints(ctx, attributes, store.Name, added); err != nil {
		return err
	}
	// New endpoints receive the certificate, so they require access to the Secret too.
	return p.checkSecret(ctx, attributes, etcd.TLS)
}

func (p *Plugin) checkEndpoints(ctx context.Context, attributes admission.Attributes, store string, added []string) error {
	for _, endpoint := range added {
		if p.allowed.Contain(endpoint) {
			continue
		}
		if strings.HasPrefix(endpoint, unixScheme) && attributes.GetUserInfo().GetName() != user.APIServerUser {
			return admission.NewForbidden(attributes, fmt.Errorf(
				"the endpoint %s is a socket of the machine that annex runs on: allow it with annex's flag --store-endpoints", endpoint))
		}
		allowed, err := p.authorize(ctx, authorizer.AttributesRecord{
			User: attributes.GetUserInfo(), Verb: endpointsVerb, ResourceRequest: true, Name: store,
			APIGroup: v1alpha1.GroupName, APIVersion: v1alpha1.SchemeGroupVersion.Version, Resource: "stores", Subresource: endpointsSubresource,
		})
		if err != nil {
			return err
		}
		if !allowed {
			return admission.NewForbidden(attributes, fmt.Errorf(
				"the endpoint %s is not in annex's flag --store-endpoints, and user %q cannot %s resource \"stores/%s\" in API group %q",
				endpoint, attributes.GetUserInfo().GetName(), endpointsVerb, endpointsSubresource, v1alpha1.GroupName))
		}
	}
	return nil
}

func (p *Plugin) checkSecret(ctx context.Context, attributes admission.Attributes, tls *v1alpha1.EtcdTLS) error {
	if tls == nil {
		return nil
	}
	allowed, err := p.authorize(ctx, authorizer.AttributesRecord{
		User: attributes.GetUserInfo(), Verb: "get", ResourceRequest: true, Namespace: tls.SecretRef.Namespace, Name: tls.SecretRef.Name,
		APIGroup: corev1.GroupName, APIVersion: corev1.SchemeGroupVersion.Version, Resource: "secrets",
	})
	if err != nil {
		return err
	}
	if !allowed {
		return admission.NewForbidden(attributes, fmt.Errorf(
			"annex would log in with the Secret %s/%s, and user %q cannot get it", tls.SecretRef.Namespace, tls.SecretRef.Name, attributes.GetUserInfo().GetName()))
	}
	return nil
}

func (p *Plugin) authorize(ctx context.Context, attributes authorizer.Attributes) (bool, error) {
	decision, _, err := p.authorizer.Authorize(ctx, attributes)
	if decision != authorizer.DecisionAllow && err != nil {
		return false, apierrors.NewInternalError(fmt.Errorf("authorize %s of %s: %w", attributes.GetVerb(), attributes.GetResource(), err))
	}
	return decision == authorizer.DecisionAllow, nil
}
