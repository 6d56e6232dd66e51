// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincopy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/retry"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

// Freeze denies all writes of a group that the main cluster handles itself, except annex's. It
// returns when the main cluster denies them. Requests that go to annex are not affected: annex
// ignores policies with FrozenGroupLabel.
func (c *Copy) Freeze(ctx context.Context, group string) error {
	return c.enforce(ctx, group, freezePolicy)
}

// Unfreeze undoes Freeze. It returns when the main cluster no longer denies writes.
func (c *Copy) Unfreeze(ctx context.Context, group string) error {
	if err := c.Forget(ctx, group); err != nil {
		return err
	}
	definitions, err := c.Definitions(ctx, group)
	if err != nil || len(definitions) == 0 {
		return err
	}
	name, canary := hostingv1alpha1.FrozenPolicyName(group), smallest(definitions)
	err = c.holds(ctx, c.settle, func(ctx context.Context, fresh dynamic.Interface) error {
		return sendCanary(ctx, fresh, name, canary)
	})
	if err != nil {
		return fmt.Errorf("wait until policy %s is no longer in force: %w", name, err)
	}
	return nil
}

// Forget removes the policy of Freeze.
func (c *Copy) Forget(ctx context.Context, group string) error {
	return c.remove(ctx, hostingv1alpha1.FrozenPolicyName(group))
}

// ForgetUndefined removes the policy of Freeze unless annex defines resources of the group: another leader may have
// moved and frozen it again.
func (c *Copy) ForgetUndefined(ctx context.Context, group string) error {
	return c.Fenced(func(ctx context.Context) error {
		definitions, err := c.annex.Resource(definitionsResource).List(ctx, metav1.ListOptions{})
		if err != nil {
			return fmt.Errorf("list the definitions in annex: %w", err)
		}
		for _, definition := range definitions.Items {
			if of, _, _ := unstructured.NestedString(definition.Object, "spec", "group"); of == group {
				return fmt.Errorf("allow writes of group %s in the main cluster: annex has definition %s", group, definition.GetName())
			}
		}
		return nil
	}).Forget(ctx, group)
}

// MayFreeze returns an error if annex may not Freeze a group, or not change its definitions, as EndWatches does. It
// changes nothing.
func (c *Copy) MayFreeze(ctx context.Context, group string) error {
	definitions, err := c.Definitions(ctx, group)
	if err != nil {
		return err
	}
	p, dryRun := freezePolicy(group, ""), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	policy, binding := p.objects()
	_, policyErr := c.kube.AdmissionregistrationV1().ValidatingAdmissionPolicies().Create(ctx, policy, dryRun)
	_, bindingErr := c.kube.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Create(ctx, binding, dryRun)
	errs := []error{policyErr, bindingErr}
	for _, definition := range definitions {
		errs = append(errs, sendCanary(ctx, c.objects, p.name, definition.Name))
	}
	for _, err := range errs {
		if !isPermitted(err) {
			return fmt.Errorf("check whether annex may freeze group %s in the main cluster: %w", group, err)
		}
	}
	return nil
}

// isPermitted reports whether a request has reached the storage or a policy, which an earlier move may have left.
func isPermitted(err error) bool {
	return err == nil || apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) || apierrors.IsInvalid(err)
}

// HoldGarbageCollector keeps the main cluster's garbage collector from deleting and changing
// objects that are owned by objects of a group, in annex too. It returns when that is in force.
func (c *Copy) HoldGarbageCollector(ctx context.Context, group string) error {
	return c.enforce(ctx, group, garbageCollectorPolicy)
}

// ReleaseGarbageCollector undoes HoldGarbageCollector.
func (c *Copy) ReleaseGarbageCollector(ctx context.Context, group string) error {
	return c.remove(ctx, hostingv1alpha1.HoldPolicyName(group))
}

