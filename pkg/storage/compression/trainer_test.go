// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package compression

import "testing"

func TestWhenToTrain(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		writes, objects int64
		fruitful        bool
		next            int64
	}{
		"one was counted before it was there": {64, 63, false, 65},
		"few that are written often":          {64, 4, false, 124},
		"of some":                             {64, 64, true, 1064},
		"of many":                             {5000, 4000, true, 9000},
		"of many, in vain":                    {5000, 4000, false, 13000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var training training
			training.tried(test.writes, test.objects, test.fruitful)
			if training.due(test.next-1) || !training.due(test.next) {
				t.Errorf("it is due at %d writes, want %d", training.next, test.next)
			}
		})
	}
}
