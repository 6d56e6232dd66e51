// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package flowcontrol is the REST storage of flowcontrol.apiserver.k8s.io.
package flowcontrol

import (
	"cmp"
	"context"
	"slices"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"github.com/annex-dev/annex/pkg/apis/flowcontrol/validation"
	"github.com/annex-dev/annex/pkg/registry/typed"
	"github.com/annex-dev/annex/pkg/table"
)

// NewGroup creates the storage of flowcontrol.apiserver.k8s.io.
func NewGroup(getter generic.RESTOptionsGetter) (genericapiserver.APIGroupInfo, error) {
	return typed.NewGroup(flowcontrolv1.SchemeGroupVersion, getter, flowSchemas, priorityLevels)
}

type flowSchemaColumn = table.Column[*flowcontrolv1.FlowSchema]

var flowSchemaDoc = flowcontrolv1.FlowSchemaSpec{}.SwaggerDoc()

var flowSchemas = typed.Resource{
	Kind: flowcontrolv1.SchemeGroupVersion.WithKind("FlowSchema"),
	Strategy: typed.SpecStatusStrategy[*flowcontrolv1.FlowSchema]{
		ValidatedStrategy: typed.Validated(typed.ClusterScoped, validation.ValidateFlowSchema, nil),
		ValidateStatusUpdateFunc: func(updated, _ *flowcontrolv1.FlowSchema) field.ErrorList {
			return validation.ValidateFlowSchemaStatus(updated)
		},
	},
	Table: inOrder{table.New(flowcontrolv1.Resource("flowschemas"),
		table.Name[*flowcontrolv1.FlowSchema](),
		flowSchemaColumn{
			Name:        "PriorityLevel",
			Description: flowSchemaDoc["priorityLevelConfiguration"],
			Value:       func(schema *flowcontrolv1.FlowSchema) any { return schema.Spec.PriorityLevelConfiguration.Name },
		},
		flowSchemaColumn{
			Name:        "MatchingPrecedence",
			Type:        "integer",
			Description: flowSchemaDoc["matchingPrecedence"],
			Value:       func(schema *flowcontrolv1.FlowSchema) any { return int64(schema.Spec.MatchingPrecedence) },
		},
		flowSchemaColumn{
			Name:        "DistinguisherMethod",
			Description: flowSchemaDoc["distinguisherMethod"],
			Value: func(schema *flowcontrolv1.FlowSchema) any {
				if schema.Spec.DistinguisherMethod == nil {
					return table.None
				}
				return string(schema.Spec.DistinguisherMethod.Type)
			},
		},
		table.Age[*flowcontrolv1.FlowSchema](),
		flowSchemaColumn{
			Name:        "MissingPL",
			Description: "references a broken or non-existent PriorityLevelConfiguration",
			Value:       missingLevel,
		},
	)},
}

func missingLevel(schema *flowcontrolv1.FlowSchema) any {
	for i := range schema.Status.Conditions {
		if condition := &schema.Status.Conditions[i]; condition.Type == flowcontrolv1.FlowSchemaConditionDangling {
			return string(condition.Status)
		}
	}
	return "?"
}

// inOrder sorts schemas by matching precedence.
type inOrder struct {
	rest.TableConvertor
}

// ConvertToTable implements rest.TableConvertor.
func (c inOrder) ConvertToTable(ctx context.Context, object runtime.Object, tableOptions runtime.Object) (*metav1.Table, error) {
	converted, err := c.TableConvertor.ConvertToTable(ctx, object, tableOptions)
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(converted.Rows, func(a, b metav1.TableRow) int {
		first, second := a.Object.Object.(*flowcontrolv1.FlowSchema), b.Object.Object.(*flowcontrolv1.FlowSchema)
		return cmp.Or(
			cmp.Compare(first.Spec.MatchingPrecedence, second.Spec.MatchingPrecedence),
			cmp.Compare(first.Name, second.Name),
		)
	})
	return converted, nil
}
