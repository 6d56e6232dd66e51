// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package output

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

func TestLine(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		what, text   string
		total, count int64
		want         string
	}{
		{"x", "objects, 0 B", 10, 0, "x [..............................] 0/10 objects, 0 B"},
		{"x", "objects, 2.0 KiB", 10, 5, "x [###############...............] 5/10 objects, 2.0 KiB"},
		{"x", "objects", 10, 12, "x [##############################] 12/12 objects"},
		{"x", "objects", 0, 0, "x [##############################] 0/0 objects"},
		{"certificates.cert-manager.io", "objects, 1.2 GiB, 1300/s, 2m left", 100, 70, "certificates.cert-manager.io [####...] 70/100 objects, 1.2 GiB, 1300/s, 2m left"},
		{strings.Repeat("x", 80), "objects", 2, 1, strings.Repeat("x", 80) + " [##...] 1/2 objects"},
	} {
		if got := line(tc.what, tc.count, tc.total, tc.text); got != tc.want {
			t.Errorf("%q, want %q", got, tc.want)
		}
	}
}

func TestRate(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		done, left int64
		took       time.Duration
		want       string
	}{
		{0, 10, time.Minute, ""},
		{10, 10, time.Second, ""},
		{100, 300, 10 * time.Second, ", 10/s, 30s left"},
		{100, 0, 10 * time.Second, ", 10/s"},
	} {
		if got := rate(tc.done, tc.left, tc.took); got != tc.want {
			t.Errorf("%d of %d in %s: %q, want %q", tc.done, tc.done+tc.left, tc.took, got, tc.want)
		}
	}
}

func TestOnlyOnATerminal(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	b := NewBar(&out, "x")
	b.Show(1, 1, 1)
	b.ShowCount(1, 1, "x")
	b.End()
	if out.Len() > 0 {
		t.Errorf("what is no terminal got %q", out.String())
	}
}
