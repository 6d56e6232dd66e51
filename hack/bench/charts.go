// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"image/color"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

const width, barHeight = 7 * vg.Inch, 0.27 * vg.Inch

var (
	barColor    = color.RGBA{R: 0x32, G: 0x6c, B: 0xe5, A: 0xff}
	targetColor = color.RGBA{R: 0xd6, G: 0x45, B: 0x45, A: 0xff}
)

func newChartsCommand() *cobra.Command {
	return &cobra.Command{
		Use: "charts DIRECTORY RESULT...", Args: cobra.MinimumNArgs(2), Short: "Draw results that --json has written as SVG into a directory",
		RunE: func(_ *cobra.Command, args []string) error {
			plot.DefaultFont.Variant = "Sans"
			for _, file := range args[1:] {
				content, err := os.ReadFile(file)
				if err != nil {
					return fmt.Errorf("read a result: %w", err)
				}
				var r report
				if err := json.Unmarshal(content, &r); err != nil {
					return fmt.Errorf("read %s: %w", file, err)
				}
				if err := r.draw(args[0]); err != nil {
					return fmt.Errorf("draw %s: %w", file, err)
				}
			}
			return nil
		},
	}
}

// draw writes a chart of ratios per case, and one per series.
func (r report) draw(dir string) error {
	for _, c := range r.Cases {
		name := fmt.Sprintf("%s-%d-%d", r.Kind, c.Objects, c.Bytes)
		subtitle := fmt.Sprintf("%d objects of %d bytes", c.Objects, c.Bytes)
		if names, ratios, targets := ratiosOf(c.Figures); len(names) > 0 {
			chart, err := bars(subtitle+": kube-apiserver / annex (CPU time; others: wall time, bytes)", names, ratios, targets)
			if err != nil {
				return err
			}
			height := barHeight*vg.Length(len(names)) + 1.1*vg.Inch
			if err := chart.Save(width, height, filepath.Join(dir, name+".svg")); err != nil {
				return err
			}
		}
		for i, s := range c.Series {
			chart, err := line(subtitle+": "+s.Name, s)
			if err != nil {
				return err
			}
			if err := chart.Save(width, 3*vg.Inch, filepath.Join(dir, fmt.Sprintf("%s-%d.svg", name, i))); err != nil {
				return err
			}
		}
	}
	return nil
}

// ratiosOf returns what both servers have, the first figure last because axes begin below. The
// CPU time is preferred: it does not depend on the client.
func ratiosOf(figures []figure) (names []string, ratios, targets plotter.Values) {
	for _, f := range slices.Backward(figures) {
		r := ratio(f.CPU, peerName, annexName)
		if r == 0 {
			r = ratio(f.Measured, peerName, annexName)
		}
		if r > 0 {
			names, ratios, targets = append(names, f.Name), append(ratios, r), append(targets, f.Target)
		}
	}
	return names, ratios, targets
}

// bars returns horizontal bars on a logarithmic axis, with a line at 1 and a mark per target.
func bars(title string, names []string, ratios, targets plotter.Values) (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text = title
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.ConstantTicks(ticks())
	p.NominalY(names...)
	p.X.Min, p.X.Max = 0.3, max(20, 1.1*slices.Max(ratios))
	var marks plotter.XYs
	for i := range ratios {
		y := float64(i)
		// A bar of gonum begins at 0, which a logarithmic axis does not have.
		bar, err := plotter.NewPolygon(plotter.XYs{{X: 1, Y: y - 0.3}, {X: ratios[i], Y: y - 0.3}, {X: ratios[i], Y: y + 0.3}, {X: 1, Y: y + 0.3}})
		if err != nil {
			return nil, err
		}
		bar.Color, bar.Width = barColor, 0
		p.Add(bar)
		if targets[i] > 0 {
			marks = append(marks, plotter.XY{X: targets[i], Y: y})
		}
	}
	one, err := plotter.NewLine(plotter.XYs{{X: 1, Y: -0.5}, {X: 1, Y: float64(len(ratios)) - 0.5}})
	if err != nil {
		return nil, err
	}
	p.Add(one)
	if len(marks) == 0 {
		return p, nil
	}
	scatter, err := plotter.NewScatter(marks)
	if err != nil {
		return nil, err
	}
	scatter.GlyphStyle = draw.GlyphStyle{Color: targetColor, Radius: vg.Points(4), Shape: draw.CrossGlyph{}}
	p.Add(scatter)
	p.Legend.Add("target", scatter)
	p.Legend.Top = false
	return p, nil
}

func ticks() []plot.Tick {
	var all []plot.Tick
	for _, value := range []float64{0.5, 1, 2, 5, 10, 20, 50, 100} {
		all = append(all, plot.Tick{Value: value, Label: fmt.Sprint(value)})
	}
	return all
}

// line returns a line chart from 0.
func line(title string, s series) (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, s.X, s.Y
	points := make(plotter.XYs, 0, len(s.Points))
	for _, point := range s.Points {
		points = append(points, plotter.XY{X: point[0], Y: point[1]})
	}
	drawn, err := plotter.NewLine(points)
	if err != nil {
		return nil, err
	}
	drawn.Color = barColor
	p.Add(drawn)
	p.Y.Min = 0
	return p, nil
}
