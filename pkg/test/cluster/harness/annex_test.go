// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package harness

import (
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hostingclient "github.com/annex-dev/annex/pkg/generated/clientset/versioned"
	"github.com/annex-dev/annex/pkg/test/annextest"
)

// TestAnnex sees that annex is reached through the main cluster, that it is this
// very one, and that another can take its place.
func TestAnnex(t *testing.T) {
	t.Parallel()
	mainHosting, err := hostingclient.NewForConfig(shared.Config)
	if err != nil {
		t.Fatal(err)
	}
	var earlier string
	for range 2 {
		annex := annextest.Start(t, shared)
		annexHosting, err := hostingclient.NewForConfig(annex.AnnexConfig)
		if err != nil {
			t.Fatal(err)
		}
		through, err := mainHosting.HostingV1alpha1().Stores().Get(t.Context(), "default", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		direct, err := annexHosting.HostingV1alpha1().Stores().Get(t.Context(), "default", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if through.UID != direct.UID || string(through.UID) == earlier {
			t.Errorf("through the main cluster the store has UID %s, in annex %s, in the one before %q", through.UID, direct.UID, earlier)
		}
		earlier = string(direct.UID)
		if err := errors.Join(annex.Shutdown(), annex.Uninstall(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
}
