// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestProgress: of many lists that wait, each is served by a request that is sent after it began to wait,
// and requests are progressInterval apart.
func TestProgress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var mu sync.Mutex
		var sent []time.Duration
		p := &progress{send: func(context.Context) error {
			mu.Lock()
			defer mu.Unlock()
			sent = append(sent, time.Since(start))
			return nil
		}}
		var last time.Duration
		var lists sync.WaitGroup
		for range 100 {
			last = time.Since(start)
			lists.Go(func() { p.request(t.Context()) })
			time.Sleep(progressInterval / 10)
		}
		lists.Wait()
		if sent[0] != 0 || sent[len(sent)-1] < last {
			t.Errorf("requests at %v, want one at once and one after the last list, at %v", sent, last)
		}
		for i := range sent[1:] {
			if apart := sent[i+1] - sent[i]; apart < progressInterval {
				t.Errorf("requests at %v, %v apart, want at least %v", sent, apart, progressInterval)
			}
		}
	})
}

func TestProgressOfCanceledList(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sent := 0
		p := &progress{send: func(context.Context) error { sent++; return nil }}
		p.request(t.Context())
		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		p.request(canceled)
		p.request(t.Context())
		if sent != 3 {
			t.Errorf("%d requests, want 3", sent)
		}
	})
}
