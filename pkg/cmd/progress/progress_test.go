// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package progress

import (
	"bytes"
	"testing"
	"time"
)

func TestLine(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		total, objects, size int64
		want                 string
	}{
		{10, 0, 0, "[..............................] 0/10 objects, 0 B"},
		{10, 5, 2048, "[###############...............] 5/10 objects, 2.0 KiB"},
		{10, 12, 3 << 30, "[##############################] 12/12 objects, 3.0 GiB"},
		{0, 0, 1023, "[##############################] 0/0 objects, 1023 B"},
	} {
		if got := line(tc.objects, tc.total, "objects, "+Bytes(tc.size)); got != tc.want {
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
	b := New(&out, "x")
	b.Show(1, 1, 1)
	b.ShowCount(1, 1, "x")
	b.End()
	if out.Len() > 0 {
		t.Errorf("what is no terminal got %q", out.String())
	}
}
