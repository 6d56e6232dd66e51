// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package output

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/annex-dev/annex/pkg/table"
)

const (
	columns      = 80
	barWidth     = 30
	minBarWidth  = 5
	drawInterval = 100 * time.Millisecond
	// No rate is shown before minRatePeriod.
	minRatePeriod = 2 * time.Second
)

// Bar is a progress bar, shown only on a terminal.
type Bar struct {
	out   io.Writer // nil where it is no terminal
	what  string
	drawn time.Time
	// began is the time of the first drawing, and first the number that was done then.
	began time.Time
	first int64
}

// NewBar returns a bar for what is done.
func NewBar(out io.Writer, what string) *Bar {
	if !IsTerminal(out) {
		return &Bar{}
	}
	return &Bar{out: out, what: what}
}

// IsTerminal reports whether a stream is a terminal.
func IsTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// Show draws the bar, at a limited rate. A size of 0 is unknown.
func (b *Bar) Show(objects, total, size int64) {
	units := "objects"
	if size > 0 {
		units += ", " + table.Bytes(size)
	}
	b.ShowCount(objects, total, units)
}

// ShowCount is Show for a number of units.
func (b *Bar) ShowCount(done, total int64, units string) {
	now := time.Now()
	if b.out == nil || now.Sub(b.drawn) < drawInterval {
		return
	}
	if b.began.IsZero() || done < b.first {
		b.began, b.first = now, done
	}
	b.drawn = now
	_, _ = fmt.Fprint(b.out, "\r\x1b[K"+line(b.what, done, total, units+rate(done-b.first, total-done, now.Sub(b.began))))
}

// rate returns the units per second and the time left, an empty string before minRatePeriod.
func rate(done, left int64, took time.Duration) string {
	if done <= 0 || took < minRatePeriod {
		return ""
	}
	perSecond := float64(done) / took.Seconds()
	text := fmt.Sprintf(", %.0f/s", perSecond)
	if left > 0 {
		text += ", " + time.Duration(float64(left)/perSecond*float64(time.Second)).Round(time.Second).String() + " left"
	}
	return text
}

// line returns a bar that leaves the last column of a terminal free.
func line(what string, count, total int64, text string) string {
	text = fmt.Sprintf("%d/%d %s", count, max(total, count), text)
	width := max(minBarWidth, min(barWidth, columns-1-len(what)-len(text)-len(" [] ")))
	done := width
	if total > 0 {
		done = int(min(count, total) * int64(width) / total)
	}
	return fmt.Sprintf("%s [%s%s] %s", what, strings.Repeat("#", done), strings.Repeat(".", width-done), text)
}

// Clear removes the bar until it is shown again.
func (b *Bar) Clear() {
	if b.out != nil && !b.drawn.IsZero() {
		_, _ = fmt.Fprint(b.out, "\r\x1b[K")
		b.drawn = time.Time{}
	}
}

// End removes the bar. Another count has another rate.
func (b *Bar) End() {
	b.Clear()
	b.began = time.Time{}
}
