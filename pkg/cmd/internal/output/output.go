// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package output has what commands print: tables, JSON, progress bars, and Migrations until they end.
package output

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/pflag"
)

// NewTable returns a writer of aligned columns. Tabs separate the cells.
func NewTable(out io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(out, 0, 0, 3, ' ', 0) }

// Count returns a number with its unit in the singular or plural.
func Count(n int64, unit string) string {
	if n == 1 {
		return "1 " + unit
	}
	return fmt.Sprintf("%d %ss", n, unit)
}

// Format is the value of the flag --output.
type Format struct{ json bool }

// AddFlag adds the flag.
func (f *Format) AddFlag(fs *pflag.FlagSet) {
	fs.VarP(f, "output", "o", "The output format: text or json.")
}

// Set implements pflag.Value.
func (f *Format) Set(value string) error {
	if f.json = value == "json"; !f.json && value != "text" {
		return errors.New("must be text or json")
	}
	return nil
}

// String implements pflag.Value.
func (f *Format) String() string {
	if f.json {
		return "json"
	}
	return "text"
}

// Type implements pflag.Value.
func (f *Format) Type() string { return "string" }

// Print writes an object as JSON, or calls text.
func (f *Format) Print(out io.Writer, object any, text func() error) error {
	if !f.json {
		return text()
	}
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(object)
}
