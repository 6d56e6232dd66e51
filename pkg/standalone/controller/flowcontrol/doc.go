// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package flowcontrol keeps the FlowSchemas and PriorityLevelConfigurations that
// every annex has: the mandatory ones as they must be, the suggested ones up to
// date until an administrator changes them, and those of earlier versions gone.
package flowcontrol
