// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import "cmp"

// Ends of a Migration of a group that are no Store, as commands and tables print them.
const (
	endMainCluster = "(main cluster)"
	endAnnex       = "(annex)"
	endNone        = "<none>"
)

// Moved returns the resource or the group that a Migration moves.
func (m *Migration) Moved() string { return cmp.Or(m.Spec.Resource, m.Spec.Group) }

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
