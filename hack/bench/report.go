// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/prometheus/procfs"

	"github.com/annex-dev/annex/pkg/test/process"
)

// The names of the servers are keys of figures.
const (
	annexName = "annex"
	peerName  = "kube-apiserver"
)

// report is a whole run, as --json writes it.
type report struct {
	// Kind is the command.
	Kind     string            `json:"kind"`
	Machine  string            `json:"machine"`
	Date     string            `json:"date"`
	Command  string            `json:"command"`
	Versions map[string]string `json:"versions"`
	Cases    []caseReport      `json:"cases"`
}

// caseReport is one table: of a number of objects of one size, unless it has a title.
type caseReport struct {
	Title   string `json:"title,omitempty"`
	Objects int    `json:"objects,omitempty"`
	Bytes   int    `json:"bytes,omitempty"`
	// JSONBytes is the measured size of an object in a list.
	JSONBytes int `json:"jsonBytes,omitempty"`
	// Servers are the columns. A ratio divides the first server's value by the second's.
	Servers []string `json:"servers,omitempty"`
	// Skipped is the reason to leave out a server.
	Skipped string   `json:"skipped,omitempty"`
	Figures []figure `json:"figures,omitempty"`
	Series  []series `json:"series,omitempty"`
}

// figure is one row of a table. Measured and CPU have a value per server.
type figure struct {
	Name string `json:"name"`
	Unit string `json:"unit"`
	Per  string `json:"per,omitempty"`
	// Measured is a wall time, or a value in Unit, and CPU the CPU time of the server.
	Measured map[string]float64 `json:"measured,omitempty"`
	CPU      map[string]float64 `json:"cpu,omitempty"`
	// Target is the ratio to reach, of the CPU times with TargetOnCPU.
	Target      float64 `json:"target,omitempty"`
	TargetOnCPU bool    `json:"targetOnCPU,omitempty"`
	// Limit is the value to stay below.
	Limit float64 `json:"limit,omitempty"`
	// Failed is the error of an operation without values.
	Failed string `json:"failed,omitempty"`
}

// series are measurements that one chart shows as a line.
type series struct {
	Name   string       `json:"name"`
	X      string       `json:"x"`
	Y      string       `json:"y"`
	Points [][2]float64 `json:"points"`
}

// add adds a value of the first server; a limit of 0 is none.
func (c *caseReport) add(name, unit string, value, limit float64) {
	c.Figures = append(c.Figures, figure{Name: name, Unit: unit, Measured: map[string]float64{c.Servers[0]: value}, Limit: limit})
}

func (c *caseReport) title() string {
	if c.Title != "" {
		return c.Title
	}
	return fmt.Sprintf("%d objects of %d bytes", c.Objects, c.Bytes)
}

