// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package webhookconfiguration

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic"

	"github.com/annex-dev/annex/pkg/apis/admissionregistration/validation"
	"github.com/annex-dev/annex/pkg/registry/typed"
)

// categories are what kubectl lists these kinds under, as in Kubernetes.
var categories = []string{"api-extensions"}

// NewValidatingStorage returns the endpoint of validating webhook configurations.
func NewValidatingStorage(typer runtime.ObjectTyper, getter generic.RESTOptionsGetter) (*typed.REST, error) {
	return typed.NewREST(typed.Resource{
		Resource:   admissionregistrationv1.Resource("validatingwebhookconfigurations"),
		Singular:   "validatingwebhookconfiguration",
		Categories: categories,
		New:        func() runtime.Object { return &admissionregistrationv1.ValidatingWebhookConfiguration{} },
		NewList:    func() runtime.Object { return &admissionregistrationv1.ValidatingWebhookConfigurationList{} },
		Strategy: strategy[*admissionregistrationv1.ValidatingWebhookConfiguration]{
			BaseStrategy: typed.ClusterScoped(typer),
			clients: func(configuration *admissionregistrationv1.ValidatingWebhookConfiguration) []admissionregistrationv1.WebhookClientConfig {
				var clients []admissionregistrationv1.WebhookClientConfig
				for _, webhook := range configuration.Webhooks {
					clients = append(clients, webhook.ClientConfig)
				}
				return clients
			},
			webhooks: func(configuration *admissionregistrationv1.ValidatingWebhookConfiguration) any {
				return configuration.Webhooks
			},
			validate:       validation.ValidateValidatingWebhookConfiguration,
			validateUpdate: validation.ValidateValidatingWebhookConfigurationUpdate,
		},
		Table: validatingTable,
	}, getter)
}

// NewMutatingStorage returns the endpoint of mutating webhook configurations.
func NewMutatingStorage(typer runtime.ObjectTyper, getter generic.RESTOptionsGetter) (*typed.REST, error) {
	return typed.NewREST(typed.Resource{
		Resource:   admissionregistrationv1.Resource("mutatingwebhookconfigurations"),
		Singular:   "mutatingwebhookconfiguration",
		Categories: categories,
		New:        func() runtime.Object { return &admissionregistrationv1.MutatingWebhookConfiguration{} },
		NewList:    func() runtime.Object { return &admissionregistrationv1.MutatingWebhookConfigurationList{} },
		Strategy: strategy[*admissionregistrationv1.MutatingWebhookConfiguration]{
			BaseStrategy: typed.ClusterScoped(typer),
			clients: func(configuration *admissionregistrationv1.MutatingWebhookConfiguration) []admissionregistrationv1.WebhookClientConfig {
				var clients []admissionregistrationv1.WebhookClientConfig
				for _, webhook := range configuration.Webhooks {
					clients = append(clients, webhook.ClientConfig)
				}
				return clients
			},
			webhooks: func(configuration *admissionregistrationv1.MutatingWebhookConfiguration) any {
				return configuration.Webhooks
			},
			validate:       validation.ValidateMutatingWebhookConfiguration,
			validateUpdate: validation.ValidateMutatingWebhookConfigurationUpdate,
		},
		Table: mutatingTable,
	}, getter)
}
