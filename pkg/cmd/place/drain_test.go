// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package place

import (
	"bytes"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/scheduler"
	"github.com/annex-dev/annex/pkg/test/expect"
)

func readyStore(name, capacity string) hostingv1alpha1.Store {
	return hostingv1alpha1.Store{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       hostingv1alpha1.StoreSpec{Capacity: hostingv1alpha1.ResourceList{hostingv1alpha1.ResourceStorage: resource.MustParse(capacity)}},
		Status: hostingv1alpha1.StoreStatus{Conditions: []metav1.Condition{
			{Type: hostingv1alpha1.StoreReady, Status: metav1.ConditionTrue},
			{Type: hostingv1alpha1.StoreUnderPressure, Status: metav1.ConditionFalse},
		}},
	}
}

func placedResource(name, store string, bytes int64) hostingv1alpha1.HostedResource {
	return hostingv1alpha1.HostedResource{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: hostingv1alpha1.HostedResourceSpec{StoreName: store},
		Status: hostingv1alpha1.HostedResourceStatus{StoredBytes: bytes},
	}
}

func TestPropose(t *testing.T) {
	t.Parallel()
	cordoned := readyStore("old", "1Gi")
	cordoned.Spec.Unschedulable = true
	for name, test := range map[string]struct {
		cluster scheduler.Cluster
		want    []string // resource, from, to, a part of why
	}{
		"nothing to gain": {cluster: scheduler.Cluster{
			Stores:    []hostingv1alpha1.Store{readyStore("a", "1Gi"), readyStore("b", "1Gi")},
			Resources: []hostingv1alpha1.HostedResource{placedResource("widgets.one.com", "a", 1), placedResource("gadgets.two.com", "b", 1)},
		}},
		"a group that moves into annex": {cluster: scheduler.Cluster{
			Stores:    []hostingv1alpha1.Store{readyStore("a", "1Gi"), readyStore("b", "1Gi")},
			Resources: []hostingv1alpha1.HostedResource{placedResource("widgets.one.com", "a", 1), placedResource("gadgets.two.com", "b", 1)},
			Migrations: []hostingv1alpha1.Migration{{
				Spec:   hostingv1alpha1.MigrationSpec{Group: "one.com", Operation: hostingv1alpha1.MigrationMove, StoreName: "b"},
				Status: hostingv1alpha1.MigrationStatus{Phase: hostingv1alpha1.MigrationCopying},
			}},
		}},
		"a Store that refuses it": {cluster: scheduler.Cluster{
			Stores:    []hostingv1alpha1.Store{cordoned, readyStore("b", "1Gi")},
			Resources: []hostingv1alpha1.HostedResource{placedResource("widgets.one.com", "old", 1)},
		}, want: []string{"widgets.one.com", "old", "b", "old is unschedulable"}},
		"one of two that fill a Store": {cluster: scheduler.Cluster{
			Stores: []hostingv1alpha1.Store{readyStore("a", "1000"), readyStore("b", "1000")},
			Resources: []hostingv1alpha1.HostedResource{
				placedResource("widgets.one.com", "a", 300), placedResource("gadgets.two.com", "a", 300),
			},
		}, want: []string{"widgets.one.com", "a", "b", "LeastAllocated 2x70 instead of 2x40"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proposals := propose(test.cluster)
			var out bytes.Buffer
			expect.NoError(t, printProposals(&out, proposals))
			if test.want == nil {
				if len(proposals) > 0 || !strings.Contains(out.String(), "where the scheduler would place it") {
					t.Errorf("got %s", &out)
				}
				return
			}
			if len(proposals) != 1 {
				t.Fatalf("got %s", &out)
			}
			expect.Contains(t, out.String(), test.want...)
		})
	}
}
