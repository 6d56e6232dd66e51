// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package definitions

import (
	"context"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/annex-dev/annex/pkg/test/annextest"
)

// TestAway: what happens to definitions while annex is not there.
func TestAway(t *testing.T) {
	first := annextest.Start(t, mainCluster)
	w := newFixture(t, first, "away.example.com")
	name := "widgets." + w.group
	w.apply(hosted(w.crd("widgets", "v1")))
	w.published("v1")
	w.followed(name)
	w.create("widgets", "v1", "one")
	first.Stop(t)

	// The main cluster answers for a version that it gets now, and nobody tells.
	w.apply(hosted(w.crd("widgets", "v1", "v2")))
	w.create("widgets", "v2", "two")

	second := launch(t, first, first.DataDir)
	w = newFixture(t, second, w.group)
	w.says(name, metav1.ConditionFalse, "ObjectsExist", "v2", `"default/two"`)
	w.isMains("v2")
	w.has(w.mainObjects, "widgets", "v1", "one")
	w.has(w.mainObjects, "widgets", "v2", "two")
	w.no(w.in(w.mainObjects, "widgets", "v2").Delete(w.Context(), "two", metav1.DeleteOptions{}))
	w.published("v2")
	w.followed(name)
	w.has(w.mainObjects, "widgets", "v2", "one")
	second.Stop(t)

	// Without its data annex does not pretend that all objects were deleted.
	third := launch(t, first, t.TempDir())
	w = newFixture(t, third, w.group)
	w.says(name, metav1.ConditionFalse, "DataReplaced", "kubectl delete apiservice v1."+w.group+" v2."+w.group)
	w.notInAnnex(name)
	if list, err := w.in(w.mainObjects, "widgets", "v1").List(w.Context(), metav1.ListOptions{}); err == nil {
		w.Errorf("a list of %d objects out of no data", len(list.Items))
	}
	third.Stop(t)

	restored := launch(t, first, first.DataDir)
	w = newFixture(t, restored, w.group)
	w.eventually("the objects are back", func(ctx context.Context) (bool, string) {
		_, err := w.in(w.mainObjects, "widgets", "v1").Get(ctx, "one", metav1.GetOptions{})
		return err == nil, fmt.Sprint(err)
	})
	w.followed(name)
}

// launch runs another replica of an installation.
func launch(t *testing.T, of *annextest.Annex, dataDir string) *annextest.Annex {
	t.Helper()
	annex, err := of.Launch(dataDir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { annex.Stop(t) })
	return annex
}
