// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/annex-dev/annex/pkg/test/dashboards"
)

// Sizes of a column and a row of Grafana's grid, which has 24 columns.
const (
	gridColumns           = 24
	columnWidth vg.Length = 0.5 * vg.Inch
	rowHeight   vg.Length = 0.36 * vg.Inch
)

func newDashboardsCommand() *cobra.Command {
	return &cobra.Command{
		Use: "dashboards DIRECTORY RESULT...", Args: cobra.MinimumNArgs(2), Short: "Draw dashboards with results of their queries as SVG into a directory",
		RunE: func(_ *cobra.Command, args []string) error {
			plot.DefaultFont.Variant = "Sans"
			for _, file := range args[1:] {
				if err := drawDashboard(file, args[0]); err != nil {
					return fmt.Errorf("draw the dashboard %s: %w", file, err)
				}
			}
			return nil
		},
	}
}

func drawDashboard(file, dir string) error {
	dashboard, err := dashboards.ReadFile(file)
	if err != nil {
		return err
	}
	rows := 0
	for _, p := range dashboard.Panels {
		rows = max(rows, p.GridPos.Y+p.GridPos.H)
	}
	whole := vgsvg.New(gridColumns*columnWidth, vg.Length(rows)*rowHeight)
	canvas := draw.New(whole)
	for _, p := range dashboard.Panels {
		drawn, err := plotOf(p)
		if err != nil {
			return err
		}
		const gap = 6
		left, top := vg.Length(p.GridPos.X)*columnWidth, vg.Length(p.GridPos.Y)*rowHeight
		right, bottom := left+vg.Length(p.GridPos.W)*columnWidth, top+vg.Length(p.GridPos.H)*rowHeight
		drawn.Draw(draw.Crop(canvas, left+gap, right-canvas.Max.X-gap, canvas.Max.Y-bottom+gap, -top-gap))
	}
	var picture bytes.Buffer
	if _, err := whole.WriteTo(&picture); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, strings.TrimSuffix(filepath.Base(file), ".json")+".svg"), picture.Bytes(), 0o644)
}

// maxLines is as many as a legend has room for.
const maxLines = 6

// plotLine is a line of a panel.
type plotLine struct {
	name   string
	points plotter.XYs
	max    float64
}

// plotOf draws the largest lines of a panel. A panel with one number has it in its title.
func plotOf(p dashboards.Panel) (*plot.Plot, error) {
	drawn := plot.New()
	drawn.Title.Text = p.Title
	unit, scale := unitOf(p.FieldConfig.Defaults.Unit)
	drawn.Y.Label.Text, drawn.X.Label.Text = unit, "seconds"
	drawn.Legend.Top, drawn.Legend.TextStyle.Font.Size, drawn.Legend.ThumbnailWidth, drawn.Legend.XOffs = true, 8, 12, -8
	lines := linesOf(p.Targets, scale)
	slices.SortFunc(lines, func(a, b plotLine) int { return cmp.Or(cmp.Compare(b.max, a.max), cmp.Compare(a.name, b.name)) })
	for i, l := range lines[:min(len(lines), maxLines)] {
		if p.Type == "stat" {
			drawn.Title.Text = fmt.Sprintf("%s: %g", p.Title, l.points[len(l.points)-1].Y)
		}
		line, err := plotter.NewLine(l.points)
		if err != nil {
			return nil, err
		}
		line.Color, line.Width = plotutil.Color(i), 1.5
		drawn.Add(line)
		if l.name != "" {
			drawn.Legend.Add(l.name+" ", line)
		}
	}
	drawn.Y.Min, drawn.Y.Max = min(0, drawn.Y.Min), 1.6*max(drawn.Y.Max, 1e-3) // room for the legend
	return drawn, nil
}

func linesOf(targets []dashboards.Target, scale float64) (lines []plotLine) {
	for _, target := range targets {
		for _, result := range target.Results {
			l := plotLine{name: legend(target.LegendFormat, result.Metric), points: pointsOf(result.Values, scale)}
			for _, point := range l.points {
				l.max = max(l.max, point.Y)
			}
			if len(l.points) > 0 {
				lines = append(lines, l)
			}
		}
	}
	return lines
}

// unitOf returns the name of the axis, and what one of it is in the unit of the query.
func unitOf(unit string) (string, float64) {
	switch unit {
	case "bytes":
		return "MiB", 1 << 20
	case "Bps":
		return "kB/s", 1000
	case "s":
		return "ms", 0.001
	case "d":
		return "days", 1
	case "reqps":
		return "per second", 1
	default:
		return "", 1
	}
}

// pointsOf begins at 0 seconds.
func pointsOf(values [][2]any, scale float64) (points plotter.XYs) {
	for _, pair := range values {
		at, isNumber := pair[0].(float64)
		text, isText := pair[1].(string)
		value, err := strconv.ParseFloat(text, 64)
		if !isNumber || !isText || err != nil || value != value {
			continue
		}
		first, _ := values[0][0].(float64)
		points = append(points, plotter.XY{X: at - first, Y: value / scale})
	}
	return points
}

var placeholder = regexp.MustCompile(`{{ *(\w+) *}}`)

// legend returns the name of a series, with Grafana's placeholders of labels.
func legend(format string, labels map[string]string) string {
	return strings.TrimSpace(placeholder.ReplaceAllStringFunc(format, func(found string) string {
		return labels[placeholder.FindStringSubmatch(found)[1]]
	}))
}
