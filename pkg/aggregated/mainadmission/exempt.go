// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package mainadmission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
)

const (
	// conditionSuffix ends the names of annex's match conditions.
	conditionSuffix = "/annex-exempt"

	// maxConditions is Kubernetes' limit of match conditions.
	maxConditions = 64

	fieldManager = "annex-migrations"
)

// ConditionName returns the name of the match condition that exempts annex's writes of a group.
func ConditionName(group string) string { return group + conditionSuffix }

// ErrFull means that a hook cannot have another match condition.
var ErrFull = errors.New("no more are allowed: exempt annex's account in one of them")

// Exempt adds a match condition to each hook that applies to what an account writes of a group: it
// excludes these requests. Nothing is written if one hook has no place for it. check is called between the reads
// and the writes, which depend on what was read: an attempt that was replaced adds nothing after its successor has
// called End.
func Exempt(ctx context.Context, client kubernetes.Interface, group string, account user.Info, resources []Resource, check func(context.Context) error) error {
	wanted := admissionregistrationv1.MatchCondition{
		Name:       ConditionName(group),
		Expression: fmt.Sprintf("request.resource.group != %q || request.userInfo.username != %q", group, account.GetName()),
	}
	err := change(ctx, client, check, func(hooks []Hook) (edits []edit, err error) {
		for _, match := range Matching(hooks, account, resources) {
			if edits, err = match.with(edits, wanted); err != nil {
				return nil, err
			}
		}
		return edits, nil
	})
	if err != nil {
		return fmt.Errorf("exempt annex from the webhooks and policies of group %s: %w", group, err)
	}
	return nil
}

// End removes the match conditions that Exempt added. Like Exempt it calls check before each write.
func End(ctx context.Context, client kubernetes.Interface, group string, check func(context.Context) error) error {
	err := change(ctx, client, check, func(hooks []Hook) (edits []edit, _ error) {
		for _, hook := range hooks {
			edits = hook.without(edits, ConditionName(group))
		}
		return edits, nil
	})
	if err != nil {
		return fmt.Errorf("end the exemption of annex from the webhooks and policies of group %s: %w", group, err)
	}
	return nil
}

// Rules returns the rights that Exempt and End need, besides list.
func Rules(hooks []Hook) []rbacv1.PolicyRule {
	names := map[string]sets.Set[string]{}
	for _, hook := range hooks {
		resource, _ := meta.UnsafeGuessKindToResource(admissionregistrationv1.SchemeGroupVersion.WithKind(hook.Kind))
		names[resource.Resource] = sets.New(hook.Object).Union(names[resource.Resource])
	}
	var rules []rbacv1.PolicyRule
	for _, resource := range slices.Sorted(maps.Keys(names)) {
		rules = append(rules, rbacv1.PolicyRule{
			APIGroups: []string{admissionregistrationv1.GroupName}, Resources: []string{resource}, ResourceNames: sets.List(names[resource]), Verbs: []string{"patch"},
		})
	}
	return rules
}

// Exempted returns the hooks that have the match condition of a group.
func Exempted(hooks []Hook, group string) []Hook {
	return slices.DeleteFunc(slices.Clone(hooks), func(h Hook) bool { return h.find(ConditionName(group)) < 0 })
}

// edit is an operation of a JSON patch. It names a condition by its index, so that it changes nothing else.
type edit struct {
	hook  Hook
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

func (h Hook) find(name string) int {
	return slices.IndexFunc(h.conditions, func(c admissionregistrationv1.MatchCondition) bool { return c.Name == name })
}

// with appends what adds a condition, or corrects one of another account.
func (h Hook) with(edits []edit, wanted admissionregistrationv1.MatchCondition) ([]edit, error) {
	at := h.find(wanted.Name)
	switch {
	case at >= 0 && h.conditions[at] == wanted:
		return edits, nil
	case at >= 0:
		return append(edits, edit{h, "replace", fmt.Sprintf("%s/%d", h.path, at), wanted}), nil
	case len(h.conditions) == 0:
		return append(edits, edit{h, "add", h.path, []admissionregistrationv1.MatchCondition{wanted}}), nil
	case len(h.conditions) >= maxConditions:
		return nil, fmt.Errorf("%s has %d match conditions, and %w", h, maxConditions, ErrFull)
	}
	return append(edits, edit{h, "add", h.path + "/-", wanted}), nil
}

func (h Hook) without(edits []edit, name string) []edit {
	at := h.find(name)
	switch {
	case at < 0:
		return edits
	case len(h.conditions) == 1:
		return append(edits, edit{hook: h, Op: "remove", Path: h.path})
	}
	return append(edits, edit{hook: h, Op: "remove", Path: fmt.Sprintf("%s/%d", h.path, at)})
}

// change makes edits of all hooks, again after a conflict with another client. The edits of an object are one patch,
// which depends on the version that was read.
func change(ctx context.Context, client kubernetes.Interface, check func(context.Context) error, plan func(hooks []Hook) ([]edit, error)) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		hooks, err := Read(ctx, client)
		if err != nil {
			return err
		}
		edits, err := plan(hooks)
		if err != nil || len(edits) == 0 {
			return err
		}
		if err := check(ctx); err != nil {
			return err
		}
		var errs []error // a right that is missing for one object does not concern others
		for len(edits) > 0 {
			of := edits[0].hook
			n := slices.IndexFunc(edits, func(e edit) bool { return e.hook.Kind != of.Kind || e.hook.Object != of.Object })
			if n < 0 {
				n = len(edits)
			}
			patch, err := json.Marshal(append(slices.Clone(edits[:n]), edit{Op: "replace", Path: "/metadata/resourceVersion", Value: of.resourceVersion}))
			if err != nil {
				return fmt.Errorf("encode a patch: %w", err)
			}
			if err := of.patch(ctx, patch); err != nil && !apierrors.IsNotFound(err) {
				errs = append(errs, fmt.Errorf("change the match conditions of %s %s: %w", of.Kind, of.Object, err))
			}
			edits = edits[n:]
		}
		return errors.Join(errs...)
	})
}
