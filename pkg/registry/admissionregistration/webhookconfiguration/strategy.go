// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package webhookconfiguration is the REST storage of validating and mutating
// webhook configurations.
package webhookconfiguration

import (
	"context"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/annex-dev/annex/pkg/apis/admissionregistration/validation"
	"github.com/annex-dev/annex/pkg/registry/table"
	"github.com/annex-dev/annex/pkg/registry/typed"
)

// strategy is that of both kinds, T being one of them.
type strategy[T table.Object] struct {
	typed.BaseStrategy
	// clients are how each of the webhooks is called, in their order.
	clients        func(T) []admissionregistrationv1.WebhookClientConfig
	webhooks       func(T) any
	validate       func(T) field.ErrorList
	validateUpdate func(updated, old T) field.ErrorList
}

func (strategy[T]) PrepareForCreate(_ context.Context, obj runtime.Object) {
	obj.(T).SetGeneration(1)
}

func (s strategy[T]) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	if !apiequality.Semantic.DeepEqual(s.webhooks(obj.(T)), s.webhooks(old.(T))) {
		obj.(T).SetGeneration(old.(T).GetGeneration() + 1)
	}
}

func (s strategy[T]) Validate(_ context.Context, obj runtime.Object) field.ErrorList {
	return append(s.validate(obj.(T)), validation.ValidateNewName(obj.(T).GetName())...)
}

func (s strategy[T]) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	return s.validateUpdate(obj.(T), old.(T))
}

// AllowUnconditionalUpdate is false: who changes webhooks must have seen them.
func (strategy[T]) AllowUnconditionalUpdate(context.Context) bool { return false }

func (s strategy[T]) WarningsOnCreate(_ context.Context, obj runtime.Object) []string {
	return s.warnings(obj)
}

func (s strategy[T]) WarningsOnUpdate(_ context.Context, obj, _ runtime.Object) []string {
	return s.warnings(obj)
}

// warnings tells which webhooks annex cannot call. They are not refused: a chart
// that was written for a cluster can be installed as it is, and repaired then.
func (s strategy[T]) warnings(obj runtime.Object) []string {
	var warnings []string
	for i, client := range s.clients(obj.(T)) {
		if client.Service == nil {
			continue
		}
		path := field.NewPath("webhooks").Index(i).Child("clientConfig")
		warnings = append(warnings, fmt.Sprintf("%s: annex alone has no Services to reach %s/%s through: calls will fail, and the webhook's failurePolicy applies; set %s instead",
			path.Child("service"), client.Service.Namespace, client.Service.Name, path.Child("url")))
	}
	return warnings
}
