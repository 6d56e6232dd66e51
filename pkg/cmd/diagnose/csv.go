// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// csvHeader has the names of the JSON output. Sizes are in bytes.
var csvHeader = []string{
	"group", "resource", "scope", "versions", "storageVersion", "conversionWebhook", "objects", "bytes", "memoryBytes", "watches",
	"writesPerSecond", "objectsPerHour", "bytesPerHour", "source", "forbidden", "frozenCopy", "verdict", "reasons",
}

// printCSV prints a line for each resource. A value that is not known is empty.
func (report *Report) printCSV(out io.Writer) error {
	rows := [][]string{csvHeader}
	for _, g := range report.Groups {
		for _, r := range g.Resources {
			rows = append(rows, []string{
				g.Name, r.Name, r.Scope, strings.Join(r.Versions, " "), r.StorageVersion, r.ConversionWebhook, Number(r.Objects, ""), Number(r.Bytes, ""),
				Number(r.MemoryBytes, ""), Number(r.Watches, ""), exact(r.WritesPerSecond), exact(r.ObjectsPerHour), exact(r.BytesPerHour), string(r.Source),
				strconv.FormatBool(r.Forbidden), strconv.FormatBool(g.FrozenCopy), string(g.Move.Verdict), strings.Join(g.Move.Reasons, "; "),
			})
		}
	}
	if err := csv.NewWriter(out).WriteAll(rows); err != nil {
		return fmt.Errorf("print the report as CSV: %w", err)
	}
	return nil
}

func exact(value *float64) string {
	return cellOf(value, "", func(value float64) string { return strconv.FormatFloat(value, 'f', -1, 64) })
}
