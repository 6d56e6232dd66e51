// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package retentionaccess refuses retentions of objects that their author cannot delete: annex
// deletes them with its own rights.
package retentionaccess

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

// PluginName is the name in --enable-admission-plugins.
const PluginName = "RetentionAccess"

// Plugin checks changes of the retention of a HostedResource.
type Plugin struct {
	*admission.Handler
	authorizer authorizer.UnconditionalAuthorizer
}

var (
	_ admission.ValidationInterface            = &Plugin{}
	_ initializer.WantsUnconditionalAuthorizer = &Plugin{}
)

// New returns the plugin, which needs an authorizer.
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

// Validate refuses a new or changed retention unless the caller can delete the objects in all
// namespaces. A dry run is no exception, because its result has names of objects.
func (p *Plugin) Validate(ctx context.Context, attributes admission.Attributes, _ admission.ObjectInterfaces) error {
	if attributes.GetResource().GroupResource() != v1alpha1.Resource("hostedresources") || attributes.GetSubresource() != "" {
		return nil
	}
	hosted, ok := attributes.GetObject().(*v1alpha1.HostedResource)
	if !ok {
		return apierrors.NewInternalError(fmt.Errorf("expected a HostedResource, got %T", attributes.GetObject()))
	}
	if hosted.Spec.Retention == nil {
		return nil
	}
	if old, ok := attributes.GetOldObject().(*v1alpha1.HostedResource); ok && equality.Semantic.DeepEqual(old.Spec.Retention, hosted.Spec.Retention) {
		return nil
	}
	resource := schema.ParseGroupResource(hosted.Name)
	decision, _, err := p.authorizer.Authorize(ctx, authorizer.AttributesRecord{
		User: attributes.GetUserInfo(), Verb: "delete", ResourceRequest: true, APIGroup: resource.Group, APIVersion: "*", Resource: resource.Resource,
	})
	if decision == authorizer.DecisionAllow {
		return nil
	}
	if err != nil {
		return apierrors.NewInternalError(fmt.Errorf("authorize the deletion of %s: %w", resource, err))
	}
	return admission.NewForbidden(attributes, fmt.Errorf("annex would delete objects for spec.retention, and user %q cannot delete resource %q in API group %q in all namespaces",
		attributes.GetUserInfo().GetName(), resource.Resource, resource.Group))
}
