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

// TestDiscoveryCheck loses a version in discovery, which is slow to discover it again: it gets the time for
// that, and the check lasts until the main cluster cannot lose the version any more.
func TestDiscoveryCheck(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]time.Duration{"never": time.Hour, "at once": 0, "later": 100 * time.Second, "at last": discoveryPeriod - time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { testDiscoveryCheck(t, lost) })
		})
	}
}

func testDiscoveryCheck(t *testing.T, lost time.Duration) {
	began := time.Now()
	var renewed []time.Duration
	check := &discoveryCheck{
		ends: began.Add(discoveryPeriod),
		missing: func(context.Context) (missing []string, err error) {
			at := time.Since(began)
			if at >= lost && (len(renewed) == 0 || at < renewed[len(renewed)-1]+5*time.Second) {
				missing = []string{"v1"}
			}
			time.Sleep(3 * time.Second)
			return missing, nil
		},
		renew: func(context.Context, []string) error {
			renewed = append(renewed, time.Since(began))
			return nil
		},
	}
	problem := "not checked"
	for problem != "" && time.Since(began) < time.Hour {
		time.Sleep(pollInterval)
		var err error
		problem, err = check.problem(t.Context())
		expect.NoError(t, err)
	}
	took := time.Since(began)
	if problem != "" || took < discoveryPeriod || took > discoveryPeriod+3*discoveryInterval {
		t.Errorf("the check took %s; the problem is %q", took, problem)
	}
	want := 1
	if lost > took {
		want = 0
	}
	if len(renewed) != want || want == 1 && renewed[0] > lost+2*discoveryInterval {
		t.Errorf("lost after %s, it was renewed after %v", lost, renewed)
	}
}
