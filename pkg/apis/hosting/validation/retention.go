// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"
	"regexp"
	"strings"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	metavalidation "github.com/annex-dev/annex/pkg/apis/meta/validation"
)

const (
	maxRetentionRules  = 16
	maxPhaseValues     = 32
	maxConditionType   = 316 // as in metav1.Condition
	maxFieldPathLength = 256

	// maxDeletionsPerSecond is more than an etcd writes.
	maxDeletionsPerSecond = 1000
	// maxKeptNewest bounds the memory of a group.
	maxKeptNewest = 10_000
	// maxAfterSeconds is a hundred years, which fits into a time.Duration.
	maxAfterSeconds = 100 * 366 * 24 * 60 * 60
)

var (
	retentionGroups = sets.New(hostingv1alpha1.RetentionPerNamespace, hostingv1alpha1.RetentionPerLabel, hostingv1alpha1.RetentionPerOwner)

	conditionStatuses = sets.New(metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown)

	fieldPath = regexp.MustCompile(`^(\.[A-Za-z_$][A-Za-z0-9_$-]*)+$`)
)

// validateRetention cannot check paths against the schema, because a HostedResource may exist
// before its definition.
func validateRetention(retention *hostingv1alpha1.Retention, path *field.Path) field.ErrorList {
	if retention == nil {
		return nil
	}
	errs := validateRange(int64(retention.DeletionsPerSecond), 1, maxDeletionsPerSecond, path.Child("deletionsPerSecond"))
	rulesPath := path.Child("rules")
	switch {
	case len(retention.Rules) == 0:
		errs = append(errs, field.Required(rulesPath, "without a rule nothing is deleted; remove the retention instead"))
	case len(retention.Rules) > maxRetentionRules:
		errs = append(errs, field.TooMany(rulesPath, len(retention.Rules), maxRetentionRules))
	}
	seen := sets.New[string]()
	for i := range retention.Rules {
		rule, rulePath := &retention.Rules[i], rulesPath.Index(i)
		errs = append(errs, validateRetentionRule(rule, rulePath)...)
		if seen.Has(rule.Name) {
			errs = append(errs, field.Duplicate(rulePath.Child("name"), rule.Name))
		}
		seen.Insert(rule.Name)
	}
	return errs
}

func validateRetentionRule(rule *hostingv1alpha1.RetentionRule, path *field.Path) field.ErrorList {
	errs := metavalidation.ValidateRequiredName(rule.Name, apivalidation.NameIsDNSLabel, path.Child("name"))
	errs = append(errs, metav1validation.ValidateLabelSelector(rule.Selector, metav1validation.LabelSelectorValidationOptions{}, path.Child("selector"))...)
	errs = append(errs, validateRange(rule.AfterSeconds, 0, maxAfterSeconds, path.Child("afterSeconds"))...)
	fields := 0
	if rule.Condition != nil {
		fields++
		errs = append(errs, validateRetentionCondition(rule.Condition, path.Child("condition"))...)
	}
	if rule.Phase != nil {
		fields++
		errs = append(errs, validateRetentionPhase(rule.Phase, path.Child("phase"))...)
	}
	if rule.Timestamp != nil {
		fields++
		errs = append(errs, validateFieldPath(rule.Timestamp.Path, path.Child("timestamp", "path"))...)
	}
	switch {
	case fields > 1:
		errs = append(errs, field.Forbidden(path, "a rule may have one of `condition`, `phase` and `timestamp`"))
	case fields == 0 && rule.KeepNewest == nil && rule.AfterSeconds == 0:
		errs = append(errs, field.Required(path.Child("afterSeconds"), "the rule would delete every object as soon as it is created"))
	}
	return append(errs, validateRetentionKeepNewest(rule.KeepNewest, path.Child("keepNewest"))...)
}

func validateRetentionCondition(condition *hostingv1alpha1.RetentionCondition, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch {
	case condition.Type == "":
		errs = append(errs, field.Required(path.Child("type"), ""))
	case len(condition.Type) > maxConditionType:
		errs = append(errs, field.TooLong(path.Child("type"), "", maxConditionType))
	}
	return append(errs, validateEnum(condition.Status, conditionStatuses, path.Child("status"))...)
}

