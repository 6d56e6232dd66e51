// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package hostedresource

import (
	"context"
	"fmt"

	apiextensionshelpers "k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// definitionStoreReady is the condition of a definition that is being deleted and has to
// wait for its Store.
const definitionStoreReady = apiextensionsv1.CustomResourceDefinitionConditionType("StoreReady")

// setDefinitionStored says in a definition that is being deleted whether the Store works that
// its objects have to be deleted from first. What deletes them fails for as long as it
// does not, and tries again at longer and longer intervals, but at once when anything
// else in the definition changes: it goes on when this says that the Store is back.
func (r *reconciler) setDefinitionStored(ctx context.Context, crd *definition, stored metav1.Condition) error {
	if crd == nil || crd.DeletionTimestamp.IsZero() || !needsDefinitionStored(crd, stored) {
		return nil
	}
	explained := crd.DeepCopy()
	apiextensionshelpers.SetCRDCondition(explained, apiextensionsv1.CustomResourceDefinitionCondition{
		Type:    definitionStoreReady,
		Status:  apiextensionsv1.ConditionStatus(stored.Status),
		Reason:  stored.Reason,
		Message: stored.Message,
	})
	if err := r.updateDefinitionStatus(ctx, explained); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("say in custom resource definition %s what its deletion waits for: %w", crd.Name, err)
	}
	return nil
}

// needsDefinitionStored reports whether a definition does not say yet that its Store is away, or
// back. One that never was away is not worth a word.
func needsDefinitionStored(crd *definition, stored metav1.Condition) bool {
	said := apiextensionshelpers.FindCRDCondition(crd, definitionStoreReady)
	switch {
	case stored.Status == metav1.ConditionUnknown || stored.Reason == reasonNoStore:
		return false
	case said == nil:
		return stored.Status == metav1.ConditionFalse
	default:
		return string(said.Status) != string(stored.Status) || said.Reason != stored.Reason
	}
}
