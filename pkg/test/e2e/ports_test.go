// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// listening is the state of a listening socket in /proc/net/tcp.
const listening = "0A"

// listeningPorts lists the TCP addresses that a process listens on, in the
// kernel's own notation.
func listeningPorts(t *testing.T, pid int) []string {
	t.Helper()
	sockets, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil || len(sockets) == 0 {
		t.Skipf("this system does not report listening sockets (%v)", err)
	}
	inodes := map[string]bool{}
	for _, socket := range sockets {
		if target, err := os.Readlink(socket); err == nil {
			inodes[strings.TrimSuffix(strings.TrimPrefix(target, "socket:["), "]")] = true
		}
	}
	var found []string
	for _, table := range []string{"tcp", "tcp6"} {
		content, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, table))
		if err != nil {
			continue // no IPv6
		}
		for line := range strings.Lines(string(content)) {
			if fields := strings.Fields(line); len(fields) > 9 && fields[3] == listening && inodes[fields[9]] {
				found = append(found, fields[1])
			}
		}
	}
	return found
}
