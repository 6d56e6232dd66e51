// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package namespace

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestSetConditions(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		left   leftover
		failed failures
		want   map[corev1.NamespaceConditionType]string // those that are true: reason and message
	}{
		"all well": {},
		"several failures, in stable order": {
			failed: failures{content: []error{errors.New("b failed"), errors.New("a failed")}},
			want: map[corev1.NamespaceConditionType]string{
				corev1.NamespaceDeletionContentFailure: "ContentDeletionFailed: Failed to delete all resource types, 2 remaining: a failed, b failed",
			},
		},
		"partial discovery": {
			failed: failures{discovery: []error{someDiscovery}},
			want: map[corev1.NamespaceConditionType]string{
				corev1.NamespaceDeletionDiscoveryFailure: "DiscoveryFailed: Discovery failed for some groups, 1 failing: " + someDiscovery.Error(),
			},
		},
		"unparsable": {
			failed: failures{parsing: []error{errors.New("bad group version")}},
			want: map[corev1.NamespaceConditionType]string{
				corev1.NamespaceDeletionGVParsingFailure: "GroupVersionParsingFailed: bad group version",
			},
		},
		"leftover": {
			left: leftover{
				objects:    map[schema.GroupResource]int{{Group: "example.com", Resource: "widgets"}: 3, configMaps: 1},
				finalizers: map[string]int{"example.com/b": 1, "example.com/a": 2},
			},
			want: map[corev1.NamespaceConditionType]string{
				corev1.NamespaceContentRemaining:    "SomeResourcesRemain: Some resources are remaining: configmaps has 1 resource instances, widgets.example.com has 3 resource instances",
				corev1.NamespaceFinalizersRemaining: "SomeFinalizersRemain: Some content in the namespace has finalizers remaining: example.com/a in 2 resource instances, example.com/b in 1 resource instances",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var status corev1.NamespaceStatus
			if !setConditions(&status, tc.left, tc.failed, epoch) {
				t.Error("new conditions were no change")
			}
			if len(status.Conditions) != 5 {
				t.Errorf("%d conditions, want all 5 that kube-controller-manager keeps", len(status.Conditions))
			}
			for _, c := range status.Conditions {
				want, isTrue := tc.want[c.Type]
				if got := c.Reason + ": " + c.Message; isTrue && got != want {
					t.Errorf("condition %s is\n%s, want\n%s", c.Type, got, want)
				}
				if (c.Status == corev1.ConditionTrue) != isTrue {
					t.Errorf("condition %s is %s", c.Type, c.Status)
				}
			}
			before := status.DeepCopy()
			if setConditions(&status, tc.left, tc.failed, epoch.Add(time.Hour)) {
				t.Errorf("the same outcome changed the conditions from\n%v to\n%v", before.Conditions, status.Conditions)
			}
		})
	}
}

func TestSetConditionsKeepsTransitionTimes(t *testing.T) {
	t.Parallel()
	var status corev1.NamespaceStatus
	find := func() corev1.NamespaceCondition {
		for _, c := range status.Conditions {
			if c.Type == corev1.NamespaceContentRemaining {
				return c
			}
		}
		t.Fatal("no condition ContentRemaining")
		return corev1.NamespaceCondition{}
	}
	for step, tc := range []struct {
		objects        int
		wantTransition time.Duration
	}{{3, 0}, {2, 0}, {0, 2 * time.Minute}} {
		left := leftover{}
		if tc.objects > 0 {
			left.objects = map[schema.GroupResource]int{configMaps: tc.objects}
		}
		if !setConditions(&status, left, failures{}, epoch.Add(time.Duration(step)*time.Minute)) {
			t.Errorf("step %d: another number left was no change", step)
		}
		if got := find().LastTransitionTime.Sub(epoch); got != tc.wantTransition {
			t.Errorf("step %d: last transition after %s, want %s", step, got, tc.wantTransition)
		}
	}
}

func TestSetConditionsKeepsUnknownConditions(t *testing.T) {
	t.Parallel()
	status := corev1.NamespaceStatus{Conditions: []corev1.NamespaceCondition{{Type: "example.com/Mine", Status: corev1.ConditionTrue}}}
	setConditions(&status, leftover{}, failures{}, epoch)
	if status.Conditions[0].Type != "example.com/Mine" {
		t.Errorf("another controller's condition was lost: %v", status.Conditions)
	}
}
