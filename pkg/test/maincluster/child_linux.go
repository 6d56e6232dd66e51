// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincluster

import "syscall"

// dieWithParent makes the kernel kill a child when this process ends for any reason. The child
// has its own process group, so Ctrl-C in a terminal reaches only the parent, which stops its
// children in order.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
