// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of CPU times in /proc, USER_HZ, which is 100 on every Linux that Go supports.
const tick = time.Second / 100

// Usage is the CPU time and the memory of a process, from Linux's /proc.
type Usage struct {
	// CPU is the time in user and system mode of all its threads, in steps of 10 ms.
	CPU time.Duration
	// RSS is the resident memory in bytes, PeakRSS its maximum.
	RSS, PeakRSS int64
}

// UsageOf returns the usage of any process of this machine.
func UsageOf(pid int) (Usage, error) {
	var usage Usage
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return usage, fmt.Errorf("read the CPU time of process %d: %w", pid, err)
	}
	if usage.CPU, err = parseCPU(string(stat)); err != nil {
		return usage, fmt.Errorf("read the CPU time of process %d: %w", pid, err)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return usage, fmt.Errorf("read the memory of process %d: %w", pid, err)
	}
	if usage.RSS, err = parseMemory(string(status), "VmRSS:"); err != nil {
		return usage, fmt.Errorf("read the memory of process %d: %w", pid, err)
	}
	if usage.PeakRSS, err = parseMemory(string(status), "VmHWM:"); err != nil {
		return usage, fmt.Errorf("read the memory of process %d: %w", pid, err)
	}
	return usage, nil
}

// parseCPU reads utime and stime, fields 14 and 15 of /proc/PID/stat. Field 2, the name, may
// contain spaces and parentheses.
func parseCPU(stat string) (time.Duration, error) {
	const state, utime, stime = 3, 14, 15
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) <= stime-state {
		return 0, fmt.Errorf("it has no CPU time: %q", stat)
	}
	var total time.Duration
	for _, field := range []int{utime, stime} {
		ticks, err := strconv.ParseInt(fields[field-state], 10, 64)
		if err != nil {
			return 0, err
		}
		total += time.Duration(ticks) * tick
	}
	return total, nil
}

// parseMemory reads a size of /proc/PID/status.
func parseMemory(status, name string) (int64, error) {
	for line := range strings.Lines(status) {
		if value, ok := strings.CutPrefix(line, name); ok {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("the kernel does not report %s", strings.TrimSuffix(name, ":"))
}
