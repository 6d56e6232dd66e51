// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/annex-dev/annex/pkg/aggregated/group"
	"github.com/annex-dev/annex/pkg/controller/framework"
	annexfake "github.com/annex-dev/annex/pkg/generated/clientset/versioned/fake"
	"github.com/annex-dev/annex/pkg/test/expect"
)

var (
	epoch = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	yes   = group.Status{Status: metav1.ConditionTrue, Reason: group.ReasonPublished}
)

func TestAnnouncedOnce(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	ctx := klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log))))
	m := &memory{}
	for _, step := range []struct {
		stands group.Status
		logged string
	}{
		{group.No(group.ReasonWaitingForAnnex, "m"), ""},
		{group.No(group.ReasonForeignAPIService, "it is b/annex"), "E"},
		{group.No(group.ReasonForeignAPIService, "it is b/annex"), ""},
		{yes, "I"},
		{yes, ""},
		{group.No(group.ReasonUnavailable, "refused by 1"), "I"},
		{group.No(group.ReasonUnavailable, "refused by 2"), ""},
		{group.No(group.ReasonGroupInMain, "m"), "I"},
	} {
		log.Reset()
		m.announce(ctx, step.stands)
		current := log.String()
		if strings.Count(current, "\n") != len(step.logged) || !strings.HasPrefix(current, step.logged) || current != "" && !strings.Contains(current, step.stands.Message) {
			t.Errorf("%+v: logged %q, want level %q", step.stands, current, step.logged)
		}
	}
}

func TestMetric(t *testing.T) {
	t.Parallel()
	registerMetrics()
	version := schema.GroupVersion{Group: "metric.example.com", Version: "v1"}
	for _, stands := range []group.Status{yes, group.No(group.ReasonUnavailable, "m")} {
		observe(version, stands)
		got, err := testutil.GetGaugeMetricValue(published.WithLabelValues(version.Group, version.Version))
		if err != nil || (got == 1) != stands.IsTrue() {
			t.Errorf("metric is %v (%v) for %+v", got, err, stands)
		}
	}
	// What is no longer planned is forgotten.
	r := &reconciler{memories: map[schema.GroupVersion]*memory{}}
	r.remember(version).routed = true
	r.forget(version.Group, nil)
	if published.DeleteLabelValues(version.Group, version.Version) || r.remember(version).routed {
		t.Error("the version is remembered")
	}
}

func TestReport(t *testing.T) {
	t.Parallel()
	current := metav1.Condition{Type: "Published", Status: metav1.ConditionFalse, Reason: group.ReasonUnavailable, Message: "before", ObservedGeneration: 3}
	for name, tc := range map[string]struct {
		first     bool
		stands    group.Status
		soon      bool
		wantWrite bool
		wantAgain time.Duration
		wantNew   bool
	}{
		"first":                        {first: true, stands: group.No(group.ReasonUnavailable, "before"), wantWrite: true, wantNew: true},
		"the same":                     {stands: group.No(group.ReasonUnavailable, "before")},
		"another message":              {stands: group.No(group.ReasonUnavailable, "after"), wantWrite: true},
		"another message, too soon":    {stands: group.No(group.ReasonUnavailable, "after"), soon: true, wantAgain: messageInterval - time.Second},
		"another status, just as soon": {stands: yes, soon: true, wantWrite: true, wantNew: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				before := current
				before.LastTransitionTime = metav1.NewTime(time.Now().Add(-time.Hour))
				resource := &group.HostedResource{ObjectMeta: metav1.ObjectMeta{Name: widgets, Generation: 3}}
				if !tc.first {
					resource.Status.Conditions = []metav1.Condition{before}
				}
				client := annexfake.NewClientset(resource)
				writer := framework.ConditionWriter{Type: "Published", FieldManager: "test", AnnexHostedResources: client.HostingV1alpha1().HostedResources()}
				r := &reconciler{messages: framework.NewThrottle(messageInterval, time.Now)}
				if tc.soon {
					r.messages.Mark("Published " + widgets)
					time.Sleep(time.Second)
				}
				again, err := r.report(t.Context(), writer, resource, tc.stands)
				expect.NoError(t, err)
				if wrote := len(client.Actions()) > 0; again != tc.wantAgain || wrote != tc.wantWrite {
					t.Fatalf("wrote %t and comes again after %s; want %t, %s", wrote, again, tc.wantWrite, tc.wantAgain)
				}
				if after := writer.Get(expect.Get(t, writer.AnnexHostedResources, widgets)); tc.wantWrite && after.LastTransitionTime.Equal(&before.LastTransitionTime) == tc.wantNew {
					t.Errorf("transition time %s, before %s", after.LastTransitionTime, before.LastTransitionTime)
				}
				client.PrependReactor("patch", "*", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, context.Canceled })
				_, err = r.report(t.Context(), writer, resource, group.No("Another", ""))
				expect.Error(t, err, "canceled")
			})
		})
	}
}

