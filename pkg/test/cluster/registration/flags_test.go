// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package registration

import (
	"context"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/annex-dev/annex/pkg/test/annextest"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// TestNotReached: an annex that the main cluster cannot reach publishes only its own group, and
// reports the reason in the condition Published of other resources.
func TestNotReached(t *testing.T) {
	for name, tc := range map[string]struct {
		publishService, mentions string
	}{
		"wrong port":      {"annex-system/annex:1", "connection refused"},
		"no such Service": {"no-service/annex:443", `service/annex in "no-service" is not present`},
	} {
		t.Run(name, func(t *testing.T) {
			const group = "unreached.example.com"
			i := annextest.InstallForTest(t, mainCluster)
			if namespace, _, _ := strings.Cut(tc.publishService, "/"); namespace != annextest.Namespace {
				allowSecondAnnex(t, namespace)
			}
			annex, err := i.Launch(t.TempDir(), "--publish-service="+tc.publishService)
			expect.NoError(t, err)
			t.Cleanup(func() {
				annex.Stop(t)
				for _, name := range []string{hostingName, "v1." + group} {
					if err := apiServices(t).Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
						t.Error(err)
					}
				}
			})
			expect.Create(t, definitions(t, annex.AnnexConfig), newDefinition(group, "v1"))
			waitPublished(t, annex.AnnexConfig, "widgets."+group, metav1.ConditionFalse, "WaitingForAnnex", tc.mentions)
			if _, err := apiServices(t).Get(t.Context(), "v1."+group, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				t.Errorf("its group was published: %v", err)
			}
		})
	}
}
