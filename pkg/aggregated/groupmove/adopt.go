// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package groupmove

import (
	"context"
	"errors"
	"time"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/storage/move"
)

// notEmpty returns the refusal of a resource of which the Store has objects already, for example from a backup.
func (m *moveIn) notEmpty(ctx context.Context) (refused *move.Refusal, err error) {
	for _, of := range m.resources {
		err := of.importer.Check(ctx)
		if errors.As(err, &refused) && refused.Reason == move.ReasonNotEmpty {
			return refused, nil
		}
		if err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// adopt makes annex serve objects that it has already. There is nothing to copy: the main cluster must have no object
// of the group, and is frozen before that is checked.
func (m *moveIn) adopt(ctx, preparing context.Context, refused *move.Refusal) error {
	if m.Status.Phase != hostingv1alpha1.MigrationSwitching {
		if err := m.config.MainCopy.Freeze(preparing, m.group()); err != nil {
			return wrap(err, "freeze group %s in the main cluster", m.group())
		}
		for _, of := range m.resources {
			count, err := m.config.MainObjects(of.version()).Count(preparing)
			if err == nil && count > 0 {
				err = errors.Join(refused, m.config.MainCopy.Forget(ctx, m.group()))
			}
			if err != nil {
				return err
			}
		}
		if err := m.untilReady(preparing); err != nil {
			return err
		}
		if err := m.SetPhase(ctx, hostingv1alpha1.MigrationSwitching, "Requests go to annex, which has the objects already"); err != nil {
			return err
		}
	}
	started := time.Now()
	if err := m.untilRouted(ctx, m.versions(), true); err != nil {
		return errors.Join(err, m.undoSwitch(ctx, err.Error()))
	}
	switchSeconds.Observe(time.Since(started).Seconds())
	if err := m.opened(ctx); err != nil {
		return err
	}
	return m.whileTakenOver(ctx, m.observe)
}
