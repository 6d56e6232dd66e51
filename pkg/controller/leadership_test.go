// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import "testing"

// listeners is a CABundleSource that a test changes.
type listeners []func()

func (l *listeners) CABundle() []byte            { return []byte("bundle") }
func (l *listeners) AddListener(listener func()) { *l = append(*l, listener) }

func TestEndOfLeadershipRemovesCABundleListeners(t *testing.T) {
	t.Parallel()
	var source listeners
	told := 0
	led := &Leadership{}
	led.CABundle(&source).AddListener(func() { told++ })
	source[0]()
	led.End()
	source[0]()
	if told != 1 {
		t.Errorf("the listener was called %d times, want once, before the end", told)
	}
}
