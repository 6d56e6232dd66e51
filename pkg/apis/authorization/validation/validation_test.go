// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package validation_test

import (
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/annex-dev/annex/pkg/apis/authorization/validation"
)

// wantFields compares the fields at fault.
func wantFields(t *testing.T, errs field.ErrorList, want ...string) {
	t.Helper()
	ok := len(errs) == len(want)
	for i := range want {
		ok = ok && errs[i].Field == want[i]
	}
	if !ok {
		t.Errorf("got %v, want errors at %q", errs.ToAggregate(), want)
	}
}

func TestSubjectAccessReview(t *testing.T) {
	t.Parallel()
	path := &authorizationv1.NonResourceAttributes{Path: "/metrics", Verb: "get"}
	resource := &authorizationv1.ResourceAttributes{Namespace: "a", Verb: "get", Resource: "secrets"}
	tests := map[string]struct {
		meta metav1.ObjectMeta
		spec authorizationv1.SubjectAccessReviewSpec
		want []string
	}{
		"resource":    {spec: authorizationv1.SubjectAccessReviewSpec{User: "bob", ResourceAttributes: resource}},
		"path":        {spec: authorizationv1.SubjectAccessReviewSpec{Groups: []string{"x"}, NonResourceAttributes: path}},
		"no subject":  {spec: authorizationv1.SubjectAccessReviewSpec{ResourceAttributes: resource}, want: []string{"spec.user"}},
		"nothing":     {spec: authorizationv1.SubjectAccessReviewSpec{User: "bob"}, want: []string{"spec"}},
		"both":        {spec: authorizationv1.SubjectAccessReviewSpec{User: "bob", ResourceAttributes: resource, NonResourceAttributes: path}, want: []string{"spec"}},
		"a name":      {meta: metav1.ObjectMeta{Name: "x"}, spec: authorizationv1.SubjectAccessReviewSpec{User: "bob", ResourceAttributes: resource}, want: []string{"metadata"}},
		"left behind": {meta: metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "x"}}}, spec: authorizationv1.SubjectAccessReviewSpec{User: "bob", ResourceAttributes: resource}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wantFields(t, validation.ValidateSubjectAccessReview(&authorizationv1.SubjectAccessReview{ObjectMeta: test.meta, Spec: test.spec}), test.want...)
			if test.spec.User == "" {
				return
			}
			wantFields(t, validation.ValidateSelfSubjectAccessReview(&authorizationv1.SelfSubjectAccessReview{
				ObjectMeta: test.meta,
				Spec:       authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: test.spec.ResourceAttributes, NonResourceAttributes: test.spec.NonResourceAttributes},
			}), test.want...)
		})
	}
}

func TestLocalSubjectAccessReview(t *testing.T) {
	t.Parallel()
	review := &authorizationv1.LocalSubjectAccessReview{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a"},
		Spec:       authorizationv1.SubjectAccessReviewSpec{User: "bob", ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: "a", Verb: "get", Resource: "secrets"}},
	}
	wantFields(t, validation.ValidateLocalSubjectAccessReview(review))

	other := review.DeepCopy()
	other.Spec.ResourceAttributes.Namespace = "b"
	wantFields(t, validation.ValidateLocalSubjectAccessReview(other), "spec.resourceAttributes.namespace")

	named := review.DeepCopy()
	named.Name = "x"
	wantFields(t, validation.ValidateLocalSubjectAccessReview(named), "metadata")

	path := review.DeepCopy()
	path.Spec.ResourceAttributes, path.Spec.NonResourceAttributes = nil, &authorizationv1.NonResourceAttributes{Path: "/"}
	wantFields(t, validation.ValidateLocalSubjectAccessReview(path), "spec.nonResourceAttributes")
}

func TestSelectors(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		fields *authorizationv1.FieldSelectorAttributes
		labels *authorizationv1.LabelSelectorAttributes
		want   []string
	}{
		"raw":          {fields: &authorizationv1.FieldSelectorAttributes{RawSelector: "a=b"}, labels: &authorizationv1.LabelSelectorAttributes{RawSelector: "a in (b)"}},
		"raw, broken":  {labels: &authorizationv1.LabelSelectorAttributes{RawSelector: "a in ("}}, // reported in the status
		"empty fields": {fields: &authorizationv1.FieldSelectorAttributes{}, want: []string{"spec.resourceAttributes.fieldSelector.requirements"}},
		"empty labels": {labels: &authorizationv1.LabelSelectorAttributes{}, want: []string{"spec.resourceAttributes.labelSelector.requirements"}},
		"both forms": {
			fields: &authorizationv1.FieldSelectorAttributes{RawSelector: "a=b", Requirements: []metav1.FieldSelectorRequirement{{Key: "a", Operator: "In", Values: []string{"b"}}}},
			labels: &authorizationv1.LabelSelectorAttributes{RawSelector: "a=b", Requirements: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Exists"}}},
			want:   []string{"spec.resourceAttributes.fieldSelector.rawSelector", "spec.resourceAttributes.labelSelector.rawSelector"},
		},
		"no values": {
			fields: &authorizationv1.FieldSelectorAttributes{Requirements: []metav1.FieldSelectorRequirement{{Key: "a", Operator: "In"}}},
			labels: &authorizationv1.LabelSelectorAttributes{Requirements: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "In"}}},
			want:   []string{"spec.resourceAttributes.fieldSelector.requirements[0].values", "spec.resourceAttributes.labelSelector.requirements[0].values"},
		},
		"no key": {
			fields: &authorizationv1.FieldSelectorAttributes{Requirements: []metav1.FieldSelectorRequirement{{Operator: "Exists"}}},
			want:   []string{"spec.resourceAttributes.fieldSelector.requirements[0].key"},
		},
		"operator of the future": {
			fields: &authorizationv1.FieldSelectorAttributes{Requirements: []metav1.FieldSelectorRequirement{{Key: "a", Operator: "Like"}}},
			labels: &authorizationv1.LabelSelectorAttributes{Requirements: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Like"}}},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wantFields(t, validation.ValidateSelfSubjectAccessReview(&authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
				ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "list", Resource: "secrets", FieldSelector: test.fields, LabelSelector: test.labels},
			}}), test.want...)
		})
	}
}
