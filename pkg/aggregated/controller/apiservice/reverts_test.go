// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiservice

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/annex-dev/annex/pkg/test/expect"
)

func TestReverts(t *testing.T) {
	t.Parallel()
	version := schema.GroupVersion{Group: "example.com", Version: "v1"}
	now := time.Unix(1_000_000, 0)
	r := &reverts{seen: map[schema.GroupVersion]revert{}}
	wait := func() time.Duration {
		left, _ := r.wait(version, now)
		return left
	}
	for range 3 { // the first time, and two reverts
		r.taken(version, now)
		expect.Equal(t, time.Duration(0), wait())
	}
	r.taken(version, now)
	expect.Equal(t, 2*time.Second, wait())
	now = now.Add(2 * time.Second)
	expect.Equal(t, time.Duration(0), wait())
	r.taken(version, now)
	expect.Equal(t, 4*time.Second, wait())
	_, why := r.wait(version, now)
	expect.Contains(t, why.message, "5 times", "v1.example.com")
	for range 20 {
		now = now.Add(time.Minute)
		r.taken(version, now)
	}
	expect.Equal(t, 5*time.Minute, wait())
	now = now.Add(11 * time.Minute)
	r.taken(version, now)
	expect.Equal(t, time.Duration(0), wait())
	r.forget(version)
	r.taken(version, now)
	expect.Equal(t, time.Duration(0), wait())
}
