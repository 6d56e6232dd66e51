// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

const mebi = 1 << 20

// answer is what the endpoint of a member answers whose database has some size.
func answer(id uint64, size int64, change func(*clientv3.StatusResponse)) endpointAnswer {
	status := &clientv3.StatusResponse{
		Header:  &etcdserverpb.ResponseHeader{MemberId: id},
		Version: "3.7.3", Leader: 1, DbSize: size, DbSizeInUse: size / 2, DbSizeQuota: 100 * mebi,
	}
	if change != nil {
		change(status)
	}
	return endpointAnswer{endpoint: "https://etcd-" + string(rune('0'+id)), status: status}
}

func silence(id uint64) endpointAnswer {
	return endpointAnswer{endpoint: "https://etcd-" + string(rune('0'+id)), err: errors.New("refused")}
}

// cluster is what a cluster of three members answers.
func cluster(endpoints ...endpointAnswer) observation {
	return observation{endpoints: endpoints, members: &clientv3.MemberListResponse{Members: []*etcdserverpb.Member{
		{ID: 3, Name: "c"}, {ID: 1, Name: "a"}, {ID: 26, Name: ""},
	}}}
}

func TestReadiness(t *testing.T) {
	t.Parallel()
	alarm := func(text string) func(*clientv3.StatusResponse) {
		return func(s *clientv3.StatusResponse) { s.Errors = []string{text} }
	}
	noQuorum := cluster(answer(1, mebi, alarm("etcdserver: no leader")))
	noQuorum.members, noQuorum.membersErr = nil, errors.New("etcdserver: no leader")
	for name, tc := range map[string]struct {
		seen        observation
		want        metav1.ConditionStatus
		wantReason  string
		wantMessage string
	}{
		"all well":            {cluster(answer(1, mebi, nil), answer(3, mebi, nil)), metav1.ConditionTrue, "Available", "reads and writes"},
		"one is silent":       {cluster(answer(1, mebi, nil), silence(3)), metav1.ConditionTrue, "Degraded", "https://etcd-3: refused"},
		"all are silent":      {cluster(silence(1), silence(3)), metav1.ConditionFalse, "Unreachable", "https://etcd-1: refused; https://etcd-3: refused"},
		"no quorum":           {noQuorum, metav1.ConditionFalse, "NoQuorum", "no leader"},
		"out of space":        {cluster(answer(1, mebi, nil), answer(3, mebi, alarm("memberID:3 alarm:NOSPACE "))), metav1.ConditionFalse, "NoSpace", "quota"},
		"corrupt":             {cluster(answer(1, mebi, alarm("memberID:1 alarm:CORRUPT "))), metav1.ConditionFalse, "Corrupt", "different data"},
		"almost full":         {cluster(answer(1, mebi, nil), answer(3, 90*mebi, nil)), metav1.ConditionTrue, "AlmostFull", "90%"},
		"not almost full":     {cluster(answer(1, 89*mebi, nil)), metav1.ConditionTrue, "Available", "reads and writes"},
		"full, quota unknown": {cluster(answer(1, 200*mebi, func(s *clientv3.StatusResponse) { s.DbSizeQuota = 0 })), metav1.ConditionTrue, "Available", "reads and writes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ready, reason, message := readiness(tc.seen)
			if ready != tc.want || reason != tc.wantReason || !strings.Contains(message, tc.wantMessage) {
				t.Errorf("ready %s, reason %s, message %q; want %s, %s and a message with %q", ready, reason, message, tc.want, tc.wantReason, tc.wantMessage)
			}
		})
	}
}

