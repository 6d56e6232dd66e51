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

// column is a column of a table of groups or resources.
type column[T any] struct {
	header string
	// wide columns are printed only with -o wide, rate columns only with --window. These replace others unless -o wide is given.
	wide, rate, replaced bool
	cell                 func(T) string
}

var groupColumns = []column[*Group]{
	{header: "GROUP", cell: func(g *Group) string { return g.Name }},
	{header: "RESOURCES", wide: true, cell: func(g *Group) string { return strconv.Itoa(len(g.Resources)) }},
	{header: "OBJECTS", cell: func(g *Group) string { return Number(g.Objects, uncounted(g.Resources...)) }},
	{header: "ETCD", cell: func(g *Group) string { return Size(g.Bytes, table.Dash) }},
	{header: "SHARE", replaced: true, cell: func(g *Group) string { return cellOf(g.Share, table.Dash, percent) }},
	{header: "MEMORY", replaced: true, cell: func(g *Group) string { return Size(g.MemoryBytes, table.Dash) }},
	{header: "WATCHES", wide: true, cell: func(g *Group) string { return Number(g.Watches, table.Dash) }},
	{header: "WRITES/S", rate: true, cell: func(g *Group) string { return cellOf(g.WritesPerSecond, table.Dash, perSecond) }},
	{header: "OBJECTS/H", rate: true, wide: true, cell: func(g *Group) string { return cellOf(g.ObjectsPerHour, table.Dash, signed) }},
	{header: "ETCD/H", rate: true, cell: func(g *Group) string { return cellOf(g.BytesPerHour, table.Dash, signedSize) }},
	{header: "CAN MOVE", cell: func(g *Group) string { return verdictCells[g.Move.Verdict] }},
}

var resourceColumns = []column[*Resource]{
	{header: "RESOURCE", cell: func(r *Resource) string { return r.Name }},
	{header: "SCOPE", wide: true, cell: func(r *Resource) string { return table.OrNone(r.Scope) }},
	{header: "VERSIONS", wide: true, cell: func(r *Resource) string { return table.OrNone(strings.Join(r.Versions, ",")) }},
	{header: "STORED", wide: true, cell: func(r *Resource) string { return table.OrNone(r.StorageVersion) }},
	{header: "CONVERSION", wide: true, cell: func(r *Resource) string { return table.OrNone(r.ConversionWebhook) }},
	{header: "OBJECTS", cell: func(r *Resource) string { return Number(r.Objects, uncounted(r)) }},
	{header: "ETCD", cell: func(r *Resource) string { return Size(r.Bytes, table.Dash) }},
	{header: "MEMORY", cell: func(r *Resource) string { return Size(r.MemoryBytes, table.Dash) }},
	{header: "WATCHES", cell: func(r *Resource) string { return Number(r.Watches, table.Dash) }},
	{header: "SOURCE", cell: func(r *Resource) string { return table.OrNone(r.Source) }},
}

// printRows prints a table, with the rates of --window if window is set.
func printRows[T any](w io.Writer, columns []column[T], rows []T, wide, window bool) {
	shown := slices.DeleteFunc(slices.Clone(columns), func(c column[T]) bool { return !wide && (c.wide || c.replaced && window) || c.rate && !window })
	line := func(cell func(column[T]) string) {
		var cells []string
		for _, c := range shown {
			cells = append(cells, cell(c))
		}
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	line(func(c column[T]) string { return c.header })
	for _, row := range rows {
		line(func(c column[T]) string { return c.cell(row) })
	}
}

func (report *Report) print(out io.Writer, one, wide bool, program string) error {
	if len(report.Groups) == 0 {
		_, err := fmt.Fprintln(out, "The cluster has no CustomResourceDefinitions.")
		return err
	}
	w := output.NewTable(out)
	printRows(w, groupColumns, report.Groups, wide, report.WindowSeconds > 0)
	fmt.Fprintln(w)
	if one {
		report.printGroup(w, wide)
	} else {
		report.printNotes(w, program)
	}
	return w.Flush()
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

// uncounted returns the cell of a number of objects that is not known.
func uncounted(resources ...*Resource) string {
	if slices.ContainsFunc(resources, func(r *Resource) bool { return r.Forbidden }) {
		return forbidden
	}
	return table.Dash
}

// totals returns sentences on the whole cluster.
func (report *Report) totals() []string {
	var sentences []string
	custom := report.CustomResources
	first := fmt.Sprintf("Custom resources are %s objects of %s in etcd.", Number(custom.Objects, table.Unknown), Size(custom.Bytes, table.Unknown))
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

func (report *Report) printGroup(w io.Writer, wide bool) {
	g := report.Groups[0]
	printRows(w, resourceColumns, g.Resources, wide, false)
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
