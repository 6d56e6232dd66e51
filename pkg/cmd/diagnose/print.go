// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/annex-dev/annex/pkg/cmd/internal/output"
	"github.com/annex-dev/annex/pkg/table"
)

const forbidden = "forbidden"

var verdictCells = map[Verdict]string{
	MoveYes: "yes", MoveNo: "no", MoveHosted: "in annex", MoveUnknown: "unknown",
}

// column is a column of the table of groups.
type column struct {
	header string
	// wide columns are printed only with -o wide, rate columns only with --window.
	wide, rate bool
	cell       func(*Group) string
}

var columns = []column{
	{header: "GROUP", cell: func(g *Group) string { return g.Name }},
	{header: "RESOURCES", wide: true, cell: func(g *Group) string { return strconv.Itoa(len(g.Resources)) }},
	{header: "OBJECTS", cell: func(g *Group) string { return Number(g.Objects, g.unknown()) }},
	{header: "ETCD", cell: func(g *Group) string { return Size(g.Bytes, g.unknown()) }},
	{header: "SHARE", cell: func(g *Group) string { return cellOf(g.Share, table.Unknown, percent) }},
	{header: "MEMORY", cell: func(g *Group) string { return Size(g.MemoryBytes, g.unknown()) }},
	{header: "WATCHES", cell: func(g *Group) string { return Number(g.Watches, table.Unknown) }},
	{header: "WRITES/S", rate: true, cell: func(g *Group) string { return cellOf(g.WritesPerSecond, table.Unknown, perSecond) }},
	{header: "OBJECTS/H", rate: true, wide: true, cell: func(g *Group) string { return cellOf(g.ObjectsPerHour, table.Unknown, signed) }},
	{header: "ETCD/H", rate: true, cell: func(g *Group) string { return cellOf(g.BytesPerHour, table.Unknown, signedSize) }},
	{header: "CAN MOVE", cell: func(g *Group) string { return verdictCells[g.Move.Verdict] }},
}

// shown returns the columns of a report.
func shown(report *Report, wide bool) []column {
	return slices.DeleteFunc(slices.Clone(columns), func(c column) bool { return c.wide && !wide || c.rate && report.WindowSeconds == 0 })
}

func (report *Report) print(out io.Writer, one, wide bool, program string) error {
	if len(report.Groups) == 0 {
		_, err := fmt.Fprintln(out, "The cluster has no CustomResourceDefinitions.")
		return err
	}
	w := output.NewTable(out)
	report.printGroups(w, wide)
	fmt.Fprintln(w)
	if one {
		report.printGroup(w)
	} else {
		report.printNotes(w, program)
	}
	return w.Flush()
}

