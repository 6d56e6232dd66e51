// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"context"
	"testing"
	"testing/synctest"
)

// listeners is a CABundleSource that a test changes.
type listeners []func()

func (l *listeners) CABundle() []byte            { return []byte("bundle") }
func (l *listeners) AddListener(listener func()) { *l = append(*l, listener) }

func TestCABundleUntil(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var source listeners
		told := 0
		ctx, end := context.WithCancel(t.Context())
		CABundleUntil(ctx, &source).AddListener(func() { told++ })
		source[0]()
		end()
		synctest.Wait()
		source[0]()
		if told != 1 {
			t.Errorf("the listener was called %d times, want once, before the end", told)
		}
	})
}
