// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package groupmove

import (
	"context"
	"fmt"
	"slices"
	"time"

	apiextensionshelpers "k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

const (
	// A server delays requests that create objects by creationDelay until a definition was established for as long
	// (crdHandler in k8s.io/apiextensions-apiserver).
	creationDelay = 2 * time.Second
	// reasonSlow is the reason of the condition UnderPressure of a Store that has space (pkg/controller/store).
	reasonSlow = "Slow"
)

// untilReady waits until the main cluster's definitions have annex's finalizer, and requests that create objects are
// not delayed in annex. They are in a group without objects, as after any new definition. If a definition was added, it
// fails, and the next attempt finds that.
func (m *moveIn) untilReady(ctx context.Context) error {
	return m.untilReported(ctx, func(ctx context.Context) (string, error) {
		definitions, err := m.mainDefinitions(ctx)
		if err != nil {
			return "", err
		}
		if added := m.added(definitions); added != nil {
			return "", fmt.Errorf("definition %s was added: its objects must be copied, too", added.Name)
		}
		if full, err := m.full(ctx); err != nil || full != "" {
			return full, err
		}
		for _, crd := range definitions {
			if !slices.Contains(crd.Finalizers, hostingv1alpha1.Finalizer(m.config.PublishedBy)) {
				return fmt.Sprintf("Waiting until definition %s of the main cluster has annex's finalizer", crd.Name), nil
			}
		}
		for _, of := range m.resources {
			if of.isEmpty() {
				continue
			}
			crd, err := m.config.AnnexDefinitions.Get(ctx, of.Name, metav1.GetOptions{})
			if err != nil {
				return "", fmt.Errorf("read definition %s in annex: %w", of.Name, err)
			}
			established := apiextensionshelpers.FindCRDCondition(crd, apiextensionsv1.Established)
			if established == nil || time.Since(established.LastTransitionTime.Time) < creationDelay {
				return fmt.Sprintf("Waiting until annex does not delay requests that create %s", of.Name), nil
			}
		}
		return "", nil
	})
}

// full returns which Store is almost full, or an empty string. Without space a switch could neither end nor be undone: both
// write to the Stores of the group, and the status to the Store default.
func (m *moveIn) full(ctx context.Context) (string, error) {
	names := sets.New(hostingv1alpha1.DefaultStoreName)
	for _, of := range m.resources {
		names.Insert(of.hosted.Spec.StoreName)
	}
	for _, name := range sets.List(names) {
		store, err := m.config.AnnexHosting.Stores().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return "", fmt.Errorf("read store %s: %w", name, err)
		}
		under := meta.FindStatusCondition(store.Status.Conditions, hostingv1alpha1.StoreUnderPressure)
		if under != nil && under.Status == metav1.ConditionTrue && under.Reason != reasonSlow {
			return fmt.Sprintf("Waiting until the Store %q has space: %s", name, under.Message), nil
		}
	}
	return "", nil
}

func (m *moveIn) added(definitions []*definition) *definition {
	for _, crd := range definitions {
		if m.named(crd.Name) == nil {
			return crd
		}
	}
	return nil
}
