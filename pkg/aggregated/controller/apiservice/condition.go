// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiservice

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/controller/framework/conditions"
)

// report has the HostedResources of a group say how its versions stand. It returns
// when to look again at those whose news were put off.
func (r *reconciler) report(ctx context.Context, v *view, standings map[string]status) (time.Duration, error) {
	var again time.Duration
	var errs []error
	for _, resource := range v.hosted {
		before := meta.FindStatusCondition(resource.Status.Conditions, hostingv1alpha1.HostedResourcePublished)
		after := publishedCondition(resource, v, standings)
		if !conditions.SetTransitionTime(&after, before, r.now()) {
			continue
		}
		if !conditions.IsUrgent(&after, before) {
			if wait := r.messages.Delay(resource.Name); wait > 0 {
				again = minNonZero(again, wait)
				continue
			}
		}
		if err := r.writeCondition(ctx, resource.Name, &after); err != nil {
			errs = append(errs, err)
			continue
		}
		r.messages.Mark(resource.Name)
	}
	return again, errors.Join(errs...)
}

// publishedCondition sums up the versions of one resource: it is published if all
// that are served are, and otherwise says why the first is not.
func publishedCondition(resource *hosted, v *view, standings map[string]status) metav1.Condition {
	condition := metav1.Condition{
		Type:               hostingv1alpha1.HostedResourcePublished,
		Status:             metav1.ConditionFalse,
		ObservedGeneration: resource.Generation,
		Reason:             reasonNotServed,
		Message:            fmt.Sprintf("annex has no CustomResourceDefinition %q that serves a version", resource.Name),
	}
	index := slices.IndexFunc(v.annexDefinitions, func(crd *definition) bool { return crd.Name == resource.Name })
	if index < 0 {
		return condition
	}
	versions := byMaturity(versionsServedBy(v.annexDefinitions[index]))
	for _, version := range versions {
		stands := standings[version]
		if !stands.published {
			condition.Reason = stands.reason
			condition.Message = version + ": " + stands.message
			return condition
		}
	}
	if len(versions) > 0 {
		condition.Status = metav1.ConditionTrue
		condition.Reason = reasonPublished
		condition.Message = "The main cluster sends requests to annex: " + strings.Join(versions, ", ")
	}
	return condition
}
