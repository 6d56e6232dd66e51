// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package groupmove

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"

	"github.com/annex-dev/annex/pkg/aggregated/maincopy"
	"github.com/annex-dev/annex/pkg/storage/move"
)

// reconcile applies the writes that the main cluster accepted after the switch, and that no watch has
// delivered: one that follows the main cluster ends with its API server, and with annex. The main
// cluster's copy is frozen.
func (m *moveIn) reconcile(ctx context.Context) error {
	opened, err := m.config.MainCopy.Open(ctx, m.group())
	if err != nil {
		return wrap(err, "open the main cluster's copy of group %s", m.group())
	}
	copies := map[string]maincopy.Resource{}
	for _, of := range opened {
		copies[of.Name] = of
	}
	err = m.each(ctx, func(ctx context.Context, of *resource) error {
		if state, err := of.importer.State(ctx); err != nil || state == move.Absent {
			return err // nothing was copied
		}
		return m.reportLate(of.importer.Reconcile(ctx, m.config.MainCopyObjects(copies[of.name()])))
	})
	if err != nil {
		return wrap(err, "look for late writes of group %s in the main cluster's copy", m.group())
	}
	return wrap(m.config.MainCopy.Close(ctx, m.group()), "close the main cluster's copy of group %s", m.group())
}

// reportLate records an event if late writes could not be applied. It returns all other errors.
func (m *moveIn) reportLate(err error) error {
	late := (*move.LateError)(nil)
	if !errors.As(err, &late) {
		return err
	}
	m.Event(corev1.EventTypeWarning, eventLate, "The main cluster accepted writes after the switch that annex could not apply, because the objects were written in annex too: %v", err)
	return nil
}
