// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiservice

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/controller/framework"
	"github.com/annex-dev/annex/pkg/test/expect"
)

func TestAnnouncedOnce(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	ctx := klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log))))
	r := &reconciler{announced: map[schema.GroupVersion]string{}}
	yes := status{published: true, reason: reasonPublished}
	for _, step := range []struct {
		stands status
		logged string
	}{
		{notPublished(reasonWaitingForAnnex, "m"), ""},
		{notPublished(reasonForeignAPIService, "it is b/annex"), "E"},
		{notPublished(reasonForeignAPIService, "it is b/annex"), ""},
		{yes, "I"},
		{yes, ""},
		{notPublished(reasonUnavailable, "refused by 1"), "I"},
		{notPublished(reasonUnavailable, "refused by 2"), ""},
		{notPublished(reasonGroupInMain, "m"), "I"},
	} {
		log.Reset()
		r.announce(ctx, hostingVersion, step.stands)
		current := log.String()
		if strings.Count(current, "\n") != len(step.logged) || !strings.HasPrefix(current, step.logged) || current != "" && !strings.Contains(current, step.stands.message) {
			t.Errorf("%+v: logged %q, want level %q", step.stands, current, step.logged)
		}
	}
}

func TestMetric(t *testing.T) {
	t.Parallel()
	registerMetrics()
	version := schema.GroupVersion{Group: "metric.example.com", Version: "v1"}
	for _, stands := range []status{{published: true}, notPublished(reasonUnavailable, "m")} {
		observe(version, stands)
		got, err := testutil.GetGaugeMetricValue(published.WithLabelValues(version.Group, version.Version))
		if err != nil || (got == 1) != stands.published {
			t.Errorf("metric is %v (%v) for %+v", got, err, stands)
		}
	}
}

func resource(name string, conditions ...metav1.Condition) *hosted {
	return &hosted{ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 3}, Status: hostingv1alpha1.HostedResourceStatus{Conditions: conditions}}
}

func TestPublishedCondition(t *testing.T) {
	t.Parallel()
	yes := status{published: true, reason: reasonPublished}
	v := viewOf([]*definition{crd(widgets, "v1beta1", "v1", "-v2"), crd(gadgets, "-v1")}, nil)
	for name, tc := range map[string]struct {
		resource  string
		standings map[string]status
		want      string
	}{
		"all":            {widgets, map[string]status{"v1": yes, "v1beta1": yes}, "True Published The main cluster sends requests to annex: v1, v1beta1"},
		"one not":        {widgets, map[string]status{"v1": yes, "v1beta1": notPublished("R", "m")}, "False R v1beta1: m"},
		"none":           {widgets, map[string]status{"v1": notPublished("Q", "n"), "v1beta1": notPublished("R", "m")}, "False Q v1: n"},
		"serves nothing": {gadgets, nil, `False NotServed annex has no CustomResourceDefinition "gadgets.example.com" that serves a version`},
		"not defined":    {"things." + group, nil, `False NotServed annex has no CustomResourceDefinition "things.example.com" that serves a version`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := publishedCondition(resource(tc.resource), v, tc.standings)
			if current := string(got.Status) + " " + got.Reason + " " + got.Message; current != tc.want || got.Type != "Published" || got.ObservedGeneration != 3 {
				t.Errorf("got %+v, want %s", got, tc.want)
			}
		})
	}
}

func TestReport(t *testing.T) {
	t.Parallel()
	current := metav1.Condition{
		Type: "Published", Status: metav1.ConditionFalse, Reason: reasonUnavailable, Message: "v1: before",
		ObservedGeneration: 3, LastTransitionTime: metav1.NewTime(epoch.Add(-time.Hour)),
	}
	for name, tc := range map[string]struct {
		before    []metav1.Condition
		stands    status
		wroteAgo  time.Duration
		writeErr  error
		wantWrite bool
		wantAgain time.Duration
		wantSince time.Time
		wantErr   string
	}{
		"first":                        {stands: notPublished(reasonUnavailable, "before"), wantWrite: true, wantSince: epoch},
		"the same":                     {before: []metav1.Condition{current}, stands: notPublished(reasonUnavailable, "before")},
		"another message":              {before: []metav1.Condition{current}, stands: notPublished(reasonUnavailable, "after"), wantWrite: true, wantSince: epoch.Add(-time.Hour)},
		"another message, too soon":    {before: []metav1.Condition{current}, stands: notPublished(reasonUnavailable, "after"), wroteAgo: time.Second, wantAgain: 9 * time.Second},
		"another status, just as soon": {before: []metav1.Condition{current}, stands: status{published: true}, wroteAgo: time.Second, wantWrite: true, wantSince: epoch},
		"refused":                      {stands: status{published: true}, writeErr: errors.New("no"), wantWrite: true, wantSince: epoch, wantErr: "no"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := epoch.Add(-tc.wroteAgo)
			var wrote []metav1.Condition
			r := &reconciler{
				messages: framework.NewThrottle(messageInterval, func() time.Time { return now }),
				now:      func() time.Time { return now },
				writeCondition: func(_ context.Context, _ string, condition *metav1.Condition) error {
					wrote = append(wrote, *condition)
					return tc.writeErr
				},
			}
			if tc.wroteAgo > 0 {
				r.messages.Mark(widgets)
			}
			now = epoch
			v := viewOf([]*definition{crd(widgets, "v1")}, nil)
			v.hosted = []*hosted{resource(widgets, tc.before...)}
			again, err := r.report(t.Context(), v, map[string]status{"v1": tc.stands})
			expect.ErrorOrNone(t, err, tc.wantErr)
			if again != tc.wantAgain || (len(wrote) == 1) != tc.wantWrite {
				t.Fatalf("wrote %+v and comes again after %s; want write %t, %s", wrote, again, tc.wantWrite, tc.wantAgain)
			}
			if tc.wantWrite && !wrote[0].LastTransitionTime.Time.Equal(tc.wantSince) {
				t.Errorf("transition time %s, want %s", wrote[0].LastTransitionTime, tc.wantSince)
			}
		})
	}
}
