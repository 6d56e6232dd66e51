// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package webhookconfiguration

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/annex-dev/annex/pkg/registry/table"
)

var (
	validatingTable = newTable("validatingwebhookconfigurations", func(configuration *admissionregistrationv1.ValidatingWebhookConfiguration) int {
		return len(configuration.Webhooks)
	})
	mutatingTable = newTable("mutatingwebhookconfigurations", func(configuration *admissionregistrationv1.MutatingWebhookConfiguration) int {
		return len(configuration.Webhooks)
	})
)

func newTable[T table.Object](resource string, webhooks func(T) int) rest.TableConvertor {
	return table.New(admissionregistrationv1.Resource(resource),
		table.Name[T](),
		table.Column[T]{
			Name:        "Webhooks",
			Type:        "integer",
			Description: "Webhooks indicates the number of webhooks registered in this configuration",
			Value:       func(configuration T) any { return int64(webhooks(configuration)) },
		},
		table.Age[T](),
	)
}
