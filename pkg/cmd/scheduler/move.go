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
	"github.com/annex-dev/annex/pkg/cmd/internal/migrations"
	annexclient "github.com/annex-dev/annex/pkg/generated/clientset/versioned"
)

// keepFinished is how long a finished Migration that a command created is kept, in seconds: a drain
// creates one per resource.
const keepFinished = 24 * 60 * 60

// move moves a resource to a Store. If wait is set, it shows the Migration until that ends.
func move(ctx context.Context, annex annexclient.Interface, resource, store string, wait bool, out io.Writer) error {
	migration, err := annex.HostingV1alpha1().Migrations().Create(ctx, &hostingv1alpha1.Migration{
		ObjectMeta: metav1.ObjectMeta{GenerateName: resource + "-"},
		Spec:       hostingv1alpha1.MigrationSpec{Resource: resource, StoreName: store, TTLSecondsAfterFinished: ptr.To[int32](keepFinished)},
	}, metav1.CreateOptions{})
	if err == nil {
		_, err = fmt.Fprintf(out, "migration.hosting.annex.dev/%s created\n", migration.Name)
	}
	if err == nil && wait {
		view := migrations.View{Annex: annex, Out: out}
		if err = view.Show(ctx, migration); err == nil {
			_, err = fmt.Fprintf(out, "%s is on Store %s\n", resource, store)
		}
	}
	if err != nil {
		return fmt.Errorf("move %s to Store %s: %w", resource, store, err)
	}
	return nil
}
