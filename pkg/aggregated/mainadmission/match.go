// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package mainadmission

import (
	"context"
	"slices"
	"strings"
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/matching"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/utils/ptr"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

// Resource is a resource of the group.
type Resource struct {
	schema.GroupResource
	Kind       string
	Namespaced bool
	// Versions are served by the main cluster.
	Versions []string
}

// Match is a hook that applies to what annex writes.
type Match struct {
	Hook
	// Resources are the names of the resources that it applies to, "<plural>.<group>".
	Resources []string
}

// operations are the writes of a Rollback. It creates the objects of annex, and deletes what
// was deleted there.
var operations = []admission.Operation{admission.Create, admission.Update, admission.Delete}

// Account returns annex's account in the main cluster from its name.
func Account(name string) user.Info {
	if namespace, serviceAccount, err := serviceaccount.SplitUsername(name); err == nil {
		return serviceaccount.UserInfo(namespace, serviceAccount, "")
	}
	return &user.DefaultInfo{Name: name, Groups: []string{user.AllAuthenticated}}
}

// AccountOf returns annex's account from the subjects that have its rights. It has no name if they are groups only.
func AccountOf(subjects []rbacv1.Subject) user.Info {
	groups := []string{user.AllAuthenticated}
	for _, subject := range subjects {
		switch subject.Kind {
		case rbacv1.ServiceAccountKind:
			return serviceaccount.UserInfo(subject.Namespace, subject.Name, "")
		case rbacv1.UserKind:
			return Account(subject.Name)
		}
		groups = append(groups, subject.Name)
	}
	return &user.DefaultInfo{Groups: groups}
}

// Matching returns the hooks that may apply to what an account writes of these resources through the
// temporary version. It ignores selectors and names of objects, and so returns too many rather than too few.
// Hooks with a match condition that excludes the account are left out, except those from which annex has exempted it.
func Matching(hooks []Hook, account user.Info, resources []Resource) []Match {
	var found []Match
	for _, hook := range hooks {
		var names []string
		for _, resource := range resources {
			applies := func(operation admission.Operation) bool { return hook.appliesTo(resource, operation, account) }
			if slices.ContainsFunc(operations, applies) {
				names = append(names, resource.String())
			}
		}
		if len(names) > 0 {
			slices.Sort(names)
			found = append(found, Match{Hook: hook, Resources: names})
		}
	}
	return found
}

func (h Hook) appliesTo(resource Resource, operation admission.Operation, account user.Info) bool {
	request := newRequest(resource, operation, account)
	matches := func(of admissionregistrationv1.MatchResources) bool { return matchesAnyObject(of, request) }
	return len(h.all) > 0 && !slices.ContainsFunc(h.all, func(of admissionregistrationv1.MatchResources) bool { return !matches(of) }) &&
		slices.ContainsFunc(h.bindings, matches) && !slices.ContainsFunc(h.conditions, request.isExcludedBy)
}

// request is one of annex's, for any object of a resource.
type request struct {
	admission.Attributes
	admission.ObjectInterfaces
	equivalent runtime.EquivalentResourceRegistry
}

func newRequest(resource Resource, operation admission.Operation, account user.Info) *request {
	namespace := ""
	if resource.Namespaced {
		namespace = metav1.NamespaceDefault
	}
	const version = hostingv1alpha1.MainCopyVersion
	of := &request{equivalent: runtime.NewEquivalentResourceRegistry()}
	for _, served := range append(slices.Clone(resource.Versions), version) {
		of.equivalent.RegisterKindFor(resource.WithVersion(served), "", schema.GroupVersionKind{Group: resource.Group, Version: served, Kind: resource.Kind})
	}
	kind := schema.GroupVersionKind{Group: resource.Group, Version: version, Kind: resource.Kind}
	of.Attributes = admission.NewAttributesRecord(nil, nil, kind, namespace, "", resource.WithVersion(version), "", operation, nil, false, account)
	return of
}

// GetEquivalentResourceMapper implements admission.ObjectInterfaces.
func (r *request) GetEquivalentResourceMapper() runtime.EquivalentResourceMapper { return r.equivalent }

// criteria has the constraints that the main cluster matches, without those that depend on the object.
type criteria struct {
	admissionregistrationv1.MatchResources
}

func (c criteria) GetParsedNamespaceSelector() (labels.Selector, error) {
	return labels.Everything(), nil
}

func (c criteria) GetParsedObjectSelector() (labels.Selector, error) { return labels.Everything(), nil }

func (c criteria) GetMatchResources() admissionregistrationv1.MatchResources { return c.MatchResources }

var matcher = matching.NewMatcher(nil, nil)

// matchesAnyObject reports whether a request may match. An error means that the main cluster would refuse it.
func matchesAnyObject(of admissionregistrationv1.MatchResources, r *request) bool {
	hasNames := func(rule admissionregistrationv1.NamedRuleWithOperations) bool { return len(rule.ResourceNames) > 0 }
	of.ResourceRules, of.ExcludeResourceRules = slices.Clone(of.ResourceRules), slices.DeleteFunc(slices.Clone(of.ExcludeResourceRules), hasNames)
	for i := range of.ResourceRules {
		of.ResourceRules[i].ResourceNames = nil
	}
	of.MatchPolicy = new(ptr.Deref(of.MatchPolicy, admissionregistrationv1.Equivalent))
	matches, _, _, err := matcher.Matches(r, r, criteria{of})
	return matches || err != nil
}

// newCompiler is expensive, and few clusters need it.
var newCompiler = sync.OnceValue(func() cel.ConditionCompiler {
	return cel.NewConditionCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
})

// isExcludedBy reports whether a match condition excludes the request, whatever its object is: an expression
// that reads the object fails without one. Conditions of annex's own are temporary.
func (r *request) isExcludedBy(condition admissionregistrationv1.MatchCondition) bool {
	if strings.HasSuffix(condition.Name, conditionSuffix) {
		return false
	}
	accessor := matchconditions.MatchCondition(condition)
	evaluator := newCompiler().CompileCondition([]cel.ExpressionAccessor{&accessor}, cel.OptionalVariableDeclarations{HasAuthorizer: true}, environment.StoredExpressions)
	attributes := &admission.VersionedAttributes{Attributes: r.Attributes, VersionedKind: r.GetKind()}
	result := matchconditions.NewMatcher(evaluator, new(admissionregistrationv1.Fail), "webhook", "admit", condition.Name).
		Match(context.Background(), attributes, nil, nil)
	return result.Error == nil && !result.Matches
}
