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
	apiregistrationclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/typed/apiregistration/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/pki"
)

// caBundlePropagated reports whether every APIService of this annex that leads to a Service
// is verified with all of these authorities. The main cluster is asked, not a
// cache: the answer decides what annex serves with.
func caBundlePropagated(ctx context.Context, mainAPIServices apiregistrationclient.APIServiceInterface, namespace, name string, authorities []*x509.Certificate) (bool, error) {
	ours := labels.Set{hostingv1alpha1.PublishedByLabel: hostingv1alpha1.PublishedBy(namespace, name)}
	found, err := mainAPIServices.List(ctx, metav1.ListOptions{LabelSelector: ours.String()})
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

// contains is false for a bundle that nobody can read, too.
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
