// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package admissionregistration

import (
	"context"
	"fmt"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/annex-dev/annex/pkg/apis/admissionregistration/validation"
	"github.com/annex-dev/annex/pkg/registry/typed"
	"github.com/annex-dev/annex/pkg/table"
)

type (
	validatingConfiguration = admissionregistrationv1.ValidatingWebhookConfiguration
	mutatingConfiguration   = admissionregistrationv1.MutatingWebhookConfiguration
)

var validatingWebhooks = newWebhooks("ValidatingWebhookConfiguration",
	newValidated(validation.ValidateValidatingWebhookConfiguration, validation.ValidateValidatingWebhookConfigurationUpdate),
	func(object *validatingConfiguration) (clients []admissionregistrationv1.WebhookClientConfig) {
		for _, webhook := range object.Webhooks {
			clients = append(clients, webhook.ClientConfig)
		}
		return clients
	})

var mutatingWebhooks = newWebhooks("MutatingWebhookConfiguration",
	newValidated(validation.ValidateMutatingWebhookConfiguration, validation.ValidateMutatingWebhookConfigurationUpdate),
	func(object *mutatingConfiguration) (clients []admissionregistrationv1.WebhookClientConfig) {
		for _, webhook := range object.Webhooks {
			clients = append(clients, webhook.ClientConfig)
		}
		return clients
	})

// newWebhooks describes a kind of webhook configurations. clients returns the client configuration of
// each webhook, in their order.
func newWebhooks[T table.Object](kind string, validated typed.ValidatedStrategy[T], clients func(T) []admissionregistrationv1.WebhookClientConfig) typed.Resource {
	strategy := webhookStrategy[T]{typed.GenerationStrategy[T]{ValidatedStrategy: validated, Field: "Webhooks"}, clients}
	return newResource(kind, strategy, table.New(admissionregistrationv1.Resource(strings.ToLower(kind)+"s"),
		table.Name[T](),
		table.Column[T]{
			Name:        "Webhooks",
			Type:        "integer",
			Description: "Webhooks indicates the number of webhooks registered in this configuration",
			Value:       func(object T) any { return int64(len(clients(object))) },
		},
		table.Age[T](),
	))
}

type webhookStrategy[T table.Object] struct {
	typed.GenerationStrategy[T]
	clients func(T) []admissionregistrationv1.WebhookClientConfig
}

// WarningsOnCreate names the webhooks that annex cannot call. They are accepted, so that a chart
// written for a cluster can be installed and then fixed.
func (s webhookStrategy[T]) WarningsOnCreate(_ context.Context, obj runtime.Object) []string {
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

func (s webhookStrategy[T]) WarningsOnUpdate(ctx context.Context, obj, _ runtime.Object) []string {
	return s.WarningsOnCreate(ctx, obj)
}
