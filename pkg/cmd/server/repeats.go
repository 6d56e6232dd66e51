// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"hash/maphash"
	"regexp"
	"strings"
	"sync"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"

	"github.com/annex-dev/annex/pkg/aggregated/maincluster"
)

const (
	// repeatInterval is the time for which an error that was logged is not logged again.
	repeatInterval = 10 * time.Minute
	// maxRepeats bounds the errors that are remembered.
	maxRepeats = 1000
)

// limitRepeats limits the errors that upstream's libraries report and cannot return, such as those of informers: one that
// fails is tried again every few seconds, and the log would have nothing else during an outage.
func limitRepeats() *repeats {
	r := &repeats{next: utilruntime.ErrorHandlers[0]}
	utilruntime.ErrorHandlers[0] = r.handle
	return r
}

// repeats passes on an error, and not the same one again before repeatInterval.
type repeats struct {
	next utilruntime.ErrorHandler

	mu sync.Mutex
	// logged has the hashes of errors: a request can make one with an address of a megabyte.
	logged map[uint64]time.Time
}

func (r *repeats) handle(ctx context.Context, err error, message string, keysAndValues ...any) {
	if !r.isRepeated(utilruntime.ErrorToString(err, message, keysAndValues...), time.Now()) {
		// The entry names the place that reports the error: this function is one more on the way.
		r.next(klog.NewContext(ctx, klog.FromContext(ctx).WithCallDepth(1)), err, message, keysAndValues...)
	}
}

// random matches the parameters of a watch, the port of a client, and what identifies a request, which differ each time.
var random = regexp.MustCompile(`(timeout|timeoutSeconds|resourceVersion)=[^&"\s]*|:\d+->|(auditID|timeElapsed)="[^"]*"`)

var seed = maphash.MakeSeed()

func (r *repeats) isRepeated(text string, now time.Time) bool {
	if maincluster.RepeatsOutage(text) {
		return true // it is logged if it outlasts the outage
	}
	if strings.Contains(text, maincluster.Unavailable) {
		text = maincluster.Unavailable // whatever was requested
	}
	key := maphash.String(seed, random.ReplaceAllString(text, ""))
	r.mu.Lock()
	defer r.mu.Unlock()
	if last, found := r.logged[key]; found && now.Sub(last) < repeatInterval {
		return true
	}
	if r.logged == nil || len(r.logged) >= maxRepeats {
		r.logged = map[uint64]time.Time{}
	}
	r.logged[key] = now
	return false
}
