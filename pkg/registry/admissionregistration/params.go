// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package admissionregistration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// anything is the wildcard to authorize if a resource, version or group is unknown.
const anything = "*"

var (
	kindPath = field.NewPath("spec", "paramKind")
	refPath  = field.NewPath("spec", "paramRef")
)

// ResourceLister lists the resources of a group version.
type ResourceLister interface {
	ServerResourcesForGroupVersionWithContext(ctx context.Context, groupVersion string) (*metav1.APIResourceList, error)
}

// paramAccess prevents callers from reading objects through a policy that they cannot
// read themselves: expressions can copy parameters to messages.
type paramAccess struct {
	authorizer authorizer.UnconditionalAuthorizer
	resources  ResourceLister
}

// paramsOf returns the kind of the parameters of a policy, nil if it has none.
type paramsOf func(ctx context.Context, policy string) (*admissionregistrationv1.ParamKind, error)

// checkKind requires the caller to have access to all objects of a kind, unless it is
// stored in the policy already.
func (a paramAccess) checkKind(ctx context.Context, kind, stored *admissionregistrationv1.ParamKind) *field.Error {
	if kind == nil || stored != nil && *kind == *stored {
		return nil
	}
	caller, err := callerOf(ctx)
	if err != nil {
		return field.Forbidden(kindPath, err.Error()+" to authorize read access to paramKind resources")
	}
	if caller == nil {
		return nil
	}
	resource, _ := a.resource(ctx, kind) // what is not known must all be allowed
	allowed, err := a.allows(ctx, caller, "get", resource, anything, anything)
	if err != nil {
		return field.Forbidden(kindPath, err.Error())
	}
	if !allowed {
		return field.Forbidden(kindPath, fmt.Sprintf(`user %v must have "get" permission on all objects of the referenced paramKind (kind=%s, apiVersion=%s)`,
			caller, kind.Kind, kind.APIVersion))
	}
	return nil
}

// reference is the policy and the parameters of a binding.
type reference struct {
	policy string
	params *admissionregistrationv1.ParamRef
}

// checkReference requires the caller to have access to the parameters, unless they are
// stored in the binding already.
func (a paramAccess) checkReference(ctx context.Context, ref, stored reference, params paramsOf) *field.Error {
	if ref.params == nil || ref.policy == stored.policy && apiequality.Semantic.DeepEqual(ref.params, stored.params) {
		return nil
	}
	caller, err := callerOf(ctx)
	if err != nil {
		return field.Forbidden(refPath, err.Error()+" to authorize read access to paramRef object")
	}
	if caller == nil {
		return nil
	}
	resource, unknown := a.boundResource(ctx, ref.policy, params)
	verb := "get"
	if ref.params.Name == "" {
		verb = "list"
	}
	// Without a namespace they are read in all namespaces.
	allowed, err := a.allows(ctx, caller, verb, resource, ref.params.Namespace, ref.params.Name)
	switch {
	case err != nil:
		return field.Forbidden(refPath, fmt.Sprintf("failed to authorize request: %v", err))
	case allowed:
		return nil
	case unknown != nil:
		return field.Forbidden(refPath, fmt.Sprintf(`%v to determine minimum required permissions and user %v does not have "%v" permission for all groups, versions and resources`,
			unknown, caller, verb))
	default:
		return field.Forbidden(refPath, fmt.Sprintf(`user %v does not have "%v" permission on the object referenced by paramRef`, caller, verb))
	}
}

// boundResource returns the resource of the parameters of a policy, or anything and the
// reason.
func (a paramAccess) boundResource(ctx context.Context, policy string, params paramsOf) (resource schema.GroupVersionResource, unknown error) {
	kind, err := params(ctx, policy)
	if err != nil {
		return anyResource(), fmt.Errorf("unable to get policy %s", policy)
	}
	if kind == nil {
		return anyResource(), nil
	}
	resource, err = a.resource(ctx, kind)
	if err != nil {
		return resource, fmt.Errorf("unable to resolve paramKind %v", kind)
	}
	return resource, nil
}

func anyResource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: anything, Version: anything, Resource: anything}
}

// resource returns the resource of a kind; on errors its unknown parts are anything.
func (a paramAccess) resource(ctx context.Context, kind *admissionregistrationv1.ParamKind) (schema.GroupVersionResource, error) {
	groupVersion, err := schema.ParseGroupVersion(kind.APIVersion)
	if err != nil {
		return anyResource(), err
	}
	list, err := a.resources.ServerResourcesForGroupVersionWithContext(ctx, groupVersion.String())
	if err != nil {
		return groupVersion.WithResource(anything), err
	}
	for _, served := range list.APIResources {
		if served.Kind == kind.Kind && !strings.Contains(served.Name, "/") {
			return groupVersion.WithResource(served.Name), nil
		}
	}
	return groupVersion.WithResource(anything), &meta.NoKindMatchError{
		GroupKind: groupVersion.WithKind(kind.Kind).GroupKind(), SearchedVersions: []string{groupVersion.Version}}
}

func (a paramAccess) allows(ctx context.Context, caller user.Info, verb string, resource schema.GroupVersionResource, namespace, name string) (bool, error) {
	decision, _, err := a.authorizer.Authorize(ctx, authorizer.AttributesRecord{
		User: caller, Verb: verb, ResourceRequest: true, Namespace: namespace, Name: name,
		APIGroup: resource.Group, APIVersion: resource.Version, Resource: resource.Resource,
	})
	return decision == authorizer.DecisionAllow, err
}

// callerOf returns the caller, nil if privileged.
func callerOf(ctx context.Context) (user.Info, error) {
	caller, ok := genericapirequest.UserFrom(ctx)
	if !ok {
		return nil, errors.New("cannot identify user")
	}
	if slices.Contains(caller.GetGroups(), user.SystemPrivilegedGroup) {
		return nil, nil
	}
	return caller, nil
}
