// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package harness

import (
	"errors"
	"testing"

	"github.com/annex-dev/annex/pkg/test/annextest"
	"github.com/annex-dev/annex/pkg/test/clients"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// TestAnnex: the main cluster proxies to this annex, and another one can replace it.
func TestAnnex(t *testing.T) {
	t.Parallel()
	var earlier string
	for range 2 {
		annex := annextest.Start(t, shared)
		through := expect.Get(t, clients.For(t, shared.Config).Stores(), "default")
		direct := expect.Get(t, clients.For(t, annex.AnnexConfig).Stores(), "default")
		if through.UID != direct.UID || string(through.UID) == earlier {
			t.Errorf("through the main cluster the Store has UID %s, in annex %s, in the previous annex %q", through.UID, direct.UID, earlier)
		}
		earlier = string(direct.UID)
		expect.NoError(t, errors.Join(annex.Shutdown(), annex.Uninstall(t.Context())))
	}
}
