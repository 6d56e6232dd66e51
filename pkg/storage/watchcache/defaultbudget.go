// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"math"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
)

// cgroupLimit has the memory limit of the process's cgroup (version 2), as containers see it.
const cgroupLimit = "/sys/fs/cgroup/memory.max"

// DefaultBudget returns half of the memory that the process may use: GOMEMLIMIT, or the limit of
// its container. It returns 0 if there is no limit.
func DefaultBudget() int64 { return defaultBudget(debug.SetMemoryLimit(-1), cgroupLimit) }

func defaultBudget(goLimit int64, cgroupFile string) int64 {
	limit := min(goLimit, limitOf(cgroupFile))
	if limit == math.MaxInt64 {
		return 0
	}
	return limit / 2
}

// ContainerLimit returns the memory of the process's container in bytes, math.MaxInt64 without a
// limit.
func ContainerLimit() int64 { return limitOf(cgroupLimit) }

func limitOf(cgroupFile string) int64 {
	if content, err := os.ReadFile(cgroupFile); err == nil {
		if limit, err := strconv.ParseInt(strings.TrimSpace(string(content)), 10, 64); err == nil {
			return limit
		}
	}
	return math.MaxInt64
}
