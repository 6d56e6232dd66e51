// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package groupmove

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/expect"
)

func TestLacking(t *testing.T) {
	t.Parallel()
	of := func(plural string, established apiextensionsv1.ConditionStatus, served ...string) *definition {
		crd := &definition{}
		crd.Spec.Group, crd.Spec.Names.Plural = "example.com", plural
		crd.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{{Type: apiextensionsv1.Established, Status: established}}
		for _, version := range served {
			crd.Spec.Versions = append(crd.Spec.Versions, apiextensionsv1.CustomResourceDefinitionVersion{Name: version, Served: true})
		}
		crd.Spec.Versions = append(crd.Spec.Versions, apiextensionsv1.CustomResourceDefinitionVersion{Name: "v0"})
		return crd
	}
	definitions := []*definition{
		of("widgets", apiextensionsv1.ConditionTrue, "v1", "v2", hostingv1alpha1.MainCopyVersion),
		of("gadgets", apiextensionsv1.ConditionTrue, "v2"),
		of("others", apiextensionsv1.ConditionFalse, "v3"),
	}
	for name, test := range map[string]struct {
		discovered map[string][]string
		want       []string
	}{
		"everything":              {map[string][]string{"v1": {"widgets"}, "v2": {"gadgets", "widgets"}}, nil},
		"nothing":                 {nil, []string{"v1", "v2"}},
		"a version without any":   {map[string][]string{"v1": {}, "v2": {"gadgets", "widgets"}}, []string{"v1"}},
		"one of two in a version": {map[string][]string{"v1": {"widgets"}, "v2": {"gadgets"}}, []string{"v2"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			expect.Equal(t, test.want, lacking(definitions, test.discovered), "versions that lack resources")
		})
	}
}

// A kube-apiserver that is slow to discover a version again gets the time for that.
func TestDiscoveryIsRenewedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var renewed []time.Time
		missing := func(context.Context) ([]string, error) {
			complete := len(renewed) > 0 && time.Since(renewed[len(renewed)-1]) > 5*time.Second
			time.Sleep(12 * time.Second)
			if complete {
				return nil, nil
			}
			return []string{"v1"}, nil
		}
		renew := func(context.Context, []string) error {
			renewed = append(renewed, time.Now())
			return nil
		}
		expect.NoError(t, untilDiscovered(t.Context(), missing, renew, func(context.Context, string) error { return nil }))
		if len(renewed) != 1 {
			t.Errorf("it was renewed at %v, after a start at %v", renewed, began)
		}
	})
}
