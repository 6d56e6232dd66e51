// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package noninterference

import (
	"fmt"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/annex-dev/annex/pkg/test/poll"
)

// soon bounds the time from a CRD to the main cluster's discovery on a busy machine. By itself
// the main cluster fetches discovery once a minute.
const soon = 50 * time.Second

// TestNewKindsAreDiscovered: a kind is discovered once it is served, also in a version that is
// published already.
func TestNewKindsAreDiscovered(t *testing.T) {
	t.Parallel()
	s := running(t)
	own, mainClients := s.own(t), main(t)
	discovered := func(group string, kinds int) {
		definedAt := time.Now()
		poll.Until(t, fmt.Sprintf("%d kinds of %s are discovered", kinds, group), func() string {
			return isDiscovered(t, mainClients, group, kinds)
		})
		took := time.Since(definedAt)
		t.Logf("%d kinds of %s were discovered after %s", kinds, group, took)
		if took > soon {
			t.Errorf("%d kinds of %s were discovered only after %s, want less than %s", kinds, group, took, soon)
		}
	}
	var defining sync.WaitGroup
	for range 10 {
		group := newGroup()
		defining.Go(func() {
			definitions := own.CRDs()
			for i, kind := range []string{"Apple", "Pear"} {
				if _, err := definitions.Create(t.Context(), newCRD(t, group, fmt.Sprintf("kind%ds", i), kind), metav1.CreateOptions{}); err != nil {
					t.Error(err)
					return
				}
				discovered(group, i+1)
			}
		})
	}
	defining.Wait()
}
