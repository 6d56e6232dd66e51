// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"os"
	"testing"
	"time"

	"github.com/annex-dev/annex/pkg/test/expect"
)

func TestParseCPU(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		stat  string
		want  time.Duration
		fails bool
	}{
		"process":                {stat: "7 (annex) S 1 7 7 0 -1 4194560 1 0 0 0 250 31 0 0 20 0 9 0 100", want: 2810 * time.Millisecond},
		"a name with everything": {stat: "7 (a) b (c) R 1 7 7 0 -1 4194560 1 0 0 0 1 2 9 9 20 0 9 0 100", want: 30 * time.Millisecond},
		"cut off":                {stat: "7 (annex) S 1 7", fails: true},
		"no number":              {stat: "7 (annex) S 1 7 7 0 -1 4194560 1 0 0 0 x 31 0 0 20", fails: true},
		"empty":                  {fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := parseCPU(test.stat)
			if got != test.want && !test.fails || (err != nil) != test.fails {
				t.Errorf("parseCPU(%q) = %s, %v, want %s", test.stat, got, err, test.want)
			}
		})
	}
}

func TestUsageOf(t *testing.T) {
	t.Parallel()
	usage, err := UsageOf(os.Getpid())
	expect.NoError(t, err)
	if usage.RSS < 1<<20 || usage.PeakRSS < usage.RSS/2 || usage.CPU < 0 {
		t.Errorf("this process uses %+v", usage)
	}
	if _, err := UsageOf(-1); err == nil {
		t.Error("a process that does not exist has a usage")
	}
}
