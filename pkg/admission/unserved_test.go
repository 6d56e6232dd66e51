// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/annex-dev/annex/pkg/test/expect"
)

// served is a main cluster that serves these resources, or none and an error.
type served []string

func (s served) ServerResourcesForGroupVersionWithContext(context.Context, string) (*metav1.APIResourceList, error) {
	if s == nil {
		return nil, errors.New("connection refused")
	}
	list := &metav1.APIResourceList{}
	for _, name := range s {
		list.APIResources = append(list.APIResources, metav1.APIResource{Name: name})
	}
	return list, nil
}

func TestUnserved(t *testing.T) {
	t.Parallel()
	webhooks := served{"mutatingwebhookconfigurations", "validatingwebhookconfigurations"}
	validating := slices.Concat(webhooks, served{"validatingadmissionpolicies", "validatingadmissionpolicies/status", "validatingadmissionpolicybindings"})
	tests := map[string]struct {
		main served
		want []string
	}{
		"1.29":                             {webhooks, []string{"MutatingAdmissionPolicy", "ValidatingAdmissionPolicy"}},
		"1.30":                             {validating, []string{"MutatingAdmissionPolicy"}},
		"1.36":                             {slices.Concat(validating, served{"mutatingadmissionpolicies", "mutatingadmissionpolicybindings"}), []string{}},
		"half of what a plugin must watch": {slices.Concat(validating, served{"mutatingadmissionpolicies"}), []string{"MutatingAdmissionPolicy"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := Unserved(t.Context(), test.main)
			expect.NoError(t, err)
			expect.Equal(t, test.want, sets.List(got), "plugins to disable")
		})
	}
	// Plugins must not be disabled because discovery fails.
	if _, err := Unserved(t.Context(), served(nil)); err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("main cluster unavailable: got %v", err)
	}
}
