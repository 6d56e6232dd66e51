// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package admissionregistration

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/annex-dev/annex/pkg/table"
)

// unset is printed for missing parameters, as in Kubernetes.
const unset = "<unset>"

var (
	validatingTable = newPolicyTable("validatingadmissionpolicies", table.Column[*validatingPolicy]{
		Name:        "Validations",
		Description: "Validations indicates the number of validation rules defined in this configuration",
		Value:       func(policy *validatingPolicy) any { return int64(len(policy.Spec.Validations)) },
	}, validatingParamKind)

	mutatingTable = newPolicyTable("mutatingadmissionpolicies", table.Column[*mutatingPolicy]{
		Name:        "Mutations",
		Description: "Mutation indicates the number of mutations rules defined in this configuration",
		Value:       func(policy *mutatingPolicy) any { return int64(len(policy.Spec.Mutations)) },
	}, mutatingParamKind)

	validatingBindingTable = newBindingTable("validatingadmissionpolicybindings", validatingReference)
	mutatingBindingTable   = newBindingTable("mutatingadmissionpolicybindings", mutatingReference)
)

func newPolicyTable[T table.Object](resource string, rules table.Column[T], kindOf func(T) *admissionregistrationv1.ParamKind) rest.TableConvertor {
	rules.Type = "integer"
	return table.New(admissionregistrationv1.Resource(resource),
		table.Name[T](),
		rules,
		table.Column[T]{
			Name:        "ParamKind",
			Description: "ParamKind specifies the kind of resources used to parameterize this policy",
			Value: func(policy T) any {
				kind := kindOf(policy)
				if kind == nil {
					return unset
				}
				return kind.APIVersion + "/" + kind.Kind
			},
		},
		table.Age[T](),
	)
}

func newBindingTable[T table.Object](resource string, referenceOf func(T) reference) rest.TableConvertor {
	return table.New(admissionregistrationv1.Resource(resource),
		table.Name[T](),
		table.Column[T]{
			Name:        "PolicyName",
			Description: "PolicyName indicates the policy definition which the policy binding binded to",
			Value:       func(binding T) any { return referenceOf(binding).policy },
		},
		table.Column[T]{
			Name:        "ParamRef",
			Description: "ParamRef indicates the param resource which sets the configuration param",
			Value:       func(binding T) any { return paramsCell(referenceOf(binding).params) },
		},
		table.Age[T](),
	)
}

// paramsCell returns the parameters. Their kind, and so whether they are namespaced, is
// unknown.
func paramsCell(params *admissionregistrationv1.ParamRef) string {
	switch {
	case params == nil:
		return unset
	case params.Name != "" && params.Namespace != "":
		return params.Namespace + "/" + params.Name
	case params.Name != "":
		return "*/" + params.Name
	case params.Selector != nil:
		return metav1.FormatLabelSelector(params.Selector)
	default:
		return unset
	}
}
