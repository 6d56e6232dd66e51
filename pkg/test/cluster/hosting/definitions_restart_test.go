// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package hosting

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/annex-dev/annex/pkg/test/annextest"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// testChangedWhileAnnexIsDown: CRDs change while annex is down, or comes back without its data.
func testChangedWhileAnnexIsDown(t *testing.T) {
	first := startAnnex(t)
	f := newFixture(t, first, "away.example.com")
	name := "widgets." + f.group
	f.applyInMain(hosted(f.newCRD("widgets", "v1")))
	f.waitPublished("v1")
	f.waitForSync(name)
	f.createObject("widgets", "v1", "one")
	f.waitForMigration()
	first.Stop(t)

	// The main cluster serves a version that is added now, and accepts no objects.
	f.applyInMain(hosted(f.newCRD("widgets", "v1", "v2")))
	poll.UntilDone(t, "the main cluster denies objects", func() (bool, string) {
		_, err := f.objects(f.mainObjects, "widgets", "v2").Create(t.Context(), f.newObject("widgets", "v2", "two"), metav1.CreateOptions{})
		if err == nil {
			t.Fatal("an object was created")
		}
		return strings.Contains(err.Error(), "is served by annex"), err.Error()
	})

	second := launch(t, first, first.DataDir)
	f = newFixture(t, second, f.group)
	f.waitPublished("v2")
	f.waitForSync(name)
	f.waitForObject(f.mainObjects, "widgets", "v2", "one")
	second.Stop(t)

	// Without its data annex does not report that all objects were deleted.
	third := launch(t, first, t.TempDir())
	f = newFixture(t, third, f.group)
	f.waitForCondition(name, metav1.ConditionFalse, "DataReplaced", "requests for v1, v2 of "+f.group)
	f.expectNotInAnnex(name)
	if list, err := f.objects(f.mainObjects, "widgets", "v1").List(f.Context(), metav1.ListOptions{}); err == nil {
		f.Errorf("listed %d objects without data", len(list.Items))
	}
	third.Stop(t)

	restored := launch(t, first, first.DataDir)
	f = newFixture(t, restored, f.group)
	f.waitForObject(f.mainObjects, "widgets", "v1", "one")
	f.waitForSync(name)
}

// launch runs another replica of an installation until the test ends.
func launch(t *testing.T, of *annextest.Annex, dataDir string) *annextest.Annex {
	t.Helper()
	annex, err := of.Launch(dataDir)
	expect.NoError(t, err)
	t.Cleanup(func() { annex.Stop(t) })
	return annex
}
