// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package servingca

import (
	"context"
	"crypto/x509"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/pki"
)

// isPropagated reports whether each of annex's APIServices that points to a
// Service has all of these authorities in its CA bundle. It reads from the main cluster
// and not from a cache, because the result decides which certificate annex serves.
func (c *Config) isPropagated(ctx context.Context, authorities []*x509.Certificate) (bool, error) {
	ours := labels.Set{hostingv1alpha1.PublishedByLabel: hostingv1alpha1.PublishedBy(c.Namespace, c.Name)}
	found, err := c.MainAPIServices.List(ctx, metav1.ListOptions{LabelSelector: ours.String()})
	if err != nil {
		return false, fmt.Errorf("list the APIServices of annex in the main cluster: %w", err)
	}
	for i := range found.Items {
		spec := &found.Items[i].Spec
		if spec.Service != nil && !contains(spec.CABundle, authorities) {
			return false, nil
		}
	}
	return true, nil
}

// contains returns false for an unreadable bundle.
func contains(bundle []byte, authorities []*x509.Certificate) bool {
	has, err := pki.ParseBundle(bundle)
	if err != nil {
		return false
	}
	for _, authority := range authorities {
		if !slices.ContainsFunc(has, authority.Equal) {
			return false
		}
	}
	return true
}