// print writes the table as text.
func (c *caseReport) print(w io.Writer) error {
	fmt.Fprintf(w, "\n%s", c.title())
	if c.JSONBytes > 0 {
		fmt.Fprintf(w, " (%d in a list)", c.JSONBytes)
	}
	fmt.Fprintln(w)
	if c.Skipped != "" {
		fmt.Fprintf(w, "skipped: %s\n", c.Skipped)
	}
	if len(c.Figures) == 0 {
		return nil
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	if names := strings.ToUpper(strings.Join(c.Servers, "\t")); len(c.Servers) == 1 {
		fmt.Fprintf(table, "%s\tLIMIT\t%s/LIMIT\t  FIGURE\n", names, names)
	} else {
		fmt.Fprintf(table, "%s\tRATIO\tCPU: %s\tRATIO\tTARGET\t  FIGURE\n", names, names)
	}
	for _, f := range c.Figures {
		fmt.Fprintln(table, strings.Join(c.cells(f), "\t"))
	}
	return table.Flush()
}

// cells returns the row of a figure.
func (c *caseReport) cells(f figure) []string {
	name := "  " + f.Name
	if f.Per != "" && f.Per != "request" {
		name += ", per " + f.Per
	}
	if f.Failed != "" {
		name += ": " + f.Failed
	}
	if len(c.Servers) == 1 {
		limit, part := "-", "-"
		if f.Limit > 0 {
			limit, part = fmt.Sprintf("%.3g %s", f.Limit, f.Unit), fmt.Sprintf("%.2f", f.Measured[c.Servers[0]]/f.Limit)
		}
		return append(c.values(f.Measured, f.Unit), limit, part, name)
	}
	target := "-"
	if f.Limit > 0 {
		target = fmt.Sprintf("%.3g %s", f.Limit, f.Unit)
	} else if f.Target > 0 {
		target = fmt.Sprintf("%.3g", f.Target)
		if f.TargetOnCPU {
			target += " CPU"
		}
	}
	return append(append(c.values(f.Measured, f.Unit), c.values(f.CPU, f.Unit)...), target, name)
}

// values returns the value of each server, and the ratio of two.
func (c *caseReport) values(values map[string]float64, unit string) []string {
	var cells []string
	for _, name := range c.Servers {
		cell := "-"
		if value, ok := values[name]; ok {
			cell = fmt.Sprintf("%.3g %s", value, unit)
		}
		cells = append(cells, cell)
	}
	if len(c.Servers) == 2 {
		if r := ratio(values, c.Servers[0], c.Servers[1]); r > 0 {
			return append(cells, fmt.Sprintf("%.2f", r))
		}
		return append(cells, "-")
	}
	return cells
}

// ratio returns the ratio of two servers' values, or 0 without both.
func ratio(values map[string]float64, first, second string) float64 {
	if values[second] <= 0 {
		return 0
	}
	return values[first] / values[second]
}

// save writes the report as JSON, unless the path is empty.
func (r report) save(path string) error {
	if path == "" {
		return nil
	}
	content, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return fmt.Errorf("encode the report: %w", err)
	}
	if err := os.WriteFile(path, append(content, '\n'), 0o644); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}

// newReport describes this machine and programs under bin/, and returns the path of that.
func newReport(ctx context.Context, kind string, programs []string) (r report, bin string, err error) {
	m, err := readMachine()
	if err != nil {
		return report{}, "", err
	}
	r = report{Kind: kind, Machine: m.description, Date: time.Now().UTC().Format(time.DateOnly), Versions: map[string]string{"go": runtime.Version()}}
	for _, name := range programs {
		path, err := process.Bin(ctx, name)
		if err != nil {
			return report{}, "", err
		}
		argument := "--version"
		if name == annexName {
			argument = "version"
		}
		output, err := exec.CommandContext(ctx, path, argument).Output()
		if err != nil {
			return report{}, "", fmt.Errorf("read the version of %s: %w", name, err)
		}
		first, _, _ := strings.Cut(string(output), "\n")
		r.Versions[name], bin = strings.TrimSpace(first), filepath.Dir(path)
	}
	return r, bin, nil
}

// machine describes this machine; available is the memory in bytes that programs can use.
type machine struct {
	description string
	available   int64
}

func readMachine() (machine, error) {
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return machine{}, err
	}
	memory, err := proc.Meminfo()
	if err != nil {
		return machine{}, fmt.Errorf("read the memory of the machine: %w", err)
	}
	cpus, err := proc.CPUInfo()
	if err != nil {
		return machine{}, fmt.Errorf("read the processors of the machine: %w", err)
	}
	return machine{
		description: fmt.Sprintf("%d cores of %s, %d GiB", runtime.NumCPU(), cpus[0].ModelName, *memory.MemTotalBytes>>30),
		available:   int64(*memory.MemAvailableBytes),
	}, nil
}

func mebibytes(bytes int64) float64 { return float64(bytes) / (1 << 20) }

func gibibytes(bytes int64) float64 { return mebibytes(bytes) / 1024 }
