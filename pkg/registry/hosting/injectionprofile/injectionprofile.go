// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package injectionprofile is the REST storage of InjectionProfiles.
package injectionprofile

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic"

	"github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/apis/hosting/validation"
	"github.com/annex-dev/annex/pkg/registry/table"
	"github.com/annex-dev/annex/pkg/registry/typed"
)

// Storage has the endpoints of InjectionProfiles.
type Storage struct {
	InjectionProfile *typed.REST
	Status           *typed.SubresourceREST
}

// NewStorage returns the endpoints of InjectionProfiles.
func NewStorage(scheme *runtime.Scheme, getter generic.RESTOptionsGetter) (*Storage, error) {
	main := newStrategy(scheme)
	store, err := typed.NewREST(scheme, getter, typed.Resource{
		Kind:       v1alpha1.SchemeGroupVersion.WithKind("InjectionProfile"),
		ShortNames: []string{"inj"},
		Categories: []string{"annex"},
		Strategy:   main,
		Table:      tableConvertor,
	})
	if err != nil {
		return nil, err
	}
	return &Storage{InjectionProfile: store, Status: store.Subresource(main.ForStatus())}, nil
}

type strategy = typed.SpecStatusStrategy[*v1alpha1.InjectionProfile, v1alpha1.InjectionProfileSpec, v1alpha1.InjectionProfileStatus]

func newStrategy(typer runtime.ObjectTyper) strategy {
	return strategy{
		ValidatedStrategy:        typed.Validated(typed.ClusterScoped(typer), validation.ValidateInjectionProfile, validation.ValidateInjectionProfileUpdate),
		ValidateStatusUpdateFunc: validation.ValidateInjectionProfileStatusUpdate,
		Version:                  v1alpha1.SchemeGroupVersion,
		Spec:                     func(object *v1alpha1.InjectionProfile) *v1alpha1.InjectionProfileSpec { return &object.Spec },
		Status:                   func(object *v1alpha1.InjectionProfile) *v1alpha1.InjectionProfileStatus { return &object.Status },
	}
}

type column = table.Column[*v1alpha1.InjectionProfile]

var tableConvertor = table.New(v1alpha1.Resource("injectionprofiles"),
	table.Name[*v1alpha1.InjectionProfile](),
	column{
		Name:        "Ready",
		Description: "Whether the profile fits the definitions of all targets.",
		Value:       ready,
	},
	column{
		Name:        "Priority",
		Type:        "integer",
		Description: "Of the profiles that select an object, the one with the highest priority is applied.",
		Value:       func(profile *v1alpha1.InjectionProfile) any { return int64(profile.Spec.Priority) },
	},
	column{
		Name:        "Mode",
		Description: "Whether objects opt out of injection, or in.",
		Value:       func(profile *v1alpha1.InjectionProfile) any { return string(profile.Spec.Mode) },
	},
	column{
		Name:        "Resources",
		Description: "The resources whose pod templates are changed.",
		Value:       resources,
	},
	table.Age[*v1alpha1.InjectionProfile](),
	column{
		Name:        "Message",
		Description: "What does not fit.",
		Priority:    table.Wide,
		Value:       message,
	},
)

func ready(profile *v1alpha1.InjectionProfile) any {
	if condition := meta.FindStatusCondition(profile.Status.Conditions, v1alpha1.InjectionProfileReady); condition != nil {
		return string(condition.Status)
	}
	return string(metav1.ConditionUnknown)
}

func message(profile *v1alpha1.InjectionProfile) any {
	if condition := meta.FindStatusCondition(profile.Status.Conditions, v1alpha1.InjectionProfileReady); condition != nil {
		return condition.Message
	}
	return ""
}

func resources(profile *v1alpha1.InjectionProfile) any {
	var names []string
	for _, target := range profile.Spec.Targets {
		names = append(names, target.Resource)
	}
	return strings.Join(names, ",")
}
