// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"text/tabwriter"
	"time"
)

// The names of the servers are keys of figures.
const (
	annexName = "annex"
	peerName  = "kube-apiserver"
)

// report is a whole run, as --json writes it.
type report struct {
	// Kind is peer or million.
	Kind     string            `json:"kind"`
	Machine  string            `json:"machine"`
	Date     string            `json:"date"`
	Command  string            `json:"command"`
	Versions map[string]string `json:"versions"`
	Cases    []caseReport      `json:"cases"`
}

// caseReport is what was measured with a number of objects of one size.
type caseReport struct {
	Objects int `json:"objects"`
	Bytes   int `json:"bytes"`
	// JSONBytes is the measured size of an object in a list.
	JSONBytes int `json:"jsonBytes,omitempty"`
	// Skipped is why a server was not measured.
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
	// Target is a ratio kube-apiserver/annex, of the CPU times with TargetOnCPU; in a report
	// without kube-apiserver it is the largest value.
	Target      float64 `json:"target,omitempty"`
	TargetOnCPU bool    `json:"targetOnCPU,omitempty"`
	// Failed is why there is no value.
	Failed string `json:"failed,omitempty"`
}

// series are measurements that one chart shows as a line.
type series struct {
	Name   string       `json:"name"`
	X      string       `json:"x"`
	Y      string       `json:"y"`
	Points [][2]float64 `json:"points"`
}

// ratio returns how many times the value of annex kube-apiserver's is, or false without both.
func ratio(values map[string]float64) (float64, bool) {
	peer, ok := values[peerName]
	return peer / values[annexName], ok && values[annexName] > 0
}

// print writes the table of a case for people.
func (c caseReport) print(w io.Writer) error {
	fmt.Fprintf(w, "\n%d objects of %d bytes", c.Objects, c.Bytes)
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
	fmt.Fprintln(table, "KUBE-APISERVER\tANNEX\tRATIO\tCPU: KUBE-APISERVER\tANNEX\tRATIO\tTARGET\t  FIGURE")
	for _, f := range c.Figures {
		fmt.Fprintln(table, strings.Join(f.cells(), "\t"))
	}
	return table.Flush()
}

func (f figure) cells() []string {
	name := f.Name
	if f.Per != "" && f.Per != "request" {
		name += ", per " + f.Per
	}
	if f.Failed != "" {
		return []string{"-", "-", "-", "-", "-", "-", "-", "  " + name + ": " + f.Failed}
	}
	cells := append(f.three(f.Measured), f.three(f.CPU)...)
	target := "-"
	if f.Target > 0 {
		target = fmt.Sprintf("%.3g", f.Target)
		if f.TargetOnCPU {
			target += " CPU"
		}
	}
	return append(cells, target, "  "+name)
}

// three returns both values and their ratio.
func (f figure) three(values map[string]float64) []string {
	cells := []string{"-", "-", "-"}
	for i, name := range []string{peerName, annexName} {
		if value, ok := values[name]; ok {
			cells[i] = fmt.Sprintf("%.3g %s", value, f.Unit)
		}
	}
	if r, ok := ratio(values); ok {
		cells[2] = fmt.Sprintf("%.2f", r)
	}
	return cells
}

// printSingle writes the table of a case of annex alone.
func (c caseReport) printSingle(w io.Writer) error {
	fmt.Fprintf(w, "\n%d objects of %d bytes\n", c.Objects, c.Bytes)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "MEASURED\tTARGET\tMEASURED/TARGET\t  FIGURE")
	for _, f := range c.Figures {
		value, target, part := f.Measured[annexName], "-", "-"
		if f.Target > 0 {
			target, part = fmt.Sprintf("%.3g %s", f.Target, f.Unit), fmt.Sprintf("%.2f", value/f.Target)
		}
		fmt.Fprintf(table, "%.3g %s\t%s\t%s\t  %s\n", value, f.Unit, target, part, f.Name)
	}
	return table.Flush()
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

// newReport describes this machine and the programs.
func newReport(ctx context.Context, kind string, p programs) (report, error) {
	memory, err := memoryOf("MemTotal:")
	if err != nil {
		return report{}, err
	}
	r := report{
		Kind: kind, Date: time.Now().UTC().Format(time.DateOnly), Command: os.Getenv("BENCH_COMMAND"), Versions: map[string]string{"go": runtime.Version()},
		Machine: fmt.Sprintf("%d cores of %s, %d GiB", runtime.NumCPU(), processor(), memory>>30),
	}
	for name, command := range map[string][]string{annexName: {p.annex, "version"}, peerName: {p.kubeAPIServer, "--version"}, "etcd": {p.etcd, "--version"}} {
		if command[0] == "" {
			continue
		}
		output, err := exec.CommandContext(ctx, command[0], command[1:]...).Output()
		if err != nil {
			return report{}, fmt.Errorf("read the version of %s: %w", name, err)
		}
		first, _, _ := strings.Cut(string(output), "\n")
		r.Versions[name] = strings.TrimSpace(first)
	}
	return r, nil
}

// processor returns the model of the CPUs.
func processor() string {
	file, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if name, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

// memoryOf returns a size of /proc/meminfo in bytes.
func memoryOf(name string) (int64, error) {
	content, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, fmt.Errorf("read the memory of the machine: %w", err)
	}
	kib, err := lineValue(strings.ReplaceAll(string(content), " kB", ""), name)
	return kib << 10, err
}
