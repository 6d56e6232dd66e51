// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"encoding/json"
	"testing"
)

// Clients wait for counters, so a zero must be there to be read.
func TestCountersAreWrittenWhenZero(t *testing.T) {
	t.Parallel()
	for want, status := range map[string]any{
		`{"objects":0,"resources":0}`:             StoreStatus{},
		`{"objects":0,"bytes":0,"storedBytes":0}`: HostedResourceStatus{},
	} {
		if got, err := json.Marshal(status); err != nil || string(got) != want {
			t.Errorf("%T: %s, error %v; want %s", status, got, err, want)
		}
	}
}
