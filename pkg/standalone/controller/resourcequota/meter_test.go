// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcequota

import (
	"math/rand/v2"
	"testing"
	"time"
)

func TestMeter(t *testing.T) {
	t.Parallel()
	type step struct {
		after           time.Duration
		used            int64
		count, deleted  int64
		stale           bool
		want            int64
		wantAgain       time.Duration
		writeGoesAmiss  bool
		writeIsConflict bool
	}
	tests := map[string][]step{
		"nothing happens":             {{used: 3, count: 3, want: 3}, {after: time.Hour, used: 3, count: 3, want: 3}},
		"more than is shown":          {{used: 3, count: 5, want: 5}},
		"charged and not yet there":   {{used: 3, count: 3, want: 3}, {used: 4, count: 3, want: 4, wantAgain: landingPeriod}, {after: time.Second, used: 4, count: 4, want: 4}},
		"charged and deleted another": {{used: 3, count: 3, want: 3}, {used: 4, count: 2, deleted: 1, want: 3, wantAgain: landingPeriod}},
		"charged and never there": {
			{used: 3, count: 3, want: 3},
			{used: 4, count: 3, want: 4, wantAgain: landingPeriod},
			{after: landingPeriod - time.Second, used: 4, count: 3, want: 4, wantAgain: time.Second},
			{after: time.Second, used: 4, count: 3, want: 3},
		},
		"charged again and again and never there": {
			{used: 0, count: 0, want: 0},
			{used: 1, count: 0, want: 1, wantAgain: landingPeriod},
			{after: landingPeriod / 2, used: 2, count: 0, want: 2, wantAgain: landingPeriod - landingPeriod/2},
			{after: landingPeriod, used: 3, count: 0, want: 1, wantAgain: landingPeriod},
		},
		"a term that begins": {
			{used: 5, count: 3, deleted: 7, want: 5, wantAgain: landingPeriod},
			{after: landingPeriod, used: 5, count: 3, deleted: 7, want: 3},
		},
		"not seen for a while": {
			{used: 3, count: 3, want: 3},
			{after: time.Hour, used: 5, count: 3, stale: true, want: 5, wantAgain: landingPeriod},
			{after: time.Hour, used: 5, count: 3, stale: true, want: 5, wantAgain: landingPeriod},
			{after: time.Second, used: 5, count: 4, want: 4},
		},
		"another was faster": {
			{used: 3, count: 3, want: 3},
			{used: 3, count: 2, deleted: 1, want: 2, writeIsConflict: true},
			{used: 4, count: 2, deleted: 1, want: 3, wantAgain: landingPeriod},
		},
		"a write that may have been done": {
			{used: 3, count: 3, want: 3},
			{used: 3, count: 2, deleted: 1, want: 2, writeGoesAmiss: true},
			{used: 2, count: 2, deleted: 1, want: 2},
		},
	}
	for name, steps := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, now := &meter{}, time.Unix(0, 0)
			for i, s := range steps {
				now = now.Add(s.after)
				counted := tally{count: s.count, deleted: s.deleted}
				got, again := m.read(s.used, counted, !s.stale, now)
				if got != s.want || again != s.wantAgain {
					t.Fatalf("step %d: shows %d and again after %s, want %d and %s", i, got, again, s.want, s.wantAgain)
				}
				switch {
				case s.writeGoesAmiss:
					m = &meter{}
				case !s.writeIsConflict:
					m.shows(got, counted)
				}
			}
		})
	}
}

// fixture is a namespace with one limit, in which requests and the controller act in
// whatever order comes up.
type fixture struct {
	random *rand.Rand
	now    time.Time
	hard   int64

	used     int64       // what the quota shows
	version  int         // of the quota
	inFlight []time.Time // charged and not written yet, since when
	stored   int64       // objects in the store
	unseen   []int64     // what happened to objects and the controller has not seen: +1 or -1
	seen     tally

	meter *meter
	// read holds the usage that the controller has read and not yet written, or nil.
	read *unwritten
}

type unwritten struct {
	version int
	shown   int64
	counted tally
}

// act does one of the things that can happen next.
func (w *fixture) act() {
	switch w.random.IntN(9) {
	case 0, 1: // a create is admitted
		if w.used < w.hard {
			w.used++
			w.version++
			w.inFlight = append(w.inFlight, w.now)
		}
	case 2: // one is written
		if len(w.inFlight) > 0 {
			w.inFlight = w.inFlight[1:]
			w.stored++
			w.unseen = append(w.unseen, 1)
		}
	case 3: // one fails
		if len(w.inFlight) > 0 && w.random.IntN(4) == 0 {
			w.inFlight = w.inFlight[1:]
		}
	case 4: // an object is deleted
		if w.stored > 0 {
			w.stored--
			w.unseen = append(w.unseen, -1)
		}
	case 5: // the controller sees what happened
		w.see()
	case 6:
		w.readQuota()
	case 7:
		w.writeQuota()
	case 8:
		w.pass(time.Duration(w.random.Int64N(int64(landingPeriod / 4))))
	}
}

func (w *fixture) see() {
	if len(w.unseen) == 0 {
		return
	}
	w.seen.count += w.unseen[0]
	if w.unseen[0] < 0 {
		w.seen.deleted++
	}
	w.unseen = w.unseen[1:]
}

func (w *fixture) readQuota() {
	shown, _ := w.meter.read(w.used, w.seen, true, w.now)
	w.read = &unwritten{w.version, shown, w.seen}
}

func (w *fixture) writeQuota() {
	if w.read == nil {
		return
	}
	defer func() { w.read = nil }()
	switch {
	case w.read.shown == w.used && w.read.version == w.version, w.read.version == w.version && w.random.IntN(5) > 0:
		w.used = w.read.shown
		w.version++
		w.meter.shows(w.read.shown, w.read.counted)
	case w.read.version == w.version: // it was written, and the answer was lost
		w.used = w.read.shown
		w.version++
		w.meter = &meter{}
	}
}

// pass lets time go by, in which requests and watches do what they take too long for.
func (w *fixture) pass(period time.Duration) {
	w.now = w.now.Add(period)
	for len(w.inFlight) > 0 && w.now.Sub(w.inFlight[0]) > landingPeriod/2 {
		w.inFlight = w.inFlight[1:]
		w.stored++
		w.unseen = append(w.unseen, 1)
	}
	for len(w.unseen) > 0 {
		w.see()
	}
}

func FuzzMeter(f *testing.F) {
	for seed := range uint64(200) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		w := &fixture{random: rand.New(rand.NewPCG(seed, 0)), now: time.Unix(0, 0), hard: 5, meter: &meter{}}
		for step := range 500 {
			w.act()
			if there := w.stored + int64(len(w.inFlight)); there > w.hard || there > w.used {
				t.Fatalf("step %d: %d objects and %d on their way, but %d of %d are shown", step, w.stored, len(w.inFlight), w.used, w.hard)
			}
		}
		for range 3 {
			w.pass(landingPeriod)
			w.readQuota()
			for w.read != nil {
				w.writeQuota()
			}
		}
		if w.used != w.stored {
			t.Errorf("%d are shown long after the last of %d objects came or went", w.used, w.stored)
		}
	})
}
