// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"
	"slices"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	flowcontrolv1beta3 "k8s.io/api/flowcontrol/v1beta3"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
	"k8s.io/apiserver/pkg/util/shufflesharding"

	metavalidation "github.com/annex-dev/annex/pkg/apis/meta/validation"
)

// maxQueues bounds the memory of a level.
const maxQueues = 10_000_000

var (
	enablements = []flowcontrolv1.PriorityLevelEnablement{
		flowcontrolv1.PriorityLevelEnablementExempt, flowcontrolv1.PriorityLevelEnablementLimited,
	}
	limitResponses = []flowcontrolv1.LimitResponseType{
		flowcontrolv1.LimitResponseTypeQueue, flowcontrolv1.LimitResponseTypeReject,
	}
)

// ValidatePriorityLevelConfiguration validates a PriorityLevelConfiguration.
func ValidatePriorityLevelConfiguration(level *flowcontrolv1.PriorityLevelConfiguration) field.ErrorList {
	errs := metavalidation.ValidateObjectMeta(&level.ObjectMeta, false, apivalidation.NameIsDNSSubdomain)
	// The annotation has a meaning only in v1beta3.
	if key := flowcontrolv1beta3.PriorityLevelPreserveZeroConcurrencySharesKey; hasAnnotation(level, key) {
		errs = append(errs, field.Forbidden(metadataPath.Child("annotations"), fmt.Sprintf("annotation '%s' is forbidden", key)))
	}
	errs = append(errs, validateLevelSpec(level.Name, &level.Spec)...)
	errs = append(errs, validateMandatoryLevel(level)...)
	return append(errs, ValidatePriorityLevelConfigurationStatus(level)...)
}

// ValidatePriorityLevelConfigurationStatus validates the status: conditions have unique
// types.
func ValidatePriorityLevelConfigurationStatus(level *flowcontrolv1.PriorityLevelConfiguration) field.ErrorList {
	types := make([]string, 0, len(level.Status.Conditions))
	for i := range level.Status.Conditions {
		types = append(types, string(level.Status.Conditions[i].Type))
	}
	return validateConditionTypes(types)
}

func hasAnnotation(level *flowcontrolv1.PriorityLevelConfiguration, key string) bool {
	_, has := level.Annotations[key]
	return has
}

// validateMandatoryLevel makes the mandatory levels immutable, except how much the exempt
// one lends.
func validateMandatoryLevel(level *flowcontrolv1.PriorityLevelConfiguration) field.ErrorList {
	for _, mandatory := range bootstrap.MandatoryPriorityLevelConfigurations {
		if mandatory.Name != level.Name {
			continue
		}
		fixed, detail := mandatory.Spec.DeepCopy(), fmt.Sprintf("spec of '%s' must equal the fixed value", level.Name)
		if level.Name == flowcontrolv1.PriorityLevelConfigurationNameExempt {
			fixed.Exempt = level.Spec.Exempt
			detail = fmt.Sprintf("spec of '%s' except the 'spec.exempt' field must equal the fixed value", level.Name)
		}
		if !apiequality.Semantic.DeepEqual(*fixed, level.Spec) {
			return field.ErrorList{field.Invalid(specPath, level.Spec, detail)}
		}
	}
	return nil
}

func validateLevelSpec(name string, spec *flowcontrolv1.PriorityLevelConfigurationSpec) field.ErrorList {
	var errs field.ErrorList
	typePath, exemptPath, limitedPath := specPath.Child("type"), specPath.Child("exempt"), specPath.Child("limited")
	if (name == flowcontrolv1.PriorityLevelConfigurationNameExempt) != (spec.Type == flowcontrolv1.PriorityLevelEnablementExempt) {
		errs = append(errs, field.Invalid(typePath, spec.Type, "must be 'Exempt' if and only if `name` is 'exempt'"))
	}
	switch spec.Type {
	case flowcontrolv1.PriorityLevelEnablementExempt:
		if spec.Exempt != nil {
			errs = append(errs, validateShares(spec.Exempt.NominalConcurrencyShares, spec.Exempt.LendablePercent, exemptPath)...)
		}
	case flowcontrolv1.PriorityLevelEnablementLimited:
		if spec.Limited != nil {
			errs = append(errs, validateLimited(spec.Limited, limitedPath)...)
		}
	case "":
		errs = append(errs, field.Required(typePath, ""))
	default:
		errs = append(errs, field.NotSupported(typePath, spec.Type, enablements))
	}
	if spec.Exempt != nil && spec.Type != flowcontrolv1.PriorityLevelEnablementExempt {
		errs = append(errs, field.Forbidden(exemptPath, ""))
	}
	errs = append(errs, validateMember(spec.Limited != nil, spec.Type == flowcontrolv1.PriorityLevelEnablementLimited, limitedPath)...)
	if spec.Limited != nil {
		errs = append(errs, validateLimitResponse(&spec.Limited.LimitResponse, limitedPath.Child("limitResponse"))...)
	}
	return errs
}

