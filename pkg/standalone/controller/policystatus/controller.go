// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package policystatus type-checks the expressions of validating admission policies
// against the schemas of the matched resources, and writes warnings into their status.
// The warnings do not disable a policy: schemas may change.
package policystatus

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

// ControllerName names the controller in logs and metrics, and is the field manager
// of the status, as in Kubernetes.
const ControllerName = "validatingadmissionpolicy-status"

// Config holds what the controller depends on.
type Config struct {
	AnnexPolicies admissionregistrationclient.ValidatingAdmissionPolicyInterface
	Policies      cache.SharedIndexInformer
	// Check returns the type errors in the expressions of a policy.
	Check func(*admissionregistrationv1.ValidatingAdmissionPolicy) []admissionregistrationv1.ExpressionWarning
}

// NewCheck returns a Check with the schemas that annex publishes.
func NewCheck(annexDiscovery discovery.DiscoveryInterface) func(*admissionregistrationv1.ValidatingAdmissionPolicy) []admissionregistrationv1.ExpressionWarning {
	checker := &validating.TypeChecker{
		SchemaResolver: &resolver.ClientDiscoveryResolver{Discovery: annexDiscovery},
		// The checker resets it for an unknown resource.
		RestMapper: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(annexDiscovery)),
	}
	return checker.Check
}

// New returns a controller that writes the status of policies. It adds a handler to the
// informer of config and does nothing before Run.
func New(config Config) (*framework.Queue[string], error) {
	queue := framework.NewQueue(framework.QueueConfig[string]{Name: ControllerName, Reconcile: func(ctx context.Context, name string) (framework.Result, error) {
		return framework.Result{}, reconcile(ctx, config, name)
	}})
	enqueue := func(policy *admissionregistrationv1.ValidatingAdmissionPolicy) {
		if !isChecked(policy) {
			queue.Add(policy.Name)
		}
	}
	return queue, queue.Watch(framework.Source{Name: "policies", Informer: config.Policies, Handler: framework.Every(enqueue)})
}

func isChecked(policy *admissionregistrationv1.ValidatingAdmissionPolicy) bool {
	return policy.Status.ObservedGeneration >= policy.Generation
}

func reconcile(ctx context.Context, config Config, name string) error {
	obj, exists, err := config.Policies.GetStore().GetByKey(name)
	if err != nil {
		return fmt.Errorf("read the policy %s: %w", name, err)
	}
	policy, ok := obj.(*admissionregistrationv1.ValidatingAdmissionPolicy)
	if !exists || !ok || isChecked(policy) {
		return nil
	}
	checking := admissionregistrationapply.TypeChecking()
	for _, found := range config.Check(policy) {
		checking.WithExpressionWarnings(admissionregistrationapply.ExpressionWarning().WithFieldRef(found.FieldRef).WithWarning(found.Warning))
	}
	// The UID prevents writes to a recreated policy, and the creation of a deleted one.
	status := admissionregistrationapply.ValidatingAdmissionPolicy(name).WithUID(policy.UID).WithStatus(
		admissionregistrationapply.ValidatingAdmissionPolicyStatus().WithObservedGeneration(policy.Generation).WithTypeChecking(checking))
	_, err = config.AnnexPolicies.ApplyStatus(ctx, status, metav1.ApplyOptions{FieldManager: ControllerName, Force: true})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		// A recreated policy is queued again.
		return nil
	}
	if err != nil {
		return fmt.Errorf("write the status of the policy %s: %w", name, err)
	}
	return nil
}
