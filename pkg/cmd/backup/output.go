// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

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

// progress is a progress bar, shown only on a terminal.
type progress struct {
	out   io.Writer // nil where it is no terminal
	what  string
	total int64
	drawn time.Time
}

func newProgress(out io.Writer, what string, total int64) *progress {
	file, ok := out.(*os.File)
	if !ok {
		return &progress{}
	}
	info, err := file.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return &progress{}
	}
	return &progress{out: out, what: what, total: total}
}

// show draws the bar, at a limited rate.
func (p *progress) show(objects, size int64) {
	if p.out == nil || time.Since(p.drawn) < drawInterval {
		return
	}
	p.drawn = time.Now()
	_, _ = fmt.Fprintf(p.out, "\r\x1b[K%s", p.bar(objects, size))
}

func (p *progress) bar(objects, size int64) string {
	done := barWidth
	if p.total > 0 {
		done = int(min(objects, p.total) * barWidth / p.total)
	}
	return fmt.Sprintf("%s [%s%s] %d/%d objects, %s", p.what, strings.Repeat("#", done), strings.Repeat(".", barWidth-done), objects, max(p.total, objects), inBytes(size))
}

// end removes the bar.
func (p *progress) end() {
	if p.out != nil && !p.drawn.IsZero() {
		_, _ = fmt.Fprint(p.out, "\r\x1b[K")
	}
}

// inBytes formats a size for humans.
func inBytes(size int64) string {
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

// maxNamed is how many objects a warning names.
const maxNamed = 10

// unreadable are objects whose values cannot be read.
type unreadable struct {
	count int64
	named []string
}

func (u *unreadable) add(keys ...string) {
	u.count += int64(len(keys))
	u.named = append(u.named, keys[:min(len(keys), maxNamed-len(u.named))]...)
}

// warn prints a warning that names the objects and their fate, if there are any.
func (u *unreadable) warn(errOut io.Writer, fate string) error {
	if u.count == 0 {
		return nil
	}
	names := strings.Join(u.named, ", ")
	if others := u.count - int64(len(u.named)); others > 0 {
		names += fmt.Sprintf(" and %d others", others)
	}
	_, err := fmt.Fprintf(errOut, "annex: warning: %s cannot be read, %s: %s\n", objects(u.count), fate, names)
	return err
}