func TestSetObserved(t *testing.T) {
	t.Parallel()
	var status hostingv1alpha1.StoreStatus
	old := func(s *clientv3.StatusResponse) { s.Version = "3.5.9" }
	setObserved(&status, cluster(answer(1, 10*mebi, nil), answer(3, 12*mebi, old)), 4, epoch)
	want := hostingv1alpha1.StoreStatus{
		Conditions: []metav1.Condition{{
			Type: "Ready", Status: metav1.ConditionTrue, Reason: "Available", Message: "Etcd takes reads and writes",
			ObservedGeneration: 4, LastTransitionTime: metav1.NewTime(epoch),
		}},
		Size: quantity(12 * mebi), SizeInUse: quantity(6 * mebi), Quota: quantity(100 * mebi),
		Members: []hostingv1alpha1.StoreMember{
			{ID: "1", Name: "a", Endpoint: "https://etcd-1", Version: "3.7.3", Leader: true},
			{ID: "1a"},
			{ID: "3", Name: "c", Endpoint: "https://etcd-3", Version: "3.5.9"},
		},
		Version: "3.5.9",
	}
	if diff := cmp.Diff(want, status); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}

	// Silence takes nothing away but readiness.
	down := cluster(silence(1), silence(3))
	down.members, down.membersErr = nil, errors.New("refused")
	setObserved(&status, down, 4, epoch.Add(time.Minute))
	if status.Conditions[0].Status != metav1.ConditionFalse {
		t.Errorf("Ready is %s of an etcd that is down", status.Conditions[0].Status)
	}
	status.Conditions, want.Conditions = nil, nil
	if diff := cmp.Diff(want, status); diff != "" {
		t.Errorf("what was known was lost (-want +got):\n%s", diff)
	}
}

func TestLowerVersion(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ a, b, want string }{
		{"", "3.7.3", "3.7.3"},
		{"3.10.0", "3.9.1", "3.9.1"},
		{"3.5.0", "3.5.0", "3.5.0"},
		{"unknown", "3.5.0", "3.5.0"},
	} {
		if got := lowerVersion(tc.a, tc.b); got != tc.want {
			t.Errorf("lowerVersion(%q, %q) = %q, want %q", tc.a, tc.b, got, tc.want)
		}
	}
}

func TestIsNews(t *testing.T) {
	t.Parallel()
	base := hostingv1alpha1.StoreStatus{
		Size: quantity(20 * mebi), SizeInUse: quantity(10 * mebi), Quota: quantity(100 * mebi), Objects: 5, Version: "3.7.3",
		Conditions: []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue}},
		Members:    []hostingv1alpha1.StoreMember{{ID: "1"}},
	}
	for name, tc := range map[string]struct {
		change func(*hostingv1alpha1.StoreStatus)
		want   bool
	}{
		"nothing":           {func(*hostingv1alpha1.StoreStatus) {}, false},
		"the same, as text": {func(s *hostingv1alpha1.StoreStatus) { q := resource.MustParse("100Mi"); s.Quota = &q }, false},
		"a page more":       {func(s *hostingv1alpha1.StoreStatus) { s.SizeInUse = quantity(10*mebi + 4096) }, false},
		"much more in use":  {func(s *hostingv1alpha1.StoreStatus) { s.SizeInUse = quantity(10*mebi + mebi/4) }, true},
		"much less in use":  {func(s *hostingv1alpha1.StoreStatus) { s.SizeInUse = quantity(9 * mebi) }, true},
		"more on disk":      {func(s *hostingv1alpha1.StoreStatus) { s.Size = quantity(21 * mebi) }, true},
		"one object more":   {func(s *hostingv1alpha1.StoreStatus) { s.Objects++ }, true},
		"another quota":     {func(s *hostingv1alpha1.StoreStatus) { s.Quota = nil }, true},
		"a member more": {func(s *hostingv1alpha1.StoreStatus) {
			s.Members = append(s.Members, hostingv1alpha1.StoreMember{ID: "2"})
		}, true},
		"not ready":             {func(s *hostingv1alpha1.StoreStatus) { s.Conditions[0].Status = metav1.ConditionFalse }, true},
		"sizes no longer known": {func(s *hostingv1alpha1.StoreStatus) { s.Size = nil }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			after := base.DeepCopy()
			tc.change(after)
			if got := isNews(&base, after); got != tc.want {
				t.Errorf("news: %v, want %v", got, tc.want)
			}
		})
	}
	large := hostingv1alpha1.StoreStatus{Size: quantity(64 * 1024 * mebi)}
	if isNews(&large, &hostingv1alpha1.StoreStatus{Size: quantity(64*1024*mebi + 512*mebi)}) {
		t.Error("half a GiB is news for 64 GiB")
	}
}
