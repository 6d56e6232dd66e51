// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package footprint

import (
	"context"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/component-helpers/auth/rbac/validation"

	"github.com/annex-dev/annex/pkg/aggregated/mainadmission"
)

// Right is a verb on a resource, in one namespace or in all.
type Right struct {
	authorizationv1.ResourceAttributes
}

// RightsOf returns the rights to resources that rules give in a namespace, or in the cluster if it is empty.
func RightsOf(namespace string, rules ...rbacv1.PolicyRule) []Right {
	var all []Right
	for _, rule := range rules {
		rule.NonResourceURLs = nil
		for _, one := range validation.BreakdownRule(rule) {
			resource, subresource, _ := strings.Cut(one.Resources[0], "/")
			all = append(all, Right{authorizationv1.ResourceAttributes{
				Namespace: namespace, Verb: one.Verbs[0], Group: one.APIGroups[0], Resource: resource, Subresource: subresource,
				Name: strings.Join(one.ResourceNames, ""), // there is one at most
			}})
		}
	}
	return all
}

// String returns the right in RBAC's terms.
func (r Right) String() string { return r.Verb + " " + r.object() }

func (r Right) object() string {
	resource := r.Resource
	if r.Subresource != "" {
		resource += "/" + r.Subresource
	}
	if r.Group != "" {
		resource += "." + r.Group
	}
	if r.Name != "" {
		resource += " " + r.Name
	}
	if r.Namespace != "" {
		resource += " in " + r.Namespace
	}
	return resource
}

// ListRights names a few objects with their verbs, and counts the others.
func ListRights(rights []Right) string {
	const enough = 4
	var objects, named []string
	verbs := map[string][]string{}
	for _, r := range rights {
		if verbs[r.object()] == nil {
			objects = append(objects, r.object())
		}
		verbs[r.object()] = append(verbs[r.object()], r.Verb)
	}
	for _, object := range objects[:min(len(objects), enough)] {
		named = append(named, strings.Join(verbs[object], "/")+" "+object)
	}
	if more := len(objects) - enough; more > 0 {
		named = append(named, fmt.Sprintf("and the like for %d more", more))
	}
	return strings.Join(named, ", ")
}

const maxReviews = 8

// MissingRights returns the rights that a user does not have. It fails if the caller may not create SubjectAccessReviews.
func MissingRights(ctx context.Context, main kubernetes.Interface, user string, rights []Right) ([]Right, error) {
	account := mainadmission.Account(user)
	groups := append(account.GetGroups(), "system:authenticated")
	allowed, errs := make([]bool, len(rights)), make([]error, len(rights))
	workqueue.ParallelizeUntil(context.WithoutCancel(ctx), maxReviews, len(rights), func(i int) {
		review, err := main.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{User: user, Groups: groups, ResourceAttributes: &rights[i].ResourceAttributes},
		}, metav1.CreateOptions{})
		if errs[i] = err; err == nil {
			allowed[i] = review.Status.Allowed
		}
	})
	// The first error is enough: they are mostly the same.
	if i := slices.IndexFunc(errs, func(err error) bool { return err != nil }); i >= 0 {
		return nil, fmt.Errorf("review whether annex may %s in the main cluster: %w", rights[i], errs[i])
	}
	var missing []Right
	for i, r := range rights {
		if !allowed[i] {
			missing = append(missing, r)
		}
	}
	return missing, nil
}
