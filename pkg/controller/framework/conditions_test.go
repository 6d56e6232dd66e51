// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgotesting "k8s.io/client-go/testing"

	annexfake "github.com/annex-dev/annex/pkg/generated/clientset/versioned/fake"
	"github.com/annex-dev/annex/pkg/test/expect"
)

func TestSetTransitionTime(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	earlier := metav1.NewTime(now.Add(-time.Hour))
	before := metav1.Condition{Type: "ObjectsReadable", Status: metav1.ConditionTrue, Reason: "Fine", Message: "all is well", LastTransitionTime: earlier}
	for name, tc := range map[string]struct {
		change    func(*metav1.Condition)
		first     bool
		wantSince time.Time
		wantNews  bool
	}{
		"first":              {change: func(*metav1.Condition) {}, first: true, wantSince: now, wantNews: true},
		"the same":           {change: func(*metav1.Condition) {}, wantSince: earlier.Time},
		"another message":    {change: func(c *metav1.Condition) { c.Message = "nearly" }, wantSince: earlier.Time, wantNews: true},
		"another reason":     {change: func(c *metav1.Condition) { c.Reason = "Good" }, wantSince: earlier.Time, wantNews: true},
		"another generation": {change: func(c *metav1.Condition) { c.ObservedGeneration = 2 }, wantSince: earlier.Time, wantNews: true},
		"another status":     {change: func(c *metav1.Condition) { c.Status = metav1.ConditionFalse }, wantSince: now, wantNews: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			condition, replaces := before, &before
			condition.LastTransitionTime = metav1.Time{}
			tc.change(&condition)
			if tc.first {
				replaces = nil
			}
			if news := SetTransitionTime(&condition, replaces, now); news != tc.wantNews {
				t.Errorf("news is %t, want %t", news, tc.wantNews)
			}
			if !condition.LastTransitionTime.Time.Equal(tc.wantSince) {
				t.Errorf("dated %s, want %s", condition.LastTransitionTime, tc.wantSince)
			}
		})
	}
}

func TestWriteErrors(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		answer error
		want   string
	}{
		"gone":    {answer: apierrors.NewNotFound(schema.GroupResource{Resource: "hostedresources"}, "widgets.example.com")},
		"refused": {answer: errors.New("denied"), want: "denied"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := annexfake.NewClientset()
			client.PrependReactor("patch", "hostedresources", func(clientgotesting.Action) (bool, runtime.Object, error) {
				return true, nil, tc.answer
			})
			writer := ConditionWriter{Type: "ObjectsReadable", FieldManager: "test", AnnexHostedResources: client.HostingV1alpha1().HostedResources()}
			expect.ErrorOrNone(t, writer.Write(t.Context(), "widgets.example.com", nil), tc.want)
		})
	}
}

func TestShorten(t *testing.T) {
	t.Parallel()
	if got := Shorten("short", 10); got != "short" {
		t.Errorf("got %q, want the same", got)
	}
	if got := Shorten(strings.Repeat("ä", 5000), 1000); len(got) > 1000 || !utf8.ValidString(got) || !strings.HasSuffix(got, "ä…") {
		t.Errorf("got %d bytes, %q at the end", len(got), got[len(got)-5:])
	}
}
