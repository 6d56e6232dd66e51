// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package authorization

import (
	"errors"
	"fmt"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// subject returns the user that a review is about.
func subject(spec *authorizationv1.SubjectAccessReviewSpec) user.Info {
	subject := &user.DefaultInfo{Name: spec.User, UID: spec.UID, Groups: spec.Groups}
	for key, values := range spec.Extra {
		if subject.Extra == nil {
			subject.Extra = map[string][]string{}
		}
		subject.Extra[key] = values
	}
	return subject
}

// attributes returns the attributes to authorize: resource or path is set.
func attributes(subject user.Info, resource *authorizationv1.ResourceAttributes, path *authorizationv1.NonResourceAttributes) authorizer.AttributesRecord {
	if resource == nil {
		return authorizer.AttributesRecord{User: subject, Verb: path.Verb, Path: path.Path}
	}
	record := authorizer.AttributesRecord{
		User:            subject,
		Verb:            resource.Verb,
		Namespace:       resource.Namespace,
		APIGroup:        resource.Group,
		APIVersion:      resource.Version,
		Resource:        resource.Resource,
		Subresource:     resource.Subresource,
		Name:            resource.Name,
		ResourceRequest: true,
	}
	if record.APIVersion == "" {
		record.APIVersion = "*"
	}
	record.LabelSelectorRequirements, record.LabelSelectorParsingErr = labelRequirements(resource.LabelSelector)
	record.FieldSelectorRequirements, record.FieldSelectorParsingErr = fieldRequirements(resource.FieldSelector)
	return record
}

var labelOperators = map[metav1.LabelSelectorOperator]selection.Operator{
	metav1.LabelSelectorOpIn:           selection.In,
	metav1.LabelSelectorOpNotIn:        selection.NotIn,
	metav1.LabelSelectorOpExists:       selection.Exists,
	metav1.LabelSelectorOpDoesNotExist: selection.DoesNotExist,
}

// labelRequirements parses a selector. Invalid requirements are omitted, which only makes
// the request broader.
func labelRequirements(selector *authorizationv1.LabelSelectorAttributes) (labels.Requirements, error) {
	if selector == nil {
		return nil, nil
	}
	if selector.RawSelector != "" {
		parsed, err := labels.Parse(selector.RawSelector)
		if err != nil {
			return nil, fmt.Errorf("parse the label selector %q: %w", selector.RawSelector, err)
		}
		requirements, _ := parsed.Requirements()
		return requirements, nil
	}
	var requirements labels.Requirements
	var errs []error
	for _, given := range selector.Requirements {
		operator, ok := labelOperators[given.Operator]
		if !ok {
			errs = append(errs, fmt.Errorf("there is no operator %q for labels", given.Operator))
			continue
		}
		requirement, err := labels.NewRequirement(given.Key, operator, given.Values)
		if err != nil {
			errs = append(errs, fmt.Errorf("requirement on label %q: %w", given.Key, err))
			continue
		}
		requirements = append(requirements, *requirement)
	}
	return requirements, errors.Join(errs...)
}

// fieldRequirements parses a field selector. A field can only be compared with one value.
func fieldRequirements(selector *authorizationv1.FieldSelectorAttributes) (fields.Requirements, error) {
	if selector == nil {
		return nil, nil
	}
	if selector.RawSelector != "" {
		parsed, err := fields.ParseSelector(selector.RawSelector)
		if err != nil {
			return nil, fmt.Errorf("parse the field selector %q: %w", selector.RawSelector, err)
		}
		return parsed.Requirements(), nil
	}
	operators := map[metav1.FieldSelectorOperator]selection.Operator{
		metav1.FieldSelectorOpIn:    selection.Equals,
		metav1.FieldSelectorOpNotIn: selection.NotEquals,
	}
	var requirements fields.Requirements
	var errs []error
	for _, given := range selector.Requirements {
		operator, ok := operators[given.Operator]
		if !ok || len(given.Values) != 1 {
			errs = append(errs, fmt.Errorf("requirement on field %q: only In and NotIn with one value are known, not %s with %d", given.Key, given.Operator, len(given.Values)))
			continue
		}
		requirements = append(requirements, fields.Requirement{Field: given.Key, Operator: operator, Value: given.Values[0]})
	}
	return requirements, errors.Join(errs...)
}

// evaluationError returns the errors of a review, which is answered nevertheless.
func evaluationError(err error, record *authorizer.AttributesRecord) string {
	var messages []string
	if err != nil {
		messages = append(messages, err.Error())
	}
	ignored := func(selector string, kept int, err error) {
		switch {
		case err == nil:
		case kept > 0:
			messages = append(messages, fmt.Sprintf("spec.resourceAttributes.%s partially ignored: %v", selector, err))
		default:
			messages = append(messages, fmt.Sprintf("spec.resourceAttributes.%s ignored: %v", selector, err))
		}
	}
	ignored("fieldSelector", len(record.FieldSelectorRequirements), record.FieldSelectorParsingErr)
	ignored("labelSelector", len(record.LabelSelectorRequirements), record.LabelSelectorParsingErr)
	return strings.Join(messages, "; ")
}
