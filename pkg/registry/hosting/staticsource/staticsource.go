// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package staticsource is the REST storage of StaticSources.
package staticsource

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic"

	"github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/apis/hosting/validation"
	"github.com/annex-dev/annex/pkg/registry/table"
	"github.com/annex-dev/annex/pkg/registry/typed"
)

// Storage has the endpoints of StaticSources.
type Storage struct {
	StaticSource *typed.REST
	Status       *typed.SubresourceREST
}

// NewStorage returns the endpoints of StaticSources.
func NewStorage(scheme *runtime.Scheme, getter generic.RESTOptionsGetter) (*Storage, error) {
	main := newStrategy(scheme)
	store, err := typed.NewREST(scheme, getter, typed.Resource{
		Kind:       v1alpha1.SchemeGroupVersion.WithKind("StaticSource"),
		ShortNames: []string{"ssrc"},
		Categories: []string{"annex"},
		Strategy:   main,
		Table:      tableConvertor,
	})
	if err != nil {
		return nil, err
	}
	return &Storage{StaticSource: store, Status: store.Subresource(main.ForStatus())}, nil
}

func newStrategy(typer runtime.ObjectTyper) typed.SpecStatusStrategy[*v1alpha1.StaticSource, v1alpha1.StaticSourceSpec, v1alpha1.StaticSourceStatus] {
	return typed.SpecStatusStrategy[*v1alpha1.StaticSource, v1alpha1.StaticSourceSpec, v1alpha1.StaticSourceStatus]{
		ValidatedStrategy:        typed.Validated(typed.ClusterScoped(typer), validation.ValidateStaticSource, validation.ValidateStaticSourceUpdate),
		ValidateStatusUpdateFunc: validation.ValidateStaticSourceStatusUpdate,
		Version:                  v1alpha1.SchemeGroupVersion,
		Spec:                     func(object *v1alpha1.StaticSource) *v1alpha1.StaticSourceSpec { return &object.Spec },
		Status:                   func(object *v1alpha1.StaticSource) *v1alpha1.StaticSourceStatus { return &object.Status },
	}
}

type column = table.Column[*v1alpha1.StaticSource]

var tableConvertor = table.New(v1alpha1.Resource("staticsources"),
	table.Name[*v1alpha1.StaticSource](),
	column{
		Name:        "Location",
		Description: "The folder or the URL.",
		Value:       func(source *v1alpha1.StaticSource) any { return table.OrNone(source.Spec.Location) },
	},
	column{
		Name:        "Read",
		Description: "Whether all of the source could be read.",
		Value:       func(source *v1alpha1.StaticSource) any { return status(source, v1alpha1.StaticSourceRead) },
	},
	column{
		Name:        "Applied",
		Description: "How many of the objects have a mirror that is up to date.",
		Value: func(source *v1alpha1.StaticSource) any {
			return fmt.Sprintf("%d/%d", source.Status.Applied, source.Status.Objects)
		},
	},
	column{
		Name:        "Orphaned",
		Type:        "integer",
		Description: "The number of mirrors that annex keeps although their static object is gone.",
		Value:       func(source *v1alpha1.StaticSource) any { return source.Status.Orphaned },
	},
	table.Age[*v1alpha1.StaticSource](),
	column{
		Name:        "Message",
		Description: "The first problem.",
		Priority:    table.Wide,
		Value:       message,
	},
)

func status(source *v1alpha1.StaticSource, condition string) string {
	if found := meta.FindStatusCondition(source.Status.Conditions, condition); found != nil {
		return string(found.Status)
	}
	return string(metav1.ConditionUnknown)
}

func message(source *v1alpha1.StaticSource) any {
	for _, name := range []string{v1alpha1.StaticSourceRead, v1alpha1.StaticSourceApplied} {
		if found := meta.FindStatusCondition(source.Status.Conditions, name); found != nil && found.Status != metav1.ConditionTrue {
			return found.Message
		}
	}
	return ""
}
