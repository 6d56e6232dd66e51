// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"
	"strings"
)

// LabelCommand returns the command that makes annex take over, and follow, definitions of the
// main cluster.
func LabelCommand(definitions []string) string {
	return fmt.Sprintf("kubectl label crd %s %s=true", strings.Join(definitions, " "), HostedLabel)
}

// GrantListCommand returns the command that lets annex list resources of a group in the main
// cluster.
func GrantListCommand(group, resources string) string {
	role := HostedRoleName(group)
	return fmt.Sprintf("kubectl create clusterrole %s --verb=list,watch --resource=%s && kubectl label clusterrole %s %s=true",
		role, resources, role, AggregateLabel)
}

// MoveCommand returns the command that moves a group with its objects from the main cluster into
// annex.
func MoveCommand(group string) string { return "kubectl annex move " + group }

// HostCommand returns the command that makes annex take over a group without objects.
func HostCommand(group string) string { return "kubectl annex host " + group }
