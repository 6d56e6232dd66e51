// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/cmd/migrations"
	"github.com/annex-dev/annex/pkg/cmd/progress"
	annexclient "github.com/annex-dev/annex/pkg/generated/clientset/versioned"
)

// keepFinished is how long a finished Migration that a command created is kept, in seconds: a drain
// creates one per resource.
const keepFinished = 24 * 60 * 60

// createMigration creates the Migration of a resource to a Store.
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
	s := &shown{out: out, bar: progress.New(out, migration.Spec.Resource)}
	defer s.bar.End()
	err := migrations.Follow(ctx, annex, migration, s.show, s.problem)
	if err != nil {
		return fmt.Errorf("move %s to Store %s: %w", migration.Spec.Resource, migration.Spec.StoreName, err)
	}
	return nil
}

// shown is what was shown of a Migration.
type shown struct {
	out  io.Writer
	bar  *progress.Bar
	last string
}

// show prints what is new, and returns the result once there is one.
func (s *shown) show(migration *hostingv1alpha1.Migration) (done bool, err error) {
	status := migration.Status
	complete := meta.FindStatusCondition(status.Conditions, hostingv1alpha1.MigrationComplete)
	switch {
	case status.Phase == hostingv1alpha1.MigrationCompleted:
		s.print("%s is on Store %s", migration.Spec.Resource, migration.Spec.StoreName)
		return true, nil
	case status.Phase.Finished():
		return false, fmt.Errorf("%s: %s", complete.Reason, complete.Message)
	case complete == nil:
		return false, nil
	case complete.Reason == string(status.Phase):
		s.print("%s: %s", migration.Spec.Resource, status.Phase)
	default:
		s.print("%s: %s: %s", migration.Spec.Resource, complete.Reason, complete.Message)
	}
	if status.Phase == hostingv1alpha1.MigrationCopying {
		s.bar.Show(status.CopiedObjects, status.Objects, status.CopiedBytes)
	}
	return false, nil
}

// problem prints the error of a request for the Migration.
func (s *shown) problem(err error) { s.print("annex does not answer, waiting: %v", err) }

// print prints a line, unless it was the last one.
func (s *shown) print(format string, arguments ...any) {
	line := fmt.Sprintf(format, arguments...)
	if line == s.last {
		return
	}
	s.bar.End()
	s.last = line
	_, _ = fmt.Fprintln(s.out, line)
}
