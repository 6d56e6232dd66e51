// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package deletionaccess refuses retentions and Migrations of objects that their author cannot
// delete, and Migrations that exempt annex from webhooks that their author cannot change: annex does
// that with its own rights.
package deletionaccess

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
const PluginName = "DeletionAccess"

// Plugin checks changes of the retention of a HostedResource, and of Migrations that delete objects.
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

// Validate refuses a new or changed retention, Rollback or Finalize, unless the caller can delete the
// objects in all namespaces. A dry run is no exception, because its result has names of objects.
func (p *Plugin) Validate(ctx context.Context, attributes admission.Attributes, _ admission.ObjectInterfaces) error {
	if attributes.GetSubresource() != "" {
		return nil
	}
	switch object := attributes.GetObject().(type) {
	case *v1alpha1.HostedResource:
		old, _ := attributes.GetOldObject().(*v1alpha1.HostedResource)
		if object.Spec.Retention == nil || old != nil && equality.Semantic.DeepEqual(old.Spec.Retention, object.Spec.Retention) {
			return nil
		}
		return p.mayDelete(ctx, attributes, "spec.retention", schema.ParseGroupResource(object.Name))
	case *v1alpha1.Migration:
		old, _ := attributes.GetOldObject().(*v1alpha1.Migration)
		if object.Spec.ExemptWebhooks && (old == nil || !old.Spec.ExemptWebhooks) {
			if err := p.mayExempt(ctx, attributes); err != nil {
				return err
			}
		}
		// A Move keeps the main cluster's copy, and needs rights of annex that an administrator grants.
		deletes := object.Spec.Operation == v1alpha1.MigrationRollback || object.Spec.Operation == v1alpha1.MigrationFinalize
		if !deletes || old != nil && equality.Semantic.DeepEqual(old.Spec, object.Spec) {
			return nil
		}
		return p.mayDelete(ctx, attributes, "the Migration", schema.GroupResource{Group: object.Spec.Group, Resource: "*"})
	}
	return nil
}

func (p *Plugin) mayDelete(ctx context.Context, attributes admission.Attributes, why string, resource schema.GroupResource) error {
	return p.may(ctx, attributes, "delete", resource, fmt.Sprintf("annex would delete objects for %s", why))
}

// mayExempt refuses to exempt annex from webhooks and policies, unless the caller can change all of them.
func (p *Plugin) mayExempt(ctx context.Context, attributes admission.Attributes) error {
	all := schema.GroupResource{Group: "admissionregistration.k8s.io", Resource: "*"}
	return p.may(ctx, attributes, "patch", all, "annex would add match conditions to webhooks and policies for the Migration")
}

func (p *Plugin) may(ctx context.Context, attributes admission.Attributes, verb string, resource schema.GroupResource, effect string) error {
	decision, _, err := p.authorizer.Authorize(ctx, authorizer.AttributesRecord{
		User: attributes.GetUserInfo(), Verb: verb, ResourceRequest: true, APIGroup: resource.Group, APIVersion: "*", Resource: resource.Resource,
	})
	if decision == authorizer.DecisionAllow {
		return nil
	}
	if err != nil {
		return apierrors.NewInternalError(fmt.Errorf("authorize to %s %s: %w", verb, resource, err))
	}
	return admission.NewForbidden(attributes, fmt.Errorf("%s, and user %q cannot %s resource %q in API group %q in all namespaces",
		effect, attributes.GetUserInfo().GetName(), verb, resource.Resource, resource.Group))
}
