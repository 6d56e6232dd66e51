// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package table

import (
	"math"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/duration"
)

const (
	// None is the cell of an optional value that is not set.
	None = "<none>"
	// Unknown is the cell of a required value that is not known.
	Unknown = "<unknown>"
	// Dash replaces Unknown in tables of so many numbers that they would not fit a terminal.
	Dash = "-"
)

// Since returns the cell with the time since t, as kubectl prints it: 5s, 3m20s, 47h, 12d.
func Since(t time.Time) string {
	if t.IsZero() {
		return Unknown
	}
	return duration.HumanDuration(time.Since(t))
}

// OrNone returns value, or None if it is empty.
func OrNone[S ~string](value S) string {
	if value == "" {
		return None
	}
	return string(value)
}

// Quantity returns the cell of a size, or Unknown if it is nil.
func Quantity(size *resource.Quantity) string {
	if size == nil {
		return Unknown
	}
	return Bytes(size.Value())
}

// Bytes returns the cell with a rounded size in binary units: 512, 1.2Ki, 34Mi, 1.5Gi.
func Bytes(n int64) string {
	const step = 1024
	units := []string{"Ki", "Mi", "Gi", "Ti", "Pi", "Ei"}
	size, unit := float64(n), ""
	for _, next := range units {
		// 1023.5 would be rounded to 1024.
		if math.Abs(size) < step-0.5 {
			break
		}
		size /= step
		unit = next
	}
	precision := 1
	if unit == "" || math.Abs(size) >= 9.95 {
		precision = 0
	}
	return strings.TrimSuffix(strconv.FormatFloat(size, 'f', precision, 64), ".0") + unit
}
