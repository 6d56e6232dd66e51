// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package stores

import (
	"errors"
	"testing"
	"time"

	"github.com/annex-dev/annex/pkg/test/expect"
)

// TestDisk: writes are refused from the reserve on, until a quarter more is free.
func TestDisk(t *testing.T) {
	t.Parallel()
	const gibi, mebi = 1 << 30, 1 << 20
	volume := Disk{Size: 8 * gibi}
	var unreadable error
	d := &disk{read: func() (Disk, error) { return volume, unreadable }}
	now := time.Unix(0, 0)
	for _, step := range []struct {
		free  int64
		fails error
		want  bool
	}{
		{free: gibi},
		{free: 256 * mebi},
		{free: 255 * mebi, want: true},
		{free: 300 * mebi, want: true},
		{free: gibi, fails: errors.New("stale"), want: true},
		{free: 320 * mebi},
	} {
		volume.Free, unreadable = step.free, step.fails
		now = now.Add(time.Minute)
		if _, low := d.look(now); low != step.want {
			t.Errorf("%d MiB free, %v: low is %v", step.free/mebi, step.fails, low)
		}
		volume.Free = 0
		if _, low := d.look(now); low != step.want {
			t.Error("it is read again at once")
		}
	}
	for name, tc := range map[string]struct{ size, database, want int64 }{
		"large":            {200 * gibi, gibi, 8 * gibi},
		"small":            {4*gibi + 256*mebi, gibi, 2 * gibi},
		"with a large one": {4*gibi + 256*mebi, 3 * gibi, 4 * gibi},
		"very small":       {100 * mebi, 0, 75 * mebi / 2},
	} {
		expect.Equal(t, tc.want, Disk{Size: tc.size}.Quota(tc.database, 8*gibi), name)
	}
}
