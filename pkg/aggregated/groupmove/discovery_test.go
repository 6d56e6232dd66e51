// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package groupmove

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/annex-dev/annex/pkg/aggregated/group/grouptest"
	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/expect"
)

func TestLacking(t *testing.T) {
	t.Parallel()
	versions := grouptest.Versions
	definitions := []*definition{
		grouptest.CRD(grouptest.Widgets, versions("v1", "v2", hostingv1alpha1.MainCopyVersion, "-v0")), grouptest.CRD(grouptest.Gadgets, versions("v2", "-v0")),
		grouptest.CRD("others.example.com", versions("v3"), grouptest.NotEstablished),
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
			expect.Equal(t, sets.New(test.want...), lacking(definitions, test.discovered), "versions that lack resources")
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
