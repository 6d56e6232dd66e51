// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package hosting

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/apis/hosting/validation"
	"github.com/annex-dev/annex/pkg/registry/typed"
	"github.com/annex-dev/annex/pkg/table"
)

var staticSources = typed.Resource{
	Kind:       v1alpha1.SchemeGroupVersion.WithKind("StaticSource"),
	ShortNames: []string{"ssrc"},
	Categories: []string{"annex"},
	Strategy:   staticSourceStrategy,
	Table:      staticSourceTable,
}

var staticSourceStrategy = typed.SpecStatusStrategy[*v1alpha1.StaticSource]{
	ValidatedStrategy:        typed.Validated(typed.ClusterScoped, validation.ValidateStaticSource, func(_, _ *v1alpha1.StaticSource) field.ErrorList { return nil }),
	ValidateStatusUpdateFunc: validation.ValidateStaticSourceStatusUpdate,
}

type staticSourceColumn = table.Column[*v1alpha1.StaticSource]

var staticSourceTable = table.New(v1alpha1.Resource("staticsources"),
	table.Name[*v1alpha1.StaticSource](),
	staticSourceColumn{
		Name:        "Location",
		Description: "The folder or the URL.",
		Value:       func(source *v1alpha1.StaticSource) any { return table.OrNone(source.Spec.Location) },
	},
	staticSourceColumn{
		Name:        "Read",
		Description: "Whether all of the source could be read.",
		Value: func(source *v1alpha1.StaticSource) any {
			return conditionStatus(source.Status.Conditions, v1alpha1.StaticSourceRead)
		},
	},
	staticSourceColumn{
		Name:        "Applied",
		Description: "How many of the objects have a mirror that is up to date.",
		Value: func(source *v1alpha1.StaticSource) any {
			return fmt.Sprintf("%d/%d", source.Status.Applied, source.Status.Objects)
		},
	},
	staticSourceColumn{
		Name:        "Orphaned",
		Type:        "integer",
		Description: "The number of mirrors that annex keeps although their static object is gone.",
		Value:       func(source *v1alpha1.StaticSource) any { return source.Status.Orphaned },
	},
	table.Age[*v1alpha1.StaticSource](),
	staticSourceColumn{
		Name:        "Message",
		Description: "The first problem.",
		Priority:    table.Wide,
		Value:       staticSourceProblem,
	},
)

func staticSourceProblem(source *v1alpha1.StaticSource) any {
	for _, name := range []string{v1alpha1.StaticSourceRead, v1alpha1.StaticSourceApplied} {
		if found := meta.FindStatusCondition(source.Status.Conditions, name); found != nil && found.Status != metav1.ConditionTrue {
			return found.Message
		}
	}
	return ""
}
