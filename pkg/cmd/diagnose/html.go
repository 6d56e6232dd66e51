// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"
	"time"

	"k8s.io/utils/ptr"

	"github.com/annex-dev/annex/pkg/table"
	"github.com/annex-dev/annex/pkg/version"
)

//go:embed report.html
var pageSource string

// page is parsed once: a template that is wrong fails every test.
var page = template.Must(template.New("report.html").Funcs(template.FuncMap{
	"number":  func(n *int64) string { return Number(n, table.Unknown) },
	"bytes":   table.Bytes,
	"size":    func(n *int64) string { return Size(n, table.Unknown) },
	"percent": func(share *float64) string { return cellOf(share, table.Unknown, percent) },
	"rate":    func(rate *float64) string { return cellOf(rate, table.Unknown, perSecond) },
	"growth":  func(rate *float64) string { return cellOf(rate, table.Unknown, signedSize) },
	"verdict": func(v Verdict) string { return verdictCells[v] },
	"join":    strings.Join,
}).Parse(pageSource))

// pageData adds to a report the values that only the page shows.
type pageData struct {
	*Report
	Annex   string
	Printed string
	Totals  []string
	// Parts divide the bytes in etcd, or the custom resources if only these are known.
	Parts []part
	// LargestBytes and LargestMemory are the values with the longest bars.
	LargestBytes, LargestMemory int64
}

// part is a part of a whole in a picture.
type part struct {
	Class, Name string
	Bytes       int64
	Percent     float64
}

// PercentOf returns the length of a bar.
func (pageData) PercentOf(value *int64, largest int64) string {
	if value == nil || largest == 0 {
		return "0"
	}
	return fmt.Sprintf("%.1f", 100*float64(*value)/float64(largest))
}

// printHTML prints a page that needs no other file, and no script.
func (report *Report) printHTML(out io.Writer, now time.Time) error {
	data := pageData{Report: report, Annex: version.Annex(), Printed: now.UTC().Format("2006-01-02 15:04 MST"), Totals: report.totals(), Parts: report.parts()}
	for _, g := range report.Groups {
		data.LargestBytes, data.LargestMemory = max(data.LargestBytes, ptr.Deref(g.Bytes, 0)), max(data.LargestMemory, ptr.Deref(g.MemoryBytes, 0))
	}
	if err := page.Execute(out, data); err != nil {
		return fmt.Errorf("print the report as HTML: %w", err)
	}
	return nil
}

// parts divide what etcd has.
func (report *Report) parts() []part {
	var movable, copies, others int64
	for _, g := range report.Groups {
		switch bytes := ptr.Deref(g.Bytes, 0); {
		case g.Move.Verdict == MoveYes:
			movable += bytes
		case g.FrozenCopy:
			copies += bytes
		default:
			others += bytes
		}
	}
	whole := movable + copies + others
	rest := max(0, ptr.Deref(report.AllBytes, whole)-whole)
	var parts []part
	for _, p := range []part{
		{Class: "movable", Name: "can move to annex", Bytes: movable}, {Class: "copy", Name: "copies of groups in annex", Bytes: copies},
		{Class: "custom", Name: "other custom resources", Bytes: others}, {Class: "rest", Name: "all other objects", Bytes: rest},
	} {
		if p.Bytes > 0 {
			p.Percent = 100 * float64(p.Bytes) / float64(whole+rest)
			parts = append(parts, p)
		}
	}
	return parts
}
