// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package output has what commands print: tables, JSON, progress bars, and Migrations until they end.
package output

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"
)

// NewTable returns a writer of aligned columns. Tabs separate the cells.
func NewTable(out io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(out, 0, 0, 3, ' ', 0) }

// Columns are the columns of a table, of which some are not shown.
type Columns []struct {
	Name  string
	Shown bool
}

// Header writes the names of the columns to a writer of NewTable.
func (c Columns) Header(w io.Writer) {
	names := make([]any, len(c))
	for i := range c {
		names[i] = c[i].Name
	}
	c.Row(w, names...)
}

// Row writes a row. It has a cell for each column, also for those that are not shown.
func (c Columns) Row(w io.Writer, cells ...any) {
	var shown []string
	for i, cell := range cells {
		if c[i].Shown {
			shown = append(shown, fmt.Sprint(cell))
		}
	}
	fmt.Fprintln(w, strings.Join(shown, "\t"))
}

// Count returns a number with its unit in the singular or plural.
func Count(n int64, unit string) string {
	if n == 1 {
		return "1 " + unit
	}
	return fmt.Sprintf("%d %ss", n, unit)
}

// ShellWord quotes a value that a shell would read as more than a word.
func ShellWord(value string) string {
	if !strings.ContainsAny(value, " \t\n'\"\\$`!*?[]{}()<>|&;#~") {
		return value
	}
	return "'" + strings.ReplaceAll(value, "'", `'\''`) + "'"
}

// Format is the value of the flag --output.
type Format struct {
	name  string
	names []string
}

// Wide is the format of tables with all columns.
const Wide = "wide"

const (
	textFormat = "text"
	jsonFormat = "json"
	yamlFormat = "yaml"
)

// AddFlag adds the flag. more are the formats of the command beside text, JSON and YAML.
func (f *Format) AddFlag(fs *pflag.FlagSet, more ...string) {
	f.name, f.names = textFormat, slices.Concat([]string{textFormat}, more, []string{jsonFormat, yamlFormat})
	fs.VarP(f, "output", "o", "The output format: "+strings.Join(f.names, ", ")+".")
}

// Set implements pflag.Value.
func (f *Format) Set(value string) error {
	if !slices.Contains(f.names, value) {
		return errors.New("must be " + strings.Join(f.names, ", "))
	}
	f.name = value
	return nil
}

// String implements pflag.Value.
func (f *Format) String() string { return f.name }

// Type implements pflag.Value.
func (f *Format) Type() string { return "string" }

// Is reports whether a format was chosen.
func (f *Format) Is(name string) bool { return f.name == name }

// PrintYAML writes objects as a stream of YAML documents.
func PrintYAML(out io.Writer, objects ...any) error {
	for i, object := range objects {
		document, err := yaml.Marshal(object)
		if err != nil {
			return fmt.Errorf("encode the output: %w", err)
		}
		if i > 0 {
			document = append([]byte("---\n"), document...)
		}
		if _, err := out.Write(document); err != nil {
			return fmt.Errorf("print the output: %w", err)
		}
	}
	return nil
}

// Print writes an object as JSON or YAML, or calls text.
func (f *Format) Print(out io.Writer, object any, text func() error) error {
	if f.name != jsonFormat && f.name != yamlFormat {
		return text()
	}
	var encoded bytes.Buffer
	encoder := json.NewEncoder(&encoded)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(object); err != nil {
		return fmt.Errorf("encode the output: %w", err)
	}
	content := encoded.Bytes()
	if f.name == yamlFormat {
		var err error
		if content, err = yaml.JSONToYAML(content); err != nil {
			return fmt.Errorf("encode the output: %w", err)
		}
	}
	_, err := out.Write(content)
	return err
}
