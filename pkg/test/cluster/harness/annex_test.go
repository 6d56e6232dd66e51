// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package harness

import (
	"errors"
	"testing"

	hostingclient "github.com/annex-dev/annex/pkg/generated/clientset/versioned"
	"github.com/annex-dev/annex/pkg/test/annextest"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// TestAnnex: the main cluster proxies to this annex, and another one can replace it.
func TestAnnex(t *testing.T) {
	t.Parallel()
	mainHosting, err := hostingclient.NewForConfig(shared.Config)
	expect.NoError(t, err)
	var earlier string
	for range 2 {
		annex := annextest.Start(t, shared)
		annexHosting, err := hostingclient.NewForConfig(annex.AnnexConfig)
		expect.NoError(t, err)
		through := expect.Get(t, mainHosting.HostingV1alpha1().Stores(), "default")
		direct := expect.Get(t, annexHosting.HostingV1alpha1().Stores(), "default")
		if through.UID != direct.UID || string(through.UID) == earlier {
			t.Errorf("through the main cluster the Store has UID %s, in annex %s, in the previous annex %q", through.UID, direct.UID, earlier)
		}
		earlier = string(direct.UID)
		expect.NoError(t, errors.Join(annex.Shutdown(), annex.Uninstall(t.Context())))
	}
}
