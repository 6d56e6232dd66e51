// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/controller/framework"
)

// lostStore returns the Store of the Migration that was deleted after its etcd was lost, if any.
func (r *run) lostStore(ctx context.Context) (string, error) {
	for _, name := range []string{r.Migration.Spec.StoreName, r.Status.FromStoreName} {
		store, err := framework.IgnoreNotFound(r.config.AnnexHosting.Stores().Get(ctx, name, metav1.GetOptions{}))
		if err != nil {
			return "", fmt.Errorf("read store %s: %w", name, err)
		}
		if store == nil || store.DeletionTimestamp != nil && !isReady(store) {
			return name, nil
		}
	}
	return "", nil
}

func isReady(store *hostingv1alpha1.Store) bool {
	return meta.IsStatusConditionTrue(store.Status.Conditions, hostingv1alpha1.StoreReady)
}

// endWithout ends the Migration without a Store that is lost. The Store that serves the resource goes
// on to do so.
func (r *run) endWithout(ctx context.Context, lost string, hosted *hostingv1alpha1.HostedResource) error {
	from, to := r.Status.FromStoreName, r.Migration.Spec.StoreName
	switch {
	case lost == to && hosted.Spec.StoreName != to:
		// In this phase the binding to the lost Store is refused.
		r.Status.Phase = hostingv1alpha1.MigrationCopying
		message := fmt.Sprintf("The Store %q was deleted", to)
		if err := r.Describe(ctx, reasonStoreDeleted, message); err != nil {
			return err
		}
		hosted, err := r.hosted(ctx)
		if err != nil {
			return err
		}
		if hosted.Spec.StoreName == to {
			return fmt.Errorf("%s was placed on Store %s, which was deleted meanwhile", hosted.Name, to)
		}
		if err := r.newMover(from, "", hosted); err != nil {
			return err
		}
		if err := r.mover.Release(ctx); err != nil {
			return err
		}
		return r.finish(ctx, hostingv1alpha1.MigrationFailed, reasonStoreDeleted, message)
	case lost == from && hosted.Spec.StoreName == to:
		if err := r.newMover("", to, hosted); err != nil {
			return err
		}
		return r.mover.Finish(ctx)
	}
	return fmt.Errorf("the Store %q was deleted, which has the objects", lost)
}
