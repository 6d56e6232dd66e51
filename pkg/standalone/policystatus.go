// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"context"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/cel/openapi/resolver"
	admissionregistrationapply "k8s.io/client-go/applyconfigurations/admissionregistration/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	admissionregistrationclient "k8s.io/client-go/kubernetes/typed/admissionregistration/v1"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/cache"

	"github.com/annex-dev/annex/pkg/controller/framework"
)

type (
	policy  = admissionregistrationv1.ValidatingAdmissionPolicy
	warning = admissionregistrationv1.ExpressionWarning
)

// policyStatus type-checks the expressions of validating admission policies against the
// schemas of the matched resources, and writes warnings into their status. The warnings
// do not disable a policy: schemas may change.
type policyStatus struct {
	annexPolicies admissionregistrationclient.ValidatingAdmissionPolicyInterface
	policies      cache.Store
	// check returns the type errors in the expressions of a policy.
	check func(*policy) []warning
}

func newPolicyStatus(annexPolicies admissionregistrationclient.ValidatingAdmissionPolicyInterface, informer cache.SharedIndexInformer, check func(*policy) []warning) (*framework.Queue[string], error) {
	c := &policyStatus{annexPolicies, informer.GetStore(), check}
	queue := framework.NewQueue(framework.QueueConfig[string]{Name: policyStatusName, Reconcile: func(ctx context.Context, name string) (framework.Result, error) {
		return framework.Result{}, c.reconcile(ctx, name)
	}})
	return queue, queue.Watch(framework.Source{Name: "policies", Informer: informer, Handler: framework.Every(func(policy *policy) {
		if !isChecked(policy) {
			queue.Add(policy.Name)
		}
	})})
}

// newPolicyCheck checks policies with the schemas that annex publishes.
func newPolicyCheck(annexDiscovery discovery.DiscoveryInterface) func(*policy) []warning {
	checker := &validating.TypeChecker{
		SchemaResolver: &resolver.ClientDiscoveryResolver{Discovery: annexDiscovery},
		// The checker resets it for an unknown resource.
		RestMapper: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(annexDiscovery)),
	}
	return checker.Check
}

func isChecked(policy *policy) bool {
	return policy.Status.ObservedGeneration >= policy.Generation
}

func (c *policyStatus) reconcile(ctx context.Context, name string) error {
	obj, _, err := c.policies.GetByKey(name)
	if err != nil {
		return fmt.Errorf("read the policy %s: %w", name, err)
	}
	policy, ok := obj.(*policy)
	if !ok || isChecked(policy) {
		return nil
	}
	checking := admissionregistrationapply.TypeChecking()
	for _, found := range c.check(policy) {
		checking.WithExpressionWarnings(admissionregistrationapply.ExpressionWarning().WithFieldRef(found.FieldRef).WithWarning(found.Warning))
	}
	// The UID prevents writes to a recreated policy, and the creation of a deleted one.
	status := admissionregistrationapply.ValidatingAdmissionPolicy(name).WithUID(policy.UID).WithStatus(
		admissionregistrationapply.ValidatingAdmissionPolicyStatus().WithObservedGeneration(policy.Generation).WithTypeChecking(checking))
	_, err = c.annexPolicies.ApplyStatus(ctx, status, metav1.ApplyOptions{FieldManager: policyStatusName, Force: true})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		// A recreated policy is queued again.
		return nil
	}
	if err != nil {
		return fmt.Errorf("write the status of the policy %s: %w", name, err)
	}
	return nil
}
