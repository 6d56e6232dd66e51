// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package groupmove

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/annex-dev/annex/pkg/aggregated/maincopy"
	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/storage/move"
)

// finalize deletes the objects of a group that the main cluster kept when it was moved.
type finalize struct {
	*Run
	copies []maincopy.Resource
}

func (f *finalize) completed() string {
	return fmt.Sprintf("The main cluster has no objects of group %s any longer", f.group())
}

func (f *finalize) fence(context.Context) error { return nil } // annex's objects stay as they are

func (f *finalize) perform(ctx, preparing context.Context, s step) (err error) {
	switch s {
	case stepBegin:
		return f.begin(preparing)
	case stepOpen:
		f.copies, err = f.config.MainCopy.Open(ctx, f.group())
		return wrap(err, "open the main cluster's copy of group %s", f.group())
	case stepClean:
		if f.resources, _, err = f.present(ctx); err != nil {
			return err
		}
		return f.Step(ctx, hostingv1alpha1.MigrationCleaning, "Deletes the main cluster's copy", f.deleteAll)
	}
	if err := f.config.MainCopy.Close(ctx, f.group()); err != nil {
		return wrap(err, "close the main cluster's copy of group %s", f.group())
	}
	// It stays frozen as long as annex serves it.
	return f.markMainCopy(ctx, "")
}

// begin waits for the confirmation. What follows cannot be undone.
func (f *finalize) begin(ctx context.Context) error {
	hosted, err := f.isHosted(ctx)
	if err != nil {
		return err
	}
	definitions, err := f.config.AnnexDefinitions.List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list definitions in annex: %w", err)
	}
	marked := slices.ContainsFunc(definitions.Items, func(crd definition) bool {
		return crd.Spec.Group == f.group() && crd.Annotations[hostingv1alpha1.MainCopyAnnotation] != ""
	})
	if !hosted || !marked {
		return refuse(reasonNoCopy, "The main cluster has no copy of group %s that was moved into annex", f.group())
	}
	err = f.untilReported(ctx, func(ctx context.Context) (string, error) {
		if err := f.Read(ctx); err != nil || f.Migration.Spec.Confirmed {
			return "", err
		}
		return "Deletes the objects of the group that the main cluster has, for good. Set spec.confirmed to true", nil
	})
	if err != nil {
		return err
	}
	f.Event(corev1.EventTypeNormal, eventStarted, "Deleting the main cluster's copy of group %s", f.group())
	now := metav1.Now()
	f.Status.StartTime, f.Status.SwitchTime = &now, &now
	return f.SetPhase(ctx, hostingv1alpha1.MigrationCleaning, "Makes the main cluster's copy of the group reachable")
}

// deleteAll deletes the copies, and records how many objects they had and how many are deleted.
func (f *finalize) deleteAll(ctx context.Context) error {
	totals := make([]int64, len(f.copies))
	for i, of := range f.copies {
		var err error
		if totals[i], err = f.config.MainCopy.Opened(of).Count(ctx); err != nil {
			return wrap(err, "count the main cluster's copy of %s", of.Name)
		}
		f.report(of, totals[i], 0)
	}
	for i, of := range f.copies {
		err := f.config.MainCopy.DeleteAll(ctx, of, func(deleted int64) { f.report(of, totals[i], deleted) })
		if err != nil {
			return wrap(err, "delete the main cluster's copy of %s", of.Name)
		}
	}
	return nil
}

func (f *finalize) report(of maincopy.Resource, total, deleted int64) {
	if in := f.named(of.Name); in != nil {
		in.progress.Store(&move.Progress{Total: max(total, deleted), Copied: deleted})
	}
}
