// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/annex-dev/annex/pkg/aggregated/group"
	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/controller/framework"
)

// messageInterval is the minimum time between writes of one condition that change
// only its message, which may contain changing addresses and numbers.
const messageInterval = 10 * time.Second

// reportSynced writes the condition DefinitionSynced of a group. It creates the HostedResources of definitions
// that annex does not have, and releases them when they have no status any more. It returns when to write what
// was throttled.
func (r *reconciler) reportSynced(ctx context.Context, s *group.State, statuses map[string]group.Status) (again time.Duration, err error) {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(statuses)) {
		resource := s.Hosted[name]
		if resource == nil {
			if resource, err = r.create(ctx, name); err != nil {
				errs = append(errs, fmt.Errorf("create hosted resource %s: %w", name, err))
				continue
			}
		}
		wait, err := r.report(ctx, r.synced, resource, statuses[name])
		again = sooner(again, wait)
		errs = append(errs, err)
	}
	for name, resource := range s.Hosted {
		if _, has := statuses[name]; !has {
			errs = append(errs, r.release(ctx, resource))
		}
	}
	return again, errors.Join(errs...)
}

func (r *reconciler) reportPublished(ctx context.Context, s *group.State, statuses map[string]group.Status) (again time.Duration, _ error) {
	var errs []error
	for name, resource := range s.Hosted {
		wait, err := r.report(ctx, r.published, resource, s.Published(name, statuses))
		again = sooner(again, wait)
		errs = append(errs, err)
	}
	return again, errors.Join(errs...)
}

// report writes a condition if it changed. It returns when to write it if it is throttled.
func (r *reconciler) report(ctx context.Context, writer framework.ConditionWriter, resource *group.HostedResource, of group.Status) (time.Duration, error) {
	condition := metav1.Condition{
		Type: writer.Type, Status: of.Status, ObservedGeneration: resource.Generation, Reason: of.Reason, Message: of.Message,
	}
	before := writer.Get(resource)
	if !framework.SetTransitionTime(&condition, before, time.Now()) {
		return 0, nil
	}
	key := writer.Type + " " + resource.Name
	if !framework.IsUrgent(&condition, before) {
		if wait := r.messages.Delay(key); wait > 0 {
			return wait, nil
		}
	}
	if err := writer.Write(ctx, resource.Name, &condition); err != nil {
		return 0, err
	}
	r.messages.Mark(key)
	return 0, nil
}

// create creates the HostedResource of a definition. The scheduler places it as any other.
func (r *reconciler) create(ctx context.Context, name string) (*group.HostedResource, error) {
	made, err := r.AnnexHostedResources.Create(ctx, group.NewHostedResource(name, ""), metav1.CreateOptions{FieldManager: definitionsManager})
	if apierrors.IsAlreadyExists(err) {
		return r.AnnexHostedResources.Get(ctx, name, metav1.GetOptions{})
	}
	return made, err
}

// release removes the condition DefinitionSynced, and the annotation that protects the HostedResource.
func (r *reconciler) release(ctx context.Context, resource *group.HostedResource) error {
	if r.synced.Get(resource) != nil {
		if err := r.synced.Write(ctx, resource.Name, nil); err != nil {
			return err
		}
	}
	if resource.Annotations[hostingv1alpha1.DefinitionFromAnnotation] == "" {
		return nil
	}
	patch := fmt.Sprintf(`{"metadata":{"uid":%q,"annotations":{%q:null}}}`, resource.UID, hostingv1alpha1.DefinitionFromAnnotation)
	_, err := r.AnnexHostedResources.Patch(ctx, resource.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: definitionsManager})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return wrap(err, "let go of hosted resource %s: %w", resource.Name)
}