// enforce applies a policy, and returns once the main cluster denies its canary.
func (c *Copy) enforce(ctx context.Context, group string, newPolicy func(group, user string) policy) error {
	user, err := c.userName(ctx)
	if err != nil {
		return err
	}
	p := newPolicy(group, user)
	definitions, err := c.Definitions(ctx, group)
	if err != nil {
		return err
	}
	if len(definitions) == 0 {
		return fmt.Errorf("create policy %s: the main cluster has no definition of group %s", p.name, group)
	}
	if err := c.apply(ctx, p); err != nil {
		return err
	}
	canary := smallest(definitions)
	err = c.holds(ctx, c.settle, func(ctx context.Context, fresh dynamic.Interface) error {
		err := sendCanary(ctx, fresh, p.name, canary)
		switch {
		case err == nil:
			return errors.New("a request that only this policy denies was accepted")
		case strings.Contains(err.Error(), p.message):
			return nil
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("wait until policy %s is in force: %w", p.name, err)
	}
	return nil
}

// smallest returns the name of the definition that costs both sides least to read and write.
func smallest(definitions []*apiextensionsv1.CustomResourceDefinition) string {
	return slices.MinFunc(definitions, func(a, b *apiextensionsv1.CustomResourceDefinition) int { return cmp.Compare(a.Size(), b.Size()) }).Name
}

// sendCanary makes a dry run that annex may make with its other rights, and only the policy denies.
func sendCanary(ctx context.Context, main dynamic.Interface, policy, definition string) error {
	canary, err := main.Resource(definitionsResource).Get(ctx, definition, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if err := unstructured.SetNestedField(canary.Object, policy, "metadata", "annotations", canaryAnnotation); err != nil {
		return err
	}
	_, err = main.Resource(definitionsResource).Update(ctx, canary, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

// apply creates or replaces a policy, and its binding. A leader that was paused before it creates one of them does not
// create the other: alone neither does anything.
func (c *Copy) apply(ctx context.Context, p policy) error {
	policy, binding := p.objects()
	err := put(ctx, c, c.kube.AdmissionregistrationV1().ValidatingAdmissionPolicies(), policy)
	if err == nil {
		err = put(ctx, c, c.kube.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings(), binding)
	}
	if err != nil {
		return fmt.Errorf("apply policy %s in the main cluster: %w", p.name, err)
	}
	return nil
}

func (c *Copy) remove(ctx context.Context, policy string) error {
	err := remove(ctx, c, c.kube.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings(), policy)
	if err == nil {
		err = remove(ctx, c, c.kube.AdmissionregistrationV1().ValidatingAdmissionPolicies(), policy)
	}
	if err != nil {
		return fmt.Errorf("remove policy %s of the main cluster: %w", policy, err)
	}
	return nil
}

type kindClient[T metav1.Object] interface {
	Get(ctx context.Context, name string, options metav1.GetOptions) (T, error)
	Create(ctx context.Context, object T, options metav1.CreateOptions) (T, error)
	Update(ctx context.Context, object T, options metav1.UpdateOptions) (T, error)
	Delete(ctx context.Context, name string, options metav1.DeleteOptions) error
}

// attemptAnnotation has the Copy that has written a policy. So each Copy gives it another resource version, even if
// nothing else changes, and what an earlier one does with the version that it has read is a conflict.
const attemptAnnotation = "annex.dev/attempt"

// put creates or replaces an object, if it is as it was before check succeeded.
func put[T metav1.Object](ctx context.Context, c *Copy, client kindClient[T], wanted T) error {
	wanted.SetAnnotations(map[string]string{attemptAnnotation: c.attempt})
	changed := func(err error) bool {
		return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err)
	}
	return retry.OnError(retry.DefaultBackoff, changed, func() error {
		current, err := client.Get(ctx, wanted.GetName(), metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		if err := c.check(ctx); err != nil {
			return err
		}
		if err != nil {
			wanted.SetResourceVersion("")
			_, err = client.Create(ctx, wanted, metav1.CreateOptions{})
			return err
		}
		wanted.SetResourceVersion(current.GetResourceVersion())
		_, err = client.Update(ctx, wanted, metav1.UpdateOptions{})
		return err
	})
}

// remove deletes an object, if it is as it was before check succeeded.
func remove[T metav1.Object](ctx context.Context, c *Copy, client kindClient[T], name string) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		current, err := client.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return ignoreMissing(err)
		}
		if err := c.check(ctx); err != nil {
			return err
		}
		return ignoreMissing(client.Delete(ctx, name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: new(current.GetUID()), ResourceVersion: new(current.GetResourceVersion())},
		}))
	})
}
