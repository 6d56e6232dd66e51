// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package webhookconfiguration is the REST storage of validating and mutating
// webhook configurations.
package webhookconfiguration

import (
	"context"
	"fmt"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/annex-dev/annex/pkg/apis/admissionregistration/validation"
	"github.com/annex-dev/annex/pkg/registry/table"
	"github.com/annex-dev/annex/pkg/registry/typed"
)

// ValidatingResource describes validating webhook configurations.
func ValidatingResource(typer runtime.ObjectTyper) typed.Resource {
	type configuration = admissionregistrationv1.ValidatingWebhookConfiguration
	return newResource("ValidatingWebhookConfiguration", strategy[*configuration]{
		ValidatedStrategy: typed.Validated(typed.ClusterScoped(typer),
			validation.ValidateValidatingWebhookConfiguration, validation.ValidateValidatingWebhookConfigurationUpdate),
		webhooks: func(object *configuration) any { return object.Webhooks },
		clients: func(object *configuration) (clients []admissionregistrationv1.WebhookClientConfig) {
			for _, webhook := range object.Webhooks {
				clients = append(clients, webhook.ClientConfig)
			}
			return clients
		},
	})
}

// MutatingResource describes mutating webhook configurations.
func MutatingResource(typer runtime.ObjectTyper) typed.Resource {
	type configuration = admissionregistrationv1.MutatingWebhookConfiguration
	return newResource("MutatingWebhookConfiguration", strategy[*configuration]{
		ValidatedStrategy: typed.Validated(typed.ClusterScoped(typer),
			validation.ValidateMutatingWebhookConfiguration, validation.ValidateMutatingWebhookConfigurationUpdate),
		webhooks: func(object *configuration) any { return object.Webhooks },
		clients: func(object *configuration) (clients []admissionregistrationv1.WebhookClientConfig) {
			for _, webhook := range object.Webhooks {
				clients = append(clients, webhook.ClientConfig)
			}
			return clients
		},
	})
}

func newResource[T table.Object](kind string, strategy strategy[T]) typed.Resource {
	return typed.Resource{
		Kind:       admissionregistrationv1.SchemeGroupVersion.WithKind(kind),
		Categories: []string{"api-extensions"},
		Strategy:   strategy,
		Table: table.New(admissionregistrationv1.Resource(strings.ToLower(kind)+"s"),
			table.Name[T](),
			table.Column[T]{
				Name:        "Webhooks",
				Type:        "integer",
				Description: "Webhooks indicates the number of webhooks registered in this configuration",
				Value:       func(object T) any { return int64(len(strategy.clients(object))) },
			},
			table.Age[T](),
		),
	}
}

// strategy is that of both kinds T.
type strategy[T table.Object] struct {
	typed.ValidatedStrategy[T]
	webhooks func(T) any
	// clients returns how each of the webhooks is called, in their order.
	clients func(T) []admissionregistrationv1.WebhookClientConfig
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
	return append(s.ValidateFunc(obj.(T)), validation.ValidateNewName(obj.(T).GetName())...)
}

// AllowUnconditionalUpdate is false: an update of webhooks must have read them first.
func (strategy[T]) AllowUnconditionalUpdate(context.Context) bool { return false }

func (s strategy[T]) WarningsOnCreate(_ context.Context, obj runtime.Object) []string {
	return s.warnings(obj)
}

func (s strategy[T]) WarningsOnUpdate(_ context.Context, obj, _ runtime.Object) []string {
	return s.warnings(obj)
}

// warnings names the webhooks that annex cannot call. They are accepted, so that a chart
// written for a cluster can be installed and then fixed.
func (s strategy[T]) warnings(obj runtime.Object) []string {
	var warnings []string
	for i, client := range s.clients(obj.(T)) {
		if client.Service == nil {
			continue
		}
		path := field.NewPath("webhooks").Index(i).Child("clientConfig")
		warnings = append(warnings, fmt.Sprintf("%s: a standalone annex has no Services to reach %s/%s: calls will fail, and the webhook's failurePolicy applies; set %s instead",
			path.Child("service"), client.Service.Namespace, client.Service.Name, path.Child("url")))
	}
	return warnings
}
