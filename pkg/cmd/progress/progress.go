// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package progress draws the progress bar of commands.
package progress

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

const (
	barWidth     = 30
	drawInterval = 100 * time.Millisecond
)

// Bar is a progress bar, shown only on a terminal.
type Bar struct {
	out   io.Writer // nil where it is no terminal
	what  string
	drawn time.Time
}

// New returns a bar for what is done.
func New(out io.Writer, what string) *Bar {
	file, ok := out.(*os.File)
	if !ok {
		return &Bar{}
	}
	info, err := file.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return &Bar{}
	}
	return &Bar{out: out, what: what}
}

// Show draws the bar, at a limited rate.
func (b *Bar) Show(objects, total, size int64) {
	b.draw(func() string { return line(objects, total, "objects, "+Bytes(size)) })
}

// ShowCount is Show for a number of units.
func (b *Bar) ShowCount(done, total int64, units string) {
	b.draw(func() string { return line(done, total, units) })
}

func (b *Bar) draw(line func() string) {
	if b.out == nil || time.Since(b.drawn) < drawInterval {
		return
	}
	b.drawn = time.Now()
	_, _ = fmt.Fprintf(b.out, "\r\x1b[K%s %s", b.what, line())
}

func line(count, total int64, units string) string {
	done := barWidth
	if total > 0 {
		done = int(min(count, total) * barWidth / total)
	}
	return fmt.Sprintf("[%s%s] %d/%d %s", strings.Repeat("#", done), strings.Repeat(".", barWidth-done), count, max(total, count), units)
}

// End removes the bar.
func (b *Bar) End() {
	if b.out != nil && !b.drawn.IsZero() {
		_, _ = fmt.Fprint(b.out, "\r\x1b[K")
	}
}

// Bytes formats a size for humans.
func Bytes(size int64) string {
	const unit = 1024
	if size < unit {
		return fmt.Sprintf("%d B", size)
	}
	scaled, units := float64(size)/unit, "KMGTPE"
	for scaled >= unit {
		scaled, units = scaled/unit, units[1:]
	}
	return fmt.Sprintf("%.1f %ciB", scaled, units[0])
}
