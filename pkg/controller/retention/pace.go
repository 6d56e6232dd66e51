// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package retention

import "time"

const (
	// restFactor is how many times longer than a request the rest after it is: at most a fifth of
	// the time is spent on requests.
	restFactor = 4

	// slowRatio is how many times slower than usual a request is of a server that is busy, which
	// makes rests longer, at most maxSlowdown times.
	slowRatio   = 2
	maxSlowdown = 16

	// maxRest is the longest rest.
	maxRest = 5 * time.Second

	// forgetting is how slowly the fastest request is forgotten: by this part of the difference to
	// each slower one.
	forgetting = 256
)

// pace decides how long to rest after each request, by how long requests take: a server that has
// more to do answers later. A fixed rate would be too high for a busy server, or too low for an
// idle one.
type pace struct{ fastest time.Duration }

// rest returns how long to rest after a request.
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
