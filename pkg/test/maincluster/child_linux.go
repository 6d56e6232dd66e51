// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincluster

import "syscall"

// dieWithParent has the kernel end a child when this process is gone, however it
// went. The child leads a group of its own: Ctrl-C in a terminal is for the parent,
// which stops its children in order.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