func (report *Report) printGroups(w io.Writer, wide bool) {
	row := func(cell func(column) string) {
		var cells []string
		for _, c := range shown(report, wide) {
			cells = append(cells, cell(c))
		}
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	row(func(c column) string { return c.header })
	for _, g := range report.Groups {
		row(func(c column) string { return c.cell(g) })
	}
}

func (report *Report) printNotes(w io.Writer, program string) {
	for _, sentence := range report.totals() {
		fmt.Fprintln(w, sentence)
	}
	report.printSources(w)
	for _, g := range report.Groups {
		if g.Move.Verdict == MoveNo || g.Move.Verdict == MoveUnknown || g.FrozenCopy {
			fmt.Fprintf(w, "%s: %s: %s.\n", g.Name, verdictCells[g.Move.Verdict], strings.Join(g.Move.Reasons, "; "))
		}
	}
	if slices.ContainsFunc(report.Groups, func(g *Group) bool { return g.FrozenCopy }) {
		fmt.Fprintln(w, "What deletes a copy, so that it can no longer roll back: kubectl annex finalize --help")
	}
	if slices.ContainsFunc(report.Groups, func(g *Group) bool { return g.Move.Verdict == MoveYes }) {
		fmt.Fprintf(w, "Each resource of a group, and the command that moves it: %s --group=GROUP\n", program)
	}
}

// unknown returns the cell of a number that is not known.
func (g *Group) unknown() string {
	if slices.ContainsFunc(g.Resources, func(r *Resource) bool { return r.Forbidden }) {
		return forbidden
	}
	return table.Unknown
}

// totals returns sentences on the whole cluster.
func (report *Report) totals() []string {
	var sentences []string
	custom := report.CustomResources
	first := fmt.Sprintf("Custom resources are %s objects of %s in etcd. SHARE is of them.", Number(custom.Objects, table.Unknown), Size(custom.Bytes, table.Unknown))
	if report.AllObjects != nil && report.AllBytes != nil {
		first = fmt.Sprintf("Custom resources are %s of %d objects in etcd, and %s of %s.", Number(custom.Objects, table.Unknown), *report.AllObjects,
			Size(custom.Bytes, table.Unknown), table.Bytes(*report.AllBytes))
	}
	if report.EtcdBytes != nil {
		first += fmt.Sprintf(" Its files have %s.", table.Bytes(*report.EtcdBytes))
	}
	sentences = append(sentences, first)
	if report.WritesPerSecond != nil {
		sentences = append(sentences, fmt.Sprintf("In %s etcd had %s writes per second; kube-apiserver had %s of custom resources.",
			(time.Duration(report.WindowSeconds*float64(time.Second))).Round(time.Second), perSecond(*report.WritesPerSecond),
			cellOf(custom.WritesPerSecond, table.Unknown, perSecond)))
	}
	if isPositive(report.Movable.Bytes) {
		sentences = append(sentences, fmt.Sprintf("Moving the groups that can move frees %s of etcd, and about %s of memory in each kube-apiserver.",
			table.Bytes(*report.Movable.Bytes), Size(report.Movable.MemoryBytes, table.Unknown)))
	}
	return sentences
}

// printSources prints how numbers were found, and which are missing.
func (report *Report) printSources(w io.Writer) {
	count := map[Source]int64{}
	for _, g := range report.Groups {
		for _, r := range g.Resources {
			count[r.Source]++
		}
	}
	if n := count[SourceMetrics]; n > 0 {
		fmt.Fprintf(w, "The sizes of %s are from kube-apiserver's metrics.\n", output.Count(n, "resource"))
	}
	if n := count[SourceSample]; n > 0 {
		fmt.Fprintf(w, "The sizes of %s are estimated from the first %d objects.\n", output.Count(n, "resource"), sampleObjects)
	}
	if len(report.MissingRights) > 0 {
		fmt.Fprintf(w, "Missing rights: %s. An administrator grants them with:\n  %s\n", strings.Join(report.MissingRights, "; "), report.GrantCommand)
	}
	for _, problem := range report.Problems {
		fmt.Fprintf(w, "Not read: %s\n", problem)
	}
}

func (report *Report) printGroup(w io.Writer) {
	g := report.Groups[0]
	printResources(w, g)
	fmt.Fprintln(w)
	report.printSources(w)
	fmt.Fprintf(w, "Can move: %s.\n", strings.Join(append([]string{verdictCells[g.Move.Verdict]}, g.Move.Reasons...), "; "))
	if len(g.Move.Commands) > 0 {
		fmt.Fprintln(w, "With annex installed:")
		for _, command := range g.Move.Commands {
			fmt.Fprintln(w, "  "+command)
		}
	}
}

func printResources(w io.Writer, g *Group) {
	fmt.Fprintln(w, "RESOURCE\tSCOPE\tVERSIONS\tSTORED\tCONVERSION\tOBJECTS\tETCD\tMEMORY\tWATCHES\tSOURCE")
	for _, r := range g.Resources {
		unknown := table.Unknown
		if r.Forbidden {
			unknown = forbidden
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.Name, table.OrNone(r.Scope), table.OrNone(strings.Join(r.Versions, ",")), table.OrNone(r.StorageVersion),
			table.OrNone(r.ConversionWebhook), Number(r.Objects, unknown), Size(r.Bytes, unknown), Size(r.MemoryBytes, unknown), Number(r.Watches, table.Unknown), table.OrNone(r.Source))
	}
}

// cellOf returns the cell of a value, or unknown if it is nil.
func cellOf[N any](value *N, unknown string, format func(N) string) string {
	if value == nil {
		return unknown
	}
	return format(*value)
}

// Number returns the cell of a number, or unknown if it is nil.
func Number(n *int64, unknown string) string {
	return cellOf(n, unknown, func(n int64) string { return strconv.FormatInt(n, 10) })
}

// Size returns the cell of a size in bytes, or unknown if it is nil.
func Size(n *int64, unknown string) string { return cellOf(n, unknown, table.Bytes) }

// percent rounds so that a small share is not zero.
func percent(share float64) string {
	if share > 0 && share < 0.01 {
		return "<1%"
	}
	return fmt.Sprintf("%.0f%%", share*100)
}

func perSecond(rate float64) string { return strconv.FormatFloat(rate, 'f', 1, 64) }

func signed(rate float64) string { return fmt.Sprintf("%+.0f", rate) }

func signedSize(rate float64) string {
	if rate > 0 {
		return "+" + table.Bytes(int64(rate))
	}
	return table.Bytes(int64(rate))
}
