// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package retention

import "time"

const (
	// The rest after a request takes restFactor times as long: at most a fifth of the time is
	// spent on requests.
	restFactor = 4

	// If a request takes slowRatio times as long as the fastest, the server counts as busy and
	// rests get longer, at most maxSlowdown times.
	slowRatio   = 2
	maxSlowdown = 16

	// maxRest is the longest rest.
	maxRest = 5 * time.Second

	// Each slower request raises the fastest duration by this part of the difference.
	forgetting = 256
)

// pace computes the rest after each request from the duration of requests: a busy server responds
// later. A fixed rate would be too high for a busy server, or too low for an idle one.
type pace struct{ fastest time.Duration }

// rest returns the rest after a request.
func (p *pace) rest(took time.Duration) time.Duration {
	took = max(took, time.Microsecond)
	if p.fastest == 0 || took < p.fastest {
		p.fastest = took
	}
	rest := restFactor * took
	if slower := took / p.fastest; slower >= slowRatio {
		rest *= min(slower, maxSlowdown)
	}
	p.fastest += (took - p.fastest) / forgetting
	return min(rest, maxRest)
}
