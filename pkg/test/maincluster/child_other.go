//go:build !linux

// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincluster

import "syscall"

// dieWithParent can only keep Ctrl-C from the child here: after a parent that was
// killed, children are left behind.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
