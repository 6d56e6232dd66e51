// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincopy

import (
	"context"
	"errors"
	"fmt"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Freeze denies all writes of a group that the main cluster handles itself, except annex's. It
// returns when the main cluster denies them. Requests that go to annex are not affected: annex
// ignores policies with FrozenGroupLabel.
func (c *Copy) Freeze(ctx context.Context, group string) error {
	user, err := c.userName(ctx)
	if err != nil {
		return err
	}
	return c.enforce(ctx, freezePolicy(group, user))
}

// reserve denies all writes in MainCopyVersion, except annex's. It returns when the main cluster denies them.
func (c *Copy) reserve(ctx context.Context, group string) error {
	user, err := c.userName(ctx)
	if err != nil {
		return err
	}
	return c.enforce(ctx, copyPolicy(group, user))
}

// Unfreeze undoes Freeze. It returns when the main cluster no longer denies writes.
func (c *Copy) Unfreeze(ctx context.Context, group string) error {
	p := freezePolicy(group, "")
	if err := c.remove(ctx, p); err != nil {
		return err
	}
	definitions, err := c.Definitions(ctx, group)
	if err != nil || len(definitions) == 0 {
		return err
	}
	err = c.holds(ctx, func(ctx context.Context) (bool, error) {
		err := c.sendCanary(ctx, p, definitions[0].Name)
		return err == nil, err
	})
	if err != nil {
		return fmt.Errorf("wait until policy %s is no longer in force: %w", p.name, err)
	}
	return nil
}

// Forget removes the policy of Freeze from a group that the main cluster no longer defines.
func (c *Copy) Forget(ctx context.Context, group string) error {
	return c.remove(ctx, freezePolicy(group, ""))
}

// MayFreeze returns an error if annex may not Freeze a group, or not change its definitions, as EndWatches does. It
// changes nothing.
func (c *Copy) MayFreeze(ctx context.Context, group string) error {
	p := freezePolicy(group, "")
	definitions, err := c.Definitions(ctx, group)
	if err != nil {
		return err
	}
	policy, binding := p.objects()
	dryRun := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	_, policyErr := c.kube.AdmissionregistrationV1().ValidatingAdmissionPolicies().Create(ctx, policy, dryRun)
	_, bindingErr := c.kube.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Create(ctx, binding, dryRun)
	errs := []error{policyErr, bindingErr}
	for _, definition := range definitions {
		errs = append(errs, c.sendCanary(ctx, p, definition.Name))
	}
	for _, err := range errs {
		if apierrors.IsForbidden(err) {
			return fmt.Errorf("check whether annex may freeze group %s in the main cluster: %w", group, err)
		}
	}
	return nil
}

// HoldGarbageCollector keeps the main cluster's garbage collector from deleting and changing
// objects that are owned by objects of a group, in annex too. It returns when that is in force.
func (c *Copy) HoldGarbageCollector(ctx context.Context, group string) error {
	return c.enforce(ctx, garbageCollectorPolicy(group))
}

// ReleaseGarbageCollector undoes HoldGarbageCollector.
func (c *Copy) ReleaseGarbageCollector(ctx context.Context, group string) error {
	return c.remove(ctx, garbageCollectorPolicy(group))
}

func (c *Copy) enforce(ctx context.Context, p policy) error {
	definitions, err := c.Definitions(ctx, p.group)
	if err != nil {
		return err
	}
	if len(definitions) == 0 {
		return fmt.Errorf("create policy %s: the main cluster has no definition of group %s", p.name, p.group)
	}
	if err := c.apply(ctx, p); err != nil {
		return err
	}
	if err := c.holds(ctx, func(ctx context.Context) (bool, error) { return c.isDenied(ctx, p, definitions[0].Name) }); err != nil {
		return fmt.Errorf("wait until policy %s is in force: %w", p.name, err)
	}
	return nil
}

// apply creates or corrects a policy, and its binding. A leader that was paused before either of them was created
// does not create the other: alone neither does anything.
func (c *Copy) apply(ctx context.Context, p policy) error {
	if err := c.applyPolicy(ctx, p); err != nil {
		return err
	}
	if err := c.checkHeld(ctx); err != nil {
		return err
	}
	_, binding := p.objects()
	_, err := c.kube.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Create(ctx, binding, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create ValidatingAdmissionPolicyBinding %s in the main cluster: %w", p.name, err)
	}
	return nil
}

// applyPolicy also corrects a policy from before annex's user name changed, and one that exempts objects. An
// update that changes nothing is not stored.
func (c *Copy) applyPolicy(ctx context.Context, p policy) error {
	policies := c.kube.AdmissionregistrationV1().ValidatingAdmissionPolicies()
	wanted, _ := p.objects()
	if err := c.checkHeld(ctx); err != nil {
		return err
	}
	_, err := policies.Create(ctx, wanted, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		var current *admissionregistrationv1.ValidatingAdmissionPolicy
		if current, err = policies.Get(ctx, p.name, metav1.GetOptions{}); err == nil {
			current.Spec = wanted.Spec
			if err = c.checkHeld(ctx); err == nil {
				_, err = policies.Update(ctx, current, metav1.UpdateOptions{})
			}
		}
	}
	if err != nil {
		return fmt.Errorf("create ValidatingAdmissionPolicy %s in the main cluster: %w", p.name, err)
	}
	return nil
}

func (c *Copy) remove(ctx context.Context, p policy) error {
	if err := c.checkHeld(ctx); err != nil {
		return err
	}
	client := c.kube.AdmissionregistrationV1()
	for what, err := range map[string]error{
		"ValidatingAdmissionPolicyBinding": client.ValidatingAdmissionPolicyBindings().Delete(ctx, p.name, metav1.DeleteOptions{}),
		"ValidatingAdmissionPolicy":        client.ValidatingAdmissionPolicies().Delete(ctx, p.name, metav1.DeleteOptions{}),
	} {
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete %s %s of the main cluster: %w", what, p.name, err)
		}
	}
	return nil
}

// isDenied reports whether the policy denies its canary, and what was seen instead.
func (c *Copy) isDenied(ctx context.Context, p policy, definition string) (bool, error) {
	err := c.sendCanary(ctx, p, definition)
	if err == nil {
		return false, errors.New("a request that only this policy denies was accepted")
	}
	return strings.Contains(err.Error(), p.message), err
}

// sendCanary makes a dry run that annex may make with its other rights, and only the policy denies.
func (c *Copy) sendCanary(ctx context.Context, p policy, definition string) error {
	canary, err := c.freshDefinitions.Get(ctx, definition, metav1.GetOptions{})
	if err != nil {
		return err
	}
	metav1.SetMetaDataAnnotation(&canary.ObjectMeta, canaryAnnotation, p.name)
	_, err = c.freshDefinitions.Update(ctx, canary, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}
