// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/annex-dev/annex/pkg/cmd/internal/output"
	"github.com/annex-dev/annex/pkg/table"
)

const forbidden = "forbidden"

var verdictCells = map[Verdict]string{
	MoveYes: "yes", MoveNo: "no", MoveHosted: "in annex", MoveUnknown: "unknown",
}

const groupHeader = "GROUP\tRESOURCES\tOBJECTS\tETCD\tSHARE\tMEMORY\tWATCHES\tCAN MOVE"

func (report *Report) print(out io.Writer, one bool, program string) error {
	if one {
		return printGroup(out, report)
	}
	return printGroups(out, report, program)
}

func printGroups(out io.Writer, report *Report, program string) error {
	if len(report.Groups) == 0 {
		_, err := fmt.Fprintln(out, "The cluster has no CustomResourceDefinitions.")
		return err
	}
	w := output.NewTable(out)
	fmt.Fprintln(w, groupHeader)
	for _, g := range report.Groups {
		printGroupRow(w, g)
	}
	fmt.Fprintln(w)
	printTotals(w, report)
	for _, g := range report.Groups {
		if g.Move.Verdict == MoveNo || g.Move.Verdict == MoveUnknown {
			fmt.Fprintf(w, "%s: %s: %s.\n", g.Name, verdictCells[g.Move.Verdict], strings.Join(g.Move.Reasons, "; "))
		}
	}
	if slices.ContainsFunc(report.Groups, func(g *Group) bool { return g.Move.Verdict == MoveYes }) {
		fmt.Fprintf(w, "Each resource of a group, and the command that moves it: %s --group=GROUP\n", program)
	}
	return w.Flush()
}

func printGroupRow(w io.Writer, g *Group) {
	unknown := table.Unknown
	if slices.ContainsFunc(g.Resources, func(r *Resource) bool { return r.Forbidden }) {
		unknown = forbidden
	}
	share := table.Unknown
	if g.Share != nil {
		share = percent(*g.Share)
	}
	fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\n", g.Name, len(g.Resources), Number(g.Objects, unknown), Size(g.Bytes, unknown), share,
		Size(g.MemoryBytes, unknown), Number(g.Watches, table.Unknown), verdictCells[g.Move.Verdict])
}

func printTotals(w io.Writer, report *Report) {
	custom := report.CustomResources
	if report.AllObjects != nil && report.AllBytes != nil {
		fmt.Fprintf(w, "Custom resources are %s of %d objects in etcd, and %s of %s.", Number(custom.Objects, table.Unknown), *report.AllObjects,
			Size(custom.Bytes, table.Unknown), table.Bytes(*report.AllBytes))
	} else {
		fmt.Fprintf(w, "Custom resources are %s objects of %s in etcd. SHARE is of them.", Number(custom.Objects, table.Unknown), Size(custom.Bytes, table.Unknown))
	}
	if report.EtcdBytes != nil {
		fmt.Fprintf(w, " Its files have %s.", table.Bytes(*report.EtcdBytes))
	}
	fmt.Fprintln(w)
	if isPositive(report.Movable.Bytes) {
		fmt.Fprintf(w, "The groups that can move have %s, and about %s of memory in each kube-apiserver.\n",
			table.Bytes(*report.Movable.Bytes), Size(report.Movable.MemoryBytes, table.Unknown))
	}
	printSources(w, report)
}

// printSources prints how numbers were found, and which are missing.
func printSources(w io.Writer, report *Report) {
	count := map[Source]int64{}
	for _, g := range report.Groups {
		for _, r := range g.Resources {
			count[r.Source]++
		}
	}
	if n := count[SourceMetrics]; n > 0 {
		fmt.Fprintf(w, "The numbers of %s are kube-apiserver's own, of about the last minute.\n", output.Count(n, "resource"))
	}
	if n := count[SourceSample]; n > 0 {
		fmt.Fprintf(w, "The sizes of %s are estimated from the first %d objects.\n", output.Count(n, "resource"), sampleObjects)
	}
	if len(report.MissingRights) > 0 {
		fmt.Fprintf(w, "Missing rights: %s.\n", strings.Join(report.MissingRights, "; "))
	}
	for _, problem := range report.Problems {
		fmt.Fprintf(w, "Not read: %s\n", problem)
	}
}

func printGroup(out io.Writer, report *Report) error {
	w := output.NewTable(out)
	g := report.Groups[0]
	fmt.Fprintln(w, groupHeader)
	printGroupRow(w, g)
	fmt.Fprintln(w)
	printResources(w, g)
	fmt.Fprintln(w)
	printSources(w, report)
	fmt.Fprintf(w, "Can move: %s.\n", strings.Join(append([]string{verdictCells[g.Move.Verdict]}, g.Move.Reasons...), "; "))
	if len(g.Move.Commands) > 0 {
		fmt.Fprintln(w, "With annex installed:")
		for _, command := range g.Move.Commands {
			fmt.Fprintln(w, "  "+command)
		}
	}
	return w.Flush()
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

// Number returns the cell of a number, or unknown if it is nil.
func Number(n *int64, unknown string) string {
	if n == nil {
		return unknown
	}
	return strconv.FormatInt(*n, 10)
}

// Size returns the cell of a size in bytes, or unknown if it is nil.
func Size(n *int64, unknown string) string {
	if n == nil {
		return unknown
	}
	return table.Bytes(*n)
}

// percent rounds so that a small share is not zero.
func percent(share float64) string {
	if share > 0 && share < 0.01 {
		return "<1%"
	}
	return fmt.Sprintf("%.0f%%", share*100)
}
