// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/cmd/migrations"
	annexclient "github.com/annex-dev/annex/pkg/generated/clientset/versioned"
)

// keepFinished is how long a finished Migration that a command created is kept, in seconds: a drain
// creates one per resource.
const keepFinished = 24 * 60 * 60

func createMigration(ctx context.Context, annex annexclient.Interface, resource, store string, out io.Writer) (*hostingv1alpha1.Migration, error) {
	migration, err := annex.HostingV1alpha1().Migrations().Create(ctx, &hostingv1alpha1.Migration{
		ObjectMeta: metav1.ObjectMeta{GenerateName: resource + "-"},
		Spec:       hostingv1alpha1.MigrationSpec{Resource: resource, StoreName: store, TTLSecondsAfterFinished: ptr.To[int32](keepFinished)},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("move %s to Store %s: %w", resource, store, err)
	}
	_, err = fmt.Fprintf(out, "migration.hosting.annex.dev/%s created\n", migration.Name)
	return migration, err
}

// waitForMigration shows a Migration until it ends, and returns why it did not complete.
func waitForMigration(ctx context.Context, annex annexclient.Interface, migration *hostingv1alpha1.Migration, out io.Writer) error {
	view := migrations.View{Annex: annex, Out: out}
	err := view.Show(ctx, migration)
	if err == nil {
		_, err = fmt.Fprintf(out, "%s is on Store %s\n", migration.Spec.Resource, migration.Spec.StoreName)
	}
	if err != nil {
		return fmt.Errorf("move %s to Store %s: %w", migration.Spec.Resource, migration.Spec.StoreName, err)
	}
	return nil
}
