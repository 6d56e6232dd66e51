// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package validation validates objects of flowcontrol.apiserver.k8s.io, with the messages
// of Kubernetes.
package validation

import (
	"fmt"
	"slices"
	"strings"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"

	metavalidation "github.com/annex-dev/annex/pkg/apis/meta/validation"
)

var (
	metadataPath = field.NewPath("metadata")
	specPath     = field.NewPath("spec")
	statusPath   = field.NewPath("status")
)

var (
	distinguishers = []flowcontrolv1.FlowDistinguisherMethodType{
		flowcontrolv1.FlowDistinguisherMethodByNamespaceType, flowcontrolv1.FlowDistinguisherMethodByUserType,
	}
	subjectKinds = []flowcontrolv1.SubjectKind{
		flowcontrolv1.SubjectKindGroup, flowcontrolv1.SubjectKindServiceAccount, flowcontrolv1.SubjectKindUser,
	}
	verbs = sets.New("get", "list", "create", "update", "delete", "deletecollection", "patch", "watch", "proxy")
)

// ValidateFlowSchema validates a FlowSchema.
func ValidateFlowSchema(schema *flowcontrolv1.FlowSchema) field.ErrorList {
	errs := metavalidation.ValidateObjectMeta(&schema.ObjectMeta, false, apivalidation.NameIsDNSSubdomain)
	errs = append(errs, validateFlowSchema(schema)...)
	return append(errs, ValidateFlowSchemaStatus(schema)...)
}

// ValidateFlowSchemaStatus validates the status: conditions have unique types.
func ValidateFlowSchemaStatus(schema *flowcontrolv1.FlowSchema) field.ErrorList {
	types := make([]string, 0, len(schema.Status.Conditions))
	for i := range schema.Status.Conditions {
		types = append(types, string(schema.Status.Conditions[i].Type))
	}
	return validateConditionTypes(types)
}

// validateConditionTypes checks the types of a status's conditions.
func validateConditionTypes(types []string) field.ErrorList {
	var errs field.ErrorList
	for i, conditionType := range types {
		path := statusPath.Child("conditions").Index(i).Child("type")
		if slices.Contains(types[:i], conditionType) {
			errs = append(errs, field.Duplicate(path, conditionType))
		}
		if conditionType == "" {
			errs = append(errs, field.Required(path, ""))
		}
	}
	return errs
}

func validateFlowSchema(schema *flowcontrolv1.FlowSchema) field.ErrorList {
	spec := &schema.Spec
	errs := validatePrecedence(schema.Name, spec.MatchingPrecedence)
	if method := spec.DistinguisherMethod; method != nil && !slices.Contains(distinguishers, method.Type) {
		errs = append(errs, field.NotSupported(specPath.Child("distinguisherMethod", "type"), *method, distinguishers))
	}
	levelPath := specPath.Child("priorityLevelConfiguration", "name")
	if level := spec.PriorityLevelConfiguration.Name; level == "" {
		errs = append(errs, field.Required(levelPath, "must reference a priority level"))
	} else {
		errs = append(errs, metavalidation.Invalid(levelPath, level, apivalidation.NameIsDNSSubdomain(level, false))...)
	}
	for i := range spec.Rules {
		errs = append(errs, validateRules(&spec.Rules[i], specPath.Child("rules").Index(i))...)
	}
	for _, mandatory := range bootstrap.MandatoryFlowSchemas {
		if mandatory.Name == schema.Name && !apiequality.Semantic.DeepEqual(mandatory.Spec, *spec) {
			errs = append(errs, field.Invalid(specPath, *spec, fmt.Sprintf("spec of '%s' must equal the fixed value", schema.Name)))
		}
	}
	return errs
}

func validatePrecedence(name string, precedence int32) field.ErrorList {
	path := specPath.Child("matchingPrecedence")
	switch {
	case precedence <= 0:
		return field.ErrorList{field.Invalid(path, precedence, "must be a positive value")}
	case precedence > flowcontrolv1.FlowSchemaMaxMatchingPrecedence:
		return field.ErrorList{field.Invalid(path, precedence, fmt.Sprintf("must not be greater than %v", flowcontrolv1.FlowSchemaMaxMatchingPrecedence))}
	case precedence == 1 && name != flowcontrolv1.FlowSchemaNameExempt:
		return field.ErrorList{field.Invalid(path, precedence, "only the schema named 'exempt' may have matchingPrecedence 1")}
	}
	return nil
}

func validateRules(rules *flowcontrolv1.PolicyRulesWithSubjects, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(rules.Subjects) == 0 {
		errs = append(errs, field.Required(path.Child("subjects"), "subjects must contain at least one value"))
	}
	for i := range rules.Subjects {
		errs = append(errs, validateSubject(&rules.Subjects[i], path.Child("subjects").Index(i))...)
	}
	if len(rules.ResourceRules) == 0 && len(rules.NonResourceRules) == 0 {
		errs = append(errs, field.Required(path, "at least one of resourceRules and nonResourceRules has to be non-empty"))
	}
	for i := range rules.ResourceRules {
		errs = append(errs, validateResourceRule(&rules.ResourceRules[i], path.Child("resourceRules").Index(i))...)
	}
	for i := range rules.NonResourceRules {
		errs = append(errs, validateNonResourceRule(&rules.NonResourceRules[i], path.Child("nonResourceRules").Index(i))...)
	}
	return errs
}

