// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package hosting

import (
	"strings"

	"github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/apis/hosting/validation"
	"github.com/annex-dev/annex/pkg/registry/typed"
	"github.com/annex-dev/annex/pkg/table"
)

var injectionProfiles = typed.Resource{
	Kind:       v1alpha1.SchemeGroupVersion.WithKind("InjectionProfile"),
	ShortNames: []string{"inj"},
	Categories: []string{"annex"},
	Strategy:   injectionProfileStrategy,
	Table:      injectionProfileTable,
}

var injectionProfileStrategy = typed.SpecStatusStrategy[*v1alpha1.InjectionProfile]{
	ValidatedStrategy:        typed.Validated(typed.ClusterScoped, validation.ValidateInjectionProfile, validation.ValidateInjectionProfileUpdate),
	ValidateStatusUpdateFunc: validation.ValidateInjectionProfileStatusUpdate,
}

type injectionProfileColumn = table.Column[*v1alpha1.InjectionProfile]

var injectionProfileTable = table.New(v1alpha1.Resource("injectionprofiles"),
	table.Name[*v1alpha1.InjectionProfile](),
	injectionProfileColumn{
		Name:        "Ready",
		Description: "Whether the profile fits the definitions of all targets.",
		Value: func(profile *v1alpha1.InjectionProfile) any {
			return conditionStatus(profile.Status.Conditions, v1alpha1.InjectionProfileReady)
		},
	},
	injectionProfileColumn{
		Name:        "Priority",
		Type:        "integer",
		Description: "Of the profiles that select an object, the one with the highest priority is applied.",
		Priority:    table.Wide,
		Value:       func(profile *v1alpha1.InjectionProfile) any { return int64(profile.Spec.Priority) },
	},
	injectionProfileColumn{
		Name:        "Mode",
		Description: "Whether objects opt out of injection, or in.",
		Value:       func(profile *v1alpha1.InjectionProfile) any { return string(profile.Spec.Mode) },
	},
	injectionProfileColumn{
		Name:        "Resources",
		Description: "The resources whose pod templates are changed.",
		Value:       injectedResources,
	},
	table.Age[*v1alpha1.InjectionProfile](),
	injectionProfileColumn{
		Name:        "Message",
		Description: "What does not fit.",
		Priority:    table.Wide,
		Value: func(profile *v1alpha1.InjectionProfile) any {
			return conditionMessage(profile.Status.Conditions, v1alpha1.InjectionProfileReady)
		},
	},
)

func injectedResources(profile *v1alpha1.InjectionProfile) any {
	var names []string
	for _, target := range profile.Spec.Targets {
		names = append(names, target.Resource)
	}
	return strings.Join(names, ",")
}
