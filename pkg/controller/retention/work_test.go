// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package retention

import (
	"testing"
	"time"
)

func TestNextRun(t *testing.T) {
	t.Parallel()
	// Times are after the last run.
	tests := map[string]struct {
		after   []time.Duration // of the rules
		took    time.Duration
		nextDue time.Duration
		changed bool
		partial bool
		result  result
		want    time.Duration
	}{
		"nothing is due":                  {[]time.Duration{time.Hour}, 0, 0, false, false, result{}, maxInterval},
		"one is due":                      {[]time.Duration{time.Hour}, 0, 8 * time.Minute, false, false, result{}, 8 * time.Minute},
		"one is due at once":              {[]time.Duration{time.Hour}, 0, time.Second, false, false, result{}, 6 * time.Minute},
		"one is due much later":           {[]time.Duration{time.Hour}, 0, 50 * time.Minute, false, false, result{}, maxInterval},
		"changes":                         {[]time.Duration{time.Hour}, 0, 0, true, false, result{}, 6 * time.Minute},
		"changes and a short age":         {[]time.Duration{time.Hour, time.Second}, 0, 0, true, false, result{}, minInterval},
		"changes and a long age":          {[]time.Duration{1000 * time.Hour}, 0, 0, true, false, result{}, maxInterval},
		"changes and a long run":          {[]time.Duration{time.Second}, time.Minute, 0, true, false, result{}, 20 * time.Minute},
		"objects that changed meanwhile":  {[]time.Duration{time.Second}, 0, 0, false, false, result{changed: 1}, minInterval},
		"failures":                        {[]time.Duration{time.Second}, 0, 0, false, false, result{failed: 1}, retryInterval},
		"more than a plan has room for":   {[]time.Duration{time.Hour}, 0, 0, false, true, result{deleted: 1}, 0},
		"more, and none could be deleted": {[]time.Duration{time.Second}, 0, 0, false, true, result{failed: 1}, retryInterval},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := &work{lastRun: now, took: test.took, complete: !test.partial, result: test.result}
			for _, after := range test.after {
				w.rules = append(w.rules, rule{after: after})
			}
			if test.nextDue > 0 {
				w.nextDue = now.Add(test.nextDue)
			}
			if got := w.next(test.changed).Sub(now); got != test.want {
				t.Errorf("the next run is after %s, want %s", got, test.want)
			}
		})
	}
}
