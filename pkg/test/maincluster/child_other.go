//go:build !linux

// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincluster

import "syscall"

// dieWithParent only keeps Ctrl-C from the child: the children of a killed parent continue to
// run.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
