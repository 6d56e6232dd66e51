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

// RightsCommand returns the command that grants annex the rights to move a group.
func RightsCommand(group string) string {
	return MoveCommand(group) + " --print-rights | kubectl apply -f -"
}

// MoveCommand returns the command that moves a group from the main cluster into annex.
func MoveCommand(group string) string { return "kubectl annex move " + group }
