// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

const (
	// Leases and caches bear some seconds; certificates and tokens a minute.
	skewToMention = 5 * time.Second
	skewToMend    = time.Minute
)

// checkClock compares three clocks by the Date that servers answer with. A
// request for annex's group carries annex's.
func checkClock(ctx context.Context, e *environment) []finding {
	const mend = "timedatectl status"
	mainSkew, mainError, err := skew(ctx, e, "/version")
	if err != nil {
		return []finding{warn("kubectl get --raw /version", "the main cluster's clock is not known: %v", err)}
	}
	message := fmt.Sprintf("the main cluster's clock is %s of the one here", apart(mainSkew, mainError))
	worst, tolerance := mainSkew.Abs(), mainError
	annexSkew, annexError, err := skew(ctx, e, "/apis/"+hostingPath)
	if err != nil {
		message += "; annex's is not known: " + err.Error()
	} else {
		message += fmt.Sprintf(", annex's %s", apart(annexSkew, annexError))
		worst = max(worst, annexSkew.Abs(), (annexSkew - mainSkew).Abs())
		tolerance = max(tolerance, annexError)
	}
	switch {
	case worst > skewToMend+tolerance:
		return []finding{fail(mend, "%s: certificates, tokens and leases of one seem expired to the other", message)}
	case worst > skewToMention+tolerance:
		return []finding{warn(mend, "%s", message)}
	}
	return []finding{ok("%s", message)}
}

// skew is how far a server's clock is ahead, and how exactly that is known: a Date
// has whole seconds, and the answer took its time.
func skew(ctx context.Context, e *environment, path string) (ahead, exactness time.Duration, err error) {
	answer, err := e.getMain(ctx, path, "application/json")
	if err != nil {
		return 0, 0, err
	}
	if answer.status != http.StatusOK {
		return 0, 0, fmt.Errorf("%s is answered with %d", path, answer.status)
	}
	date, err := http.ParseTime(answer.header.Get("Date"))
	if err != nil {
		return 0, 0, fmt.Errorf("the Date of the answer: %w", err)
	}
	took := answer.answered.Sub(answer.asked)
	middle := answer.asked.Add(took / 2)
	return date.Add(500 * time.Millisecond).Sub(middle), time.Second + took/2, nil
}

// apart words a skew no more exactly than it is known.
func apart(ahead, exactness time.Duration) string {
	if ahead.Abs() <= exactness {
		return "within " + exactness.Round(100*time.Millisecond).String()
	}
	if ahead < 0 {
		return ahead.Abs().Round(time.Second).String() + " behind"
	}
	return ahead.Round(time.Second).String() + " ahead"
}