func validateRetentionPhase(phase *hostingv1alpha1.RetentionPhase, path *field.Path) field.ErrorList {
	errs := validateFieldPath(phase.Path, path.Child("path"))
	if phase.TimestampPath != "" {
		errs = append(errs, validateFieldPath(phase.TimestampPath, path.Child("timestampPath"))...)
	}
	valuesPath := path.Child("values")
	switch {
	case len(phase.Values) == 0:
		errs = append(errs, field.Required(valuesPath, ""))
	case len(phase.Values) > maxPhaseValues:
		errs = append(errs, field.TooMany(valuesPath, len(phase.Values), maxPhaseValues))
	}
	seen := sets.New[string]()
	for i, value := range phase.Values {
		if value == "" {
			errs = append(errs, field.Required(valuesPath.Index(i), ""))
		}
		if seen.Has(value) {
			errs = append(errs, field.Duplicate(valuesPath.Index(i), value))
		}
		seen.Insert(value)
	}
	return errs
}

func validateRetentionKeepNewest(keep *hostingv1alpha1.RetentionKeepNewest, path *field.Path) field.ErrorList {
	if keep == nil {
		return nil
	}
	errs := validateRange(int64(keep.Count), 1, maxKeptNewest, path.Child("count"))
	errs = append(errs, validateEnum(keep.Per, retentionGroups, path.Child("per"))...)
	labelPath := path.Child("labelKey")
	switch {
	case keep.Per != hostingv1alpha1.RetentionPerLabel && keep.LabelKey != "":
		errs = append(errs, field.Forbidden(labelPath, "may be set only if `per` is Label"))
	case keep.Per == hostingv1alpha1.RetentionPerLabel && keep.LabelKey == "":
		errs = append(errs, field.Required(labelPath, "required if `per` is Label"))
	case keep.LabelKey != "":
		errs = append(errs, metav1validation.ValidateLabelName(keep.LabelKey, labelPath)...)
	}
	return errs
}

// validateFieldPath accepts paths of fields of objects, without elements of lists.
func validateFieldPath(path string, at *field.Path) field.ErrorList {
	switch {
	case path == "":
		return field.ErrorList{field.Required(at, "")}
	case len(path) > maxFieldPathLength:
		return field.ErrorList{field.TooLong(at, "", maxFieldPathLength)}
	case !fieldPath.MatchString(path):
		return field.ErrorList{field.Invalid(at, path, validation.RegexError("must be the path of a field", fieldPath.String(), ".status.phase"))}
	case path == ".metadata" || strings.HasPrefix(path, ".metadata."):
		return field.ErrorList{field.Invalid(at, path, "must not be in metadata: use `selector`, or a rule without a field for the creation")}
	}
	return nil
}

func validateRange(value, least, most int64, path *field.Path) field.ErrorList {
	if value < least || value > most {
		return field.ErrorList{field.Invalid(path, value, fmt.Sprintf("must be between %d and %d", least, most))}
	}
	return nil
}

func validateRetentionStatus(status *hostingv1alpha1.RetentionStatus, path *field.Path) field.ErrorList {
	if status == nil {
		return nil
	}
	errs := apivalidation.ValidateNonnegativeField(status.Deleted, path.Child("deleted"))
	errs = append(errs, apivalidation.ValidateNonnegativeField(status.Archived, path.Child("archived"))...)
	for i, rule := range status.Rules {
		rulePath := path.Child("rules").Index(i)
		errs = append(errs, apivalidation.ValidateNonnegativeField(rule.Matched, rulePath.Child("matched"))...)
		errs = append(errs, apivalidation.ValidateNonnegativeField(rule.Due, rulePath.Child("due"))...)
		errs = append(errs, apivalidation.ValidateNonnegativeField(rule.Skipped, rulePath.Child("skipped"))...)
		errs = append(errs, apivalidation.ValidateNonnegativeField(rule.Deleted, rulePath.Child("deleted"))...)
	}
	return errs
}
