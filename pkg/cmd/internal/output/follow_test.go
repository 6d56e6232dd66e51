// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package output

import (
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/generated/clientset/versioned/fake"
	"github.com/annex-dev/annex/pkg/test/expect"
)

func TestFollow(t *testing.T) {
	t.Parallel()
	m := &hostingv1alpha1.Migration{ObjectMeta: metav1.ObjectMeta{Name: "m", UID: "1"}}
	again := m.DeepCopy()
	again.UID = "2"
	copying := m.DeepCopy()
	copying.Status.Phase = hostingv1alpha1.MigrationCopying
	completed := m.DeepCopy()
	completed.Status.Phase = hostingv1alpha1.MigrationCompleted
	for name, test := range map[string]struct {
		// present is there in the beginning, and change happens when it was shown.
		present *hostingv1alpha1.Migration
		change  *hostingv1alpha1.Migration
		seen    []hostingv1alpha1.MigrationPhase
		deleted bool
	}{
		"completed before":         {present: completed, seen: []hostingv1alpha1.MigrationPhase{hostingv1alpha1.MigrationCompleted}},
		"completes":                {present: copying, change: completed, seen: []hostingv1alpha1.MigrationPhase{hostingv1alpha1.MigrationCopying, hostingv1alpha1.MigrationCompleted}},
		"deleted before":           {deleted: true},
		"deleted and created anew": {present: again, deleted: true},
		"deleted":                  {present: copying, seen: []hostingv1alpha1.MigrationPhase{hostingv1alpha1.MigrationCopying, hostingv1alpha1.MigrationCopying}, deleted: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			annex := fake.NewClientset()
			migrations := annex.HostingV1alpha1().Migrations()
			if test.present != nil {
				expect.Create(t, migrations, test.present.DeepCopy())
			}
			var seen []hostingv1alpha1.MigrationPhase
			err := follow(t.Context(), annex, m, func(current *hostingv1alpha1.Migration) (bool, error) {
				seen = append(seen, current.Status.Phase)
				switch {
				case current.Status.Phase == hostingv1alpha1.MigrationCompleted:
					return true, nil
				case test.change != nil:
					_, err := migrations.Update(t.Context(), test.change.DeepCopy(), metav1.UpdateOptions{})
					return false, err
				case len(seen) == 1:
					return false, migrations.Delete(t.Context(), m.Name, metav1.DeleteOptions{})
				}
				return false, nil
			}, func(err error) { t.Errorf("problem: %v", err) })
			if ended := (&EndedError{}); errors.As(err, &ended) != test.deleted {
				t.Errorf("got %v", err)
			} else if test.deleted {
				expect.ErrorLine(t, err, "the Migration m was deleted")
			}
			expect.Equal(t, test.seen, seen, "phases")
		})
	}
}