// validateMember checks that a member of a union is set for its type and for no other,
// unknown ones included.
func validateMember(isSet, isType bool, path *field.Path) field.ErrorList {
	switch {
	case isSet && !isType:
		return field.ErrorList{field.Forbidden(path, "")}
	case !isSet && isType:
		return field.ErrorList{field.Required(path, "")}
	}
	return nil
}

func validateLimited(limited *flowcontrolv1.LimitedPriorityLevelConfiguration, path *field.Path) field.ErrorList {
	errs := validateShares(limited.NominalConcurrencyShares, limited.LendablePercent, path)
	if percent := limited.BorrowingLimitPercent; percent != nil && *percent < 0 {
		errs = append(errs, field.Invalid(path.Child("borrowingLimitPercent"), *percent, "if specified, must be a non-negative integer"))
	}
	response, path := &limited.LimitResponse, path.Child("limitResponse")
	if response.Type == flowcontrolv1.LimitResponseTypeQueue && response.Queuing != nil {
		errs = append(errs, validateQueuing(response.Queuing, path.Child("queuing"))...)
	}
	if response.Type != "" && !slices.Contains(limitResponses, response.Type) {
		errs = append(errs, field.NotSupported(path.Child("type"), response.Type, limitResponses))
	}
	return errs
}

func validateShares(shares, lendablePercent *int32, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if shares != nil && *shares < 0 {
		errs = append(errs, field.Invalid(path.Child("nominalConcurrencyShares"), *shares, "must be a non-negative integer"))
	}
	if lendablePercent != nil && (*lendablePercent < 0 || *lendablePercent > 100) {
		errs = append(errs, field.Invalid(path.Child("lendablePercent"), *lendablePercent, "must be between 0 and 100, inclusive"))
	}
	return errs
}

// validateLimitResponse checks what Kubernetes checks in levels of all types: the form of the
// union.
func validateLimitResponse(response *flowcontrolv1.LimitResponse, path *field.Path) field.ErrorList {
	errs := validateMember(response.Queuing != nil, response.Type == flowcontrolv1.LimitResponseTypeQueue, path.Child("queuing"))
	if response.Type == "" {
		errs = append(errs, field.Required(path.Child("type"), ""))
	}
	return errs
}

func validateQueuing(queuing *flowcontrolv1.QueuingConfiguration, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if queuing.QueueLengthLimit <= 0 {
		errs = append(errs, field.Invalid(path.Child("queueLengthLimit"), queuing.QueueLengthLimit, "must be positive"))
	}
	queuesPath := path.Child("queues")
	if queuing.Queues <= 0 {
		errs = append(errs, field.Invalid(queuesPath, queuing.Queues, "must be positive"))
	} else if queuing.Queues > maxQueues {
		errs = append(errs, field.Invalid(queuesPath, queuing.Queues, fmt.Sprintf("must not be greater than %d", maxQueues)))
	}
	return append(errs, validateHandSize(queuing, path.Child("handSize"))...)
}

// validateHandSize checks that a hash has enough bits to deal a hand of queues.
func validateHandSize(queuing *flowcontrolv1.QueuingConfiguration, path *field.Path) field.ErrorList {
	var detail string
	switch {
	case queuing.HandSize <= 0:
		detail = "must be positive"
	case queuing.HandSize > queuing.Queues:
		detail = fmt.Sprintf("should not be greater than queues (%d)", queuing.Queues)
	case shufflesharding.RequiredEntropyBits(int(queuing.Queues), int(queuing.HandSize)) > shufflesharding.MaxHashBits:
		detail = fmt.Sprintf("required entropy bits of deckSize %d and handSize %d should not be greater than %d",
			queuing.Queues, queuing.HandSize, shufflesharding.MaxHashBits)
	default:
		return nil
	}
	return field.ErrorList{field.Invalid(path, queuing.HandSize, detail)}
}