// validateSubject checks that only the field of the kind of subject is set.
func validateSubject(subject *flowcontrolv1.Subject, path *field.Path) field.ErrorList {
	if !slices.Contains(subjectKinds, subject.Kind) {
		return field.ErrorList{field.NotSupported(path.Child("kind"), subject.Kind, subjectKinds)}
	}
	var errs field.ErrorList
	for _, variant := range []struct {
		kind     flowcontrolv1.SubjectKind
		field    string
		set      bool
		validate func(path *field.Path) field.ErrorList
	}{
		{flowcontrolv1.SubjectKindServiceAccount, "serviceAccount", subject.ServiceAccount != nil, func(path *field.Path) field.ErrorList {
			return validateServiceAccount(subject.ServiceAccount, path)
		}},
		{flowcontrolv1.SubjectKindUser, "user", subject.User != nil, func(path *field.Path) field.ErrorList {
			return required(subject.User.Name, path.Child("name"))
		}},
		{flowcontrolv1.SubjectKindGroup, "group", subject.Group != nil, func(path *field.Path) field.ErrorList {
			return required(subject.Group.Name, path.Child("name"))
		}},
	} {
		switch path, own := path.Child(variant.field), variant.kind == subject.Kind; {
		case own && variant.set:
			errs = append(errs, variant.validate(path)...)
		case own:
			errs = append(errs, field.Required(path, fmt.Sprintf("%s is required when subject kind is '%s'", variant.field, variant.kind)))
		case variant.set:
			errs = append(errs, field.Forbidden(path, fmt.Sprintf("%s is forbidden when subject kind is not '%s'", variant.field, variant.kind)))
		}
	}
	return errs
}

func validateServiceAccount(account *flowcontrolv1.ServiceAccountSubject, path *field.Path) field.ErrorList {
	errs := required(account.Name, path.Child("name"))
	if account.Name != "" && account.Name != flowcontrolv1.NameAll {
		errs = append(errs, metavalidation.Invalid(path.Child("name"), account.Name, apivalidation.ValidateServiceAccountName(account.Name, false))...)
	}
	if account.Namespace == "" {
		return append(errs, field.Required(path.Child("namespace"), "must specify namespace for service account"))
	}
	return append(errs, metavalidation.Invalid(path.Child("namespace"), account.Namespace, apivalidation.ValidateNamespaceName(account.Namespace, false))...)
}

func validateResourceRule(rule *flowcontrolv1.ResourcePolicyRule, path *field.Path) field.ErrorList {
	errs := validateVerbs(rule.Verbs, path.Child("verbs"))
	errs = append(errs, validateNames(rule.APIGroups, path.Child("apiGroups"), "api group", "api groups")...)
	errs = append(errs, validateNames(rule.Resources, path.Child("resources"), "resource", "resources")...)

	path = path.Child("namespaces")
	switch {
	case len(rule.Namespaces) == 0 && !rule.ClusterScope:
		errs = append(errs, field.Required(path, "resource rules that are not cluster scoped must supply at least one namespace"))
	case slices.Contains(rule.Namespaces, flowcontrolv1.NamespaceEvery):
		if len(rule.Namespaces) > 1 {
			errs = append(errs, field.Invalid(path, rule.Namespaces, "if '*' is present, must not specify other namespaces"))
		}
	default:
		for i, namespace := range rule.Namespaces {
			for _, message := range apivalidation.ValidateNamespaceName(namespace, false) {
				errs = append(errs, field.Invalid(path.Index(i), namespace, "each member of this list must be '*' or a DNS-1123 label; "+message))
			}
		}
	}
	return errs
}

// validateNames validates a list of names, or only the wildcard.
func validateNames(names []string, path *field.Path, one, many string) field.ErrorList {
	switch {
	case len(names) == 0:
		return field.ErrorList{field.Required(path, "resource rules must supply at least one "+one)}
	case len(names) > 1 && slices.Contains(names, "*"):
		return field.ErrorList{field.Invalid(path, names, "if '*' is present, must not specify other "+many)}
	}
	return nil
}

func validateNonResourceRule(rule *flowcontrolv1.NonResourcePolicyRule, path *field.Path) field.ErrorList {
	errs := validateVerbs(rule.Verbs, path.Child("verbs"))
	path = path.Child("nonResourceURLs")
	switch {
	case len(rule.NonResourceURLs) == 0:
		errs = append(errs, field.Required(path, "nonResourceURLs must contain at least one value"))
	case slices.Contains(rule.NonResourceURLs, flowcontrolv1.NonResourceAll):
		if len(rule.NonResourceURLs) > 1 {
			errs = append(errs, field.Invalid(path, rule.NonResourceURLs, "if '*' is present, must not specify other non-resource URLs"))
		}
	default:
		for i, url := range rule.NonResourceURLs {
			if detail := wrongWithURL(url); detail != "" {
				errs = append(errs, field.Invalid(path.Index(i), url, detail))
			}
		}
	}
	return errs
}

func validateVerbs(given []string, path *field.Path) field.ErrorList {
	switch {
	case len(given) == 0:
		return field.ErrorList{field.Required(path, "verbs must contain at least one value")}
	case slices.Contains(given, flowcontrolv1.VerbAll):
		if len(given) > 1 {
			return field.ErrorList{field.Invalid(path, given, "if '*' is present, must not specify other verbs")}
		}
	case !verbs.HasAll(given...):
		return field.ErrorList{field.NotSupported(path, given, sets.List(verbs))}
	}
	return nil
}

// wrongWithURL returns what is invalid in a path pattern, whose only wildcard is a final
// /*.
func wrongWithURL(url string) string {
	switch {
	case url == "":
		return "must not be empty"
	case !strings.HasPrefix(url, "/"):
		return "must start with slash"
	case strings.Contains(url, " "):
		return "must not contain white-space"
	case strings.Contains(url, "//"):
		return "must not contain double slash"
	case strings.Contains(strings.TrimSuffix(url, "/*"), "*"):
		return "wildcard can only do suffix matching"
	}
	return ""
}

func required(value string, path *field.Path) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return nil
}
