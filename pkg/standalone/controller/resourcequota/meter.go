// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcequota

import "time"

// landingPeriod is how long after an object was charged it is there, or will never
// be. It is far more than a write takes, and bounds how long a charge is kept whose
// create failed.
const landingPeriod = 10 * time.Second

// charge is a rise of what is used that was seen at some time.
type charge struct {
	at      time.Time
	objects int64
}

// meter says what one limit of a quota has to show as used. It is used by one
// goroutine at a time.
type meter struct {
	known bool
	// used is what the quota was seen to show last, and deleted how many objects
	// were gone that it does not show any more.
	used, deleted int64
	// charges are those whose objects may not be seen yet, oldest first.
	charges []charge
}

// read returns what should be shown in place of used, where so much is counted. If
// that is more than the count, it should be read again after the time returned.
// current says that the count is not behind.
func (m *meter) read(used int64, counted tally, current bool, now time.Time) (shown int64, again time.Duration) {
	charged := used - m.used
	if !m.known {
		// Whoever charged what cannot be seen may just have done so.
		*m = meter{known: true, deleted: counted.deleted}
		charged = used - counted.count
	}
	m.used = used
	if charged > 0 {
		m.charges = append(m.charges, charge{at: now, objects: charged})
	}
	pending := m.pending(now)
	shown = used - (counted.deleted - m.deleted)
	if current {
		shown = min(shown, counted.count+pending)
	}
	shown = max(shown, counted.count)
	switch {
	case shown <= counted.count:
		return shown, 0
	case len(m.charges) == 0:
		return shown, landingPeriod
	default:
		return shown, m.charges[0].at.Add(landingPeriod).Sub(now)
	}
}

// pending is how many objects may have been charged and not be seen yet.
func (m *meter) pending(now time.Time) int64 {
	for len(m.charges) > 0 && now.Sub(m.charges[0].at) >= landingPeriod {
		m.charges = m.charges[1:]
	}
	var objects int64
	for _, c := range m.charges {
		objects += c.objects
	}
	return objects
}

// shows notes that the quota shows what read returned for a tally.
func (m *meter) shows(used int64, counted tally) {
	m.known, m.used, m.deleted = true, used, counted.deleted
}