func TestReverts(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	m := &memory{version: schema.GroupVersion{Group: "example.com", Version: "v1"}}
	wantDelay := func(want time.Duration) {
		t.Helper()
		left, _ := m.revertDelay(now)
		expect.Equal(t, want, left)
	}
	for range 3 { // the first time, and two reverts
		m.took(now)
		wantDelay(0)
	}
	m.took(now)
	wantDelay(2 * time.Second)
	now = now.Add(2 * time.Second)
	wantDelay(0)
	m.took(now)
	wantDelay(4 * time.Second)
	_, why := m.revertDelay(now)
	expect.Contains(t, why.Message, "5 times", "v1.example.com")
	for range 20 {
		now = now.Add(time.Minute)
		m.took(now)
	}
	wantDelay(5 * time.Minute)
	now = now.Add(11 * time.Minute)
	m.took(now)
	wantDelay(0)
}

func TestGate(t *testing.T) {
	t.Parallel()
	no := group.No(group.ReasonWaitingForAnnex, "no")
	foreigner := group.No(group.ReasonForeignAPIService, "b/annex")
	type step struct {
		after   time.Duration
		saw     group.Status
		bundle  string
		open    bool
		proven  bool
		changed bool
		again   time.Duration
		reason  string
	}
	for name, steps := range map[string][]step{
		"settles": {
			{0, no, "CA", false, false, true, 0, group.ReasonWaitingForAnnex},
			{time.Second, no, "CA", false, false, false, 0, group.ReasonWaitingForAnnex},
			{2 * time.Second, yes, "CA", false, true, true, 5 * time.Second, group.ReasonWaitingForAnnex},
			{4 * time.Second, yes, "CA", false, true, false, 3 * time.Second, group.ReasonWaitingForAnnex},
			{7 * time.Second, yes, "CA", true, true, true, 0, ""},
			{8 * time.Second, yes, "CA", true, true, false, 0, ""},
			{9 * time.Second, yes, "new CA", true, true, true, 0, ""},
		},
		"begins anew when it does not last": {
			{0, yes, "CA", false, true, true, 5 * time.Second, group.ReasonWaitingForAnnex},
			{4 * time.Second, no, "CA", false, false, true, 0, group.ReasonWaitingForAnnex},
			{5 * time.Second, yes, "CA", false, true, true, 5 * time.Second, group.ReasonWaitingForAnnex},
			{9 * time.Second, yes, "CA", false, true, false, time.Second, group.ReasonWaitingForAnnex},
			{10 * time.Second, yes, "CA", true, true, true, 0, ""},
		},
		"settles once": {
			{0, yes, "CA", false, true, true, 5 * time.Second, group.ReasonWaitingForAnnex},
			{5 * time.Second, yes, "CA", true, true, true, 0, ""},
			{6 * time.Second, no, "CA", false, false, true, 0, group.ReasonWaitingForAnnex},
			{7 * time.Second, yes, "CA", true, true, true, 0, ""},
		},
		"names the definitions": {
			{0, foreigner, "CA", false, false, true, 0, group.ReasonForeignAPIService},
			{time.Second, foreigner, "CA", false, false, false, 0, group.ReasonForeignAPIService},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := &gate{state: group.Gate{Why: group.No(group.ReasonWaitingForAnnex, group.NotCheckedMessage)}}
			for i, s := range steps {
				changed, again := g.observe(s.saw, []byte(s.bundle), epoch.Add(s.after))
				state := g.get([]byte(s.bundle))
				if state.Open() != s.open || state.Proven != s.proven || changed != s.changed || again != s.again || state.Why.Reason != s.reason {
					t.Errorf("step %d: %+v, changed %t, again %s; want %+v", i, state, changed, again, s)
				}
				if other := g.get([]byte("unproven CA")); other.Proven || other.Why.Reason == "" {
					t.Errorf("step %d: proven with certificates that the main cluster has not seen: %+v", i, other)
				}
			}
		})
	}
}
