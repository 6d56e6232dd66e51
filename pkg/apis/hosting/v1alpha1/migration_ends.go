// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"cmp"
	"fmt"
)

// Ends of a Migration of a group that are no Store, as commands and tables print them.
const (
	endMainCluster = "(main)"
	endAnnex       = "(annex)"
	endNone        = "<none>"
)

// Moved returns the resource or the group that a Migration moves.
func (m *Migration) Moved() string { return cmp.Or(m.Spec.Resource, m.Spec.Group) }

// KeepsCopy reports whether the main cluster has kept a copy of a group since this Migration, the latest of the group.
func (m *Migration) KeepsCopy() bool {
	return m.Spec.Group != "" && m.Spec.Operation == MigrationMove && m.Status.Phase == MigrationCompleted && m.Status.Objects > 0
}

// LatestMigrations returns the latest Migration of each resource or group.
func LatestMigrations(migrations []Migration) map[string]*Migration {
	latest := map[string]*Migration{}
	for i := range migrations {
		m := &migrations[i]
		if before := latest[m.Moved()]; before == nil || before.CreationTimestamp.Before(&m.CreationTimestamp) {
			latest[m.Moved()] = m
		}
	}
	return latest
}

// From describes what a Migration moves from.
func (m *Migration) From() string {
	switch m.Spec.Operation {
	case MigrationMove, MigrationFinalize:
		return endMainCluster
	case MigrationRollback:
		return endAnnex
	default:
		return cmp.Or(m.Status.FromStoreName, endNone)
	}
}

// To describes what a Migration moves to.
func (m *Migration) To() string {
	switch m.Spec.Operation {
	case MigrationMove:
		return cmp.Or(m.Spec.StoreName, endAnnex)
	case MigrationRollback:
		return endMainCluster
	case MigrationFinalize:
		return endNone
	default:
		return m.Spec.StoreName
	}
}

// Copied returns how many of the objects are copied, in percent. A resource without objects is copied at once.
func (m *Migration) Copied() string {
	switch status := m.Status; {
	case status.StartTime == nil:
		return endNone
	case status.Objects > 0:
		return fmt.Sprintf("%d%%", 100*min(status.CopiedObjects, status.Objects)/status.Objects)
	case status.Phase == MigrationCopying:
		return "0%"
	}
	return "100%"
}
