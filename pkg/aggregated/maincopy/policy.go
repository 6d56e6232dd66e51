// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincopy

import (
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

// heldGroupLabel is on the policy that holds the garbage collector, which annex applies too.
const heldGroupLabel = "annex.dev/held-group"

type policy struct {
	name, group, message string
	// label is on the policy and its binding; its value is the group.
	label string
	// rules select the requests that the policy applies to, in addition to the canary. excluded exempts
	// requests.
	rules, excluded []admissionregistrationv1.NamedRuleWithOperations
	// denies is the condition for these requests, as an expression.
	denies string
}

func freezePolicy(group, user string) policy {
	return policy{
		name: hostingv1alpha1.FrozenPolicyName(group), group: group, label: hostingv1alpha1.FrozenGroupLabel,
		message:  fmt.Sprintf("the API group %s is served by annex, so that the main cluster's own storage of its objects is frozen. A request that gets here did not go through the main cluster's aggregation layer", group),
		rules:    []admissionregistrationv1.NamedRuleWithOperations{newRule(group, "*", "*/*", admissionregistrationv1.OperationAll)},
		excluded: copyRules(group),
		denies:   isNot(user),
	}
}

// copyPolicy reserves MainCopyVersion for annex's writes. While annex is down, discovery lacks its versions, and
// clients that choose a version by discovery find this one: the garbage collector would delete objects whose
// owners it knows by their UIDs in annex.
func copyPolicy(group, user string) policy {
	return policy{
		name: hostingv1alpha1.CopyPolicyName(group), group: group, label: hostingv1alpha1.FrozenGroupLabel,
		message: fmt.Sprintf("the API group %s is served by annex, in other versions. This one reaches the copy that the main cluster has of its objects, which only annex writes. "+
			"If discovery has no other version, annex does not respond: try again later", group),
		rules:  copyRules(group),
		denies: isNot(user),
	}
}

func isNot(user string) string { return fmt.Sprintf("request.userInfo.username != %q", user) }

// copyRules are the requests in MainCopyVersion. A policy that matches denies all requests in a namespace that
// does not exist.
func copyRules(group string) []admissionregistrationv1.NamedRuleWithOperations {
	return []admissionregistrationv1.NamedRuleWithOperations{newRule(group, hostingv1alpha1.MainCopyVersion, "*/*", admissionregistrationv1.OperationAll)}
}

func garbageCollectorPolicy(group, _ string) policy {
	return policy{
		name: hostingv1alpha1.HoldPolicyName(group), group: group, label: heldGroupLabel,
		message:  fmt.Sprintf("objects of the API group %s are moving between the main cluster and annex: what they own is kept until its ownerReferences are right", group),
		rules:    []admissionregistrationv1.NamedRuleWithOperations{newRule("*", "*", "*", admissionregistrationv1.Update, admissionregistrationv1.Delete)},
		excluded: copyRules("*"), // other groups' copies, too, may have objects in namespaces that do not exist
		// The garbage collector has a service account of its own, or kube-controller-manager's.
		denies: fmt.Sprintf("request.userInfo.username in ['system:serviceaccount:kube-system:generic-garbage-collector', 'system:kube-controller-manager'] && "+
			"has(oldObject.metadata.ownerReferences) && oldObject.metadata.ownerReferences.exists(owner, owner.apiVersion.startsWith(%q))", group+"/"),
	}
}

// exempting returns the policy without requests that change or delete objects of these names. It does not deny its
// canary, so that enforce returns only when the whole policy is in force again.
func (p policy) exempting(of Resource, names sets.Set[string]) policy {
	rule := newRule(of.Opened().Group, of.Opened().Version, of.Opened().Resource, admissionregistrationv1.Update, admissionregistrationv1.Delete)
	rule.ResourceNames = sets.List(names)
	p.excluded = append(slices.Clone(p.excluded), rule, canaryRule())
	return p
}

// canaryAnnotation with the name of a policy is in an update of a definition that is never stored:
// it exists to be denied.
const canaryAnnotation = "annex.dev/canary"

func canaryRule() admissionregistrationv1.NamedRuleWithOperations {
	return newRule("apiextensions.k8s.io", "*", "customresourcedefinitions", admissionregistrationv1.Update)
}

func (p policy) objects() (*admissionregistrationv1.ValidatingAdmissionPolicy, *admissionregistrationv1.ValidatingAdmissionPolicyBinding) {
	meta := metav1.ObjectMeta{Name: p.name, Labels: map[string]string{p.label: p.group}}
	isCanary := fmt.Sprintf("(request.operation == 'UPDATE' && request.resource.resource == 'customresourcedefinitions' && has(object.metadata.annotations) && "+
		"%[1]q in object.metadata.annotations && object.metadata.annotations[%[1]q] == %[2]q)", canaryAnnotation, p.name)
	denied := fmt.Sprintf("%s || (request.resource.group != 'apiextensions.k8s.io' && %s)", isCanary, p.denies)
	return &admissionregistrationv1.ValidatingAdmissionPolicy{
			ObjectMeta: meta,
			Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
				FailurePolicy: new(admissionregistrationv1.Fail),
				MatchConstraints: &admissionregistrationv1.MatchResources{
					// Equivalent would exclude the other versions, too.
					MatchPolicy: new(admissionregistrationv1.Exact), ResourceRules: append(p.rules, canaryRule()),
					ExcludeResourceRules: p.excluded,
				},
				MatchConditions: []admissionregistrationv1.MatchCondition{{Name: "denied", Expression: denied}},
				Validations:     []admissionregistrationv1.Validation{{Expression: "false", Message: p.message}},
			},
		}, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
			ObjectMeta: *meta.DeepCopy(),
			Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName: p.name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
			},
		}
}

func newRule(group, version, resource string, operations ...admissionregistrationv1.OperationType) admissionregistrationv1.NamedRuleWithOperations {
	return admissionregistrationv1.NamedRuleWithOperations{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
		Operations: operations,
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{version}, Resources: []string{resource}},
	}}
}
