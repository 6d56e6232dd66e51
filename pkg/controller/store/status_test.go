// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/storage/etcd/stores"
	"github.com/annex-dev/annex/pkg/test/expect"
)

func TestReadiness(t *testing.T) {
	t.Parallel()
	full := func(s *clientv3.StatusResponse) { s.DbSizeInUse = 90 * mebi }
	noSpace := cluster(answer(1, mebi, nil))
	noSpace.NoSpace, noSpace.Reclaiming = true, "annex makes room"
	lowDisk := cluster(answer(1, mebi, nil))
	lowDisk.NoSpace, lowDisk.LowDisk = true, true
	slowly := cluster(answer(1, mebi, nil))
	slowly.RoundTrip = 2 * time.Second
	expiring := cluster(answer(1, mebi, nil))
	expiring.CertificateExpires = epoch.Add(time.Hour)
	expired := cluster(answer(1, mebi, nil))
	expired.CertificateExpires = epoch.Add(-time.Hour)
	lasting := cluster(answer(1, mebi, nil))
	lasting.CertificateExpires = epoch.AddDate(0, 1, 0)
	noSecret := cluster(answer(1, mebi, nil))
	noSecret.SecretErr = errors.New("Secret annex-system/etcd: gone")
	for name, tc := range map[string]struct {
		seen         *stores.Snapshot
		want         string
		wantMessage  string
		wantPressure string
	}{
		"all well":             {cluster(answer(1, mebi, nil), answer(3, mebi, nil)), "True Available", "reads and writes", "False NoPressure"},
		"one is silent":        {cluster(answer(1, mebi, nil), silence(3)), "True Degraded", "https://etcd-3: refused", "False NoPressure"},
		"all are silent":       {down(), "False Unreachable", "No endpoint answers: https://etcd-1: refused", "Unknown Unreachable"},
		"not probed":           {refused(cluster(), stores.ReasonConnecting, "not yet"), "Unknown Connecting", "Not yet", "Unknown Connecting"},
		"another cluster":      {refused(cluster(answer(1, mebi, nil)), stores.ReasonWrongCluster, "it is another"), "False WrongCluster", "It is another", "Unknown WrongCluster"},
		"low disk":             {lowDisk, "False NoSpace", "The volume of --data-dir is almost full", "True NoSpace"},
		"out of space":         {noSpace, "False NoSpace", "quota. Annex makes room", "True NoSpace"},
		"almost full":          {cluster(answer(1, mebi, nil), answer(3, 95*mebi, full)), "True Available", "reads and writes", "True AlmostFull"},
		"large, but half free": {cluster(answer(3, 99*mebi, nil)), "True Available", "reads and writes", "False NoPressure"},
		"full, quota unknown":  {cluster(answer(1, 200*mebi, func(s *clientv3.StatusResponse) { s.DbSizeQuota = 0 })), "True Available", "reads and writes", "False NoPressure"},
		"slow":                 {slowly, "True Available", "reads and writes", "True Slow"},
		"certificate ends":     {expiring, "True CertificateExpiring", "2026-01-02T04:04:05Z", "False NoPressure"},
		"certificate ended":    {expired, "True CertificateExpired", "expired at 2026-01-02T02:04:05Z", "False NoPressure"},
		"certificate lasts":    {lasting, "True Available", "reads and writes", "False NoPressure"},
		"Secret is gone":       {noSecret, "True BadCredentials", "Secret annex-system/etcd: gone", "False NoPressure"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ready, under := readyCondition(&hostingv1alpha1.Store{}, tc.seen, epoch), pressureCondition(tc.seen)
			if got := string(ready.Status) + " " + ready.Reason; got != tc.want || !strings.Contains(ready.Message, tc.wantMessage) {
				t.Errorf("ready %s, message %q; want %s and a message with %q", got, ready.Message, tc.want, tc.wantMessage)
			}
			if got := string(under.Status) + " " + under.Reason; got != tc.wantPressure {
				t.Errorf("under pressure %s, want %s", got, tc.wantPressure)
			}
		})
	}
}

// TestHints: what to do depends on how the Store is configured, and on what was found.
func TestHints(t *testing.T) {
	t.Parallel()
	far := &hostingv1alpha1.Store{ObjectMeta: metav1.ObjectMeta{Name: "far"}}
	itself := &hostingv1alpha1.Store{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	lost := cluster()
	lost.Cluster = 0
	const adopt, again = "docs/stores-reference.md, An etcd with other data; the etcd cluster is c1", "start annex again"
	for name, tc := range map[string]struct {
		store  *hostingv1alpha1.Store
		seen   *stores.Snapshot
		reason string
		want   []string
	}{
		"away":                 {far, cluster(), stores.ReasonUnreachable, []string{"spec.etcd.endpoints", "spec.etcd.tls"}},
		"default away":         {itself, cluster(), stores.ReasonUnreachable, []string{"--etcd-servers", "--etcd-cafile"}},
		"credentials":          {far, cluster(), stores.ReasonBadCredentials, []string{"Secret", "spec.etcd.tls"}},
		"another cluster":      {far, cluster(), stores.ReasonWrongCluster, []string{"spec.etcd.endpoints", adopt}},
		"default, another one": {itself, cluster(), stores.ReasonWrongCluster, []string{"--etcd-servers", again}},
		"several clusters":     {far, lost, stores.ReasonWrongCluster, []string{"Why. Correct spec.etcd.endpoints"}},
		"rolled back":          {far, cluster(), stores.ReasonRolledBack, []string{"Restore the data", adopt}},
		"default rolled back":  {itself, cluster(), stores.ReasonRolledBack, []string{"Restore the data", again}},
		"in use":               {far, cluster(), stores.ReasonInUse, []string{"keyPrefix", adopt}},
		"not claimed":          {far, cluster(), stores.ReasonUnclaimed, []string{"Why"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			expect.Contains(t, readyCondition(tc.store, refused(tc.seen, tc.reason, "why"), epoch).Message, tc.want...)
		})
	}
}

func TestSetObserved(t *testing.T) {
	t.Parallel()
	store := &hostingv1alpha1.Store{}
	status := &store.Status
	old := func(s *clientv3.StatusResponse) { s.Version = "3.5.19" }
	seen := cluster(answer(1, 10*mebi, nil), answer(3, 12*mebi, old))
	seen.Generation, seen.Alarms, seen.Disk = 4, []string{"NOSPACE"}, stores.Disk{Free: 50 * mebi, Size: 100 * mebi}
	setObserved(store, seen, epoch)
	condition := func(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message, ObservedGeneration: 4, LastTransitionTime: metav1.NewTime(epoch)}
	}
	want := hostingv1alpha1.StoreStatus{
		Conditions: []metav1.Condition{
			condition("Ready", metav1.ConditionTrue, "Available", "Etcd takes reads and writes"),
			condition("UnderPressure", metav1.ConditionFalse, "NoPressure", "There is space for more, and etcd answers in time"),
		},
		DatabaseSize: quantity(12 * mebi), SizeInUse: quantity(6 * mebi), Quota: quantity(100 * mebi), DiskFree: quantity(50 * mebi),
		Alarms: []string{"NOSPACE"},
		Members: []hostingv1alpha1.StoreMember{
			{ID: "1", Name: "a", Endpoint: "https://etcd-1", Version: "3.7.3", Leader: true},
			{ID: "1a"},
			{ID: "3", Name: "c", Endpoint: "https://etcd-3", Version: "3.5.19"},
		},
		Version: "3.5.19",
	}
	expect.Equal(t, &want, status, "status")

	// Silence takes nothing away but readiness. The volume is seen without etcd.
	silent := down()
	silent.Disk = seen.Disk
	setObserved(store, silent, epoch.Add(time.Minute))
	if status.Conditions[0].Status != metav1.ConditionFalse {
		t.Errorf("Ready is %s of an etcd that is down", status.Conditions[0].Status)
	}
	status.Conditions, want.Conditions = nil, nil
	expect.Equal(t, &want, status, "what was known was lost")
}

// TestCertificateAlert holds the condition to the alert for the same problem.
func TestCertificateAlert(t *testing.T) {
	t.Parallel()
	rules, err := os.ReadFile("../../../artifacts/deploy/components/prometheusrule/prometheusrule.yaml")
	expect.NoError(t, err)
	expect.Contains(t, string(rules), fmt.Sprintf("annex_store_client_certificate_expiration_timestamp_seconds - time() < %d * 86400\n", expiresSoon/(24*time.Hour)))
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
		DatabaseSize: quantity(20 * mebi), SizeInUse: quantity(10 * mebi), Quota: quantity(100 * mebi), DiskFree: quantity(640 * mebi), Objects: 5, Version: "3.7.3",
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
		"more on disk":      {func(s *hostingv1alpha1.StoreStatus) { s.DatabaseSize = quantity(21 * mebi) }, true},
		"disk a bit fuller": {func(s *hostingv1alpha1.StoreStatus) { s.DiskFree = quantity(631 * mebi) }, false},
		"disk fuller":       {func(s *hostingv1alpha1.StoreStatus) { s.DiskFree = quantity(630 * mebi) }, true},
		"one object more":   {func(s *hostingv1alpha1.StoreStatus) { s.Objects++ }, true},
		"another quota":     {func(s *hostingv1alpha1.StoreStatus) { s.Quota = nil }, true},
		"a member more": {func(s *hostingv1alpha1.StoreStatus) {
			s.Members = append(s.Members, hostingv1alpha1.StoreMember{ID: "2"})
		}, true},
		"not ready":             {func(s *hostingv1alpha1.StoreStatus) { s.Conditions[0].Status = metav1.ConditionFalse }, true},
		"sizes no longer known": {func(s *hostingv1alpha1.StoreStatus) { s.DatabaseSize = nil }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			after := base.DeepCopy()
			tc.change(after)
			if got := needsWrite(&base, after); got != tc.want {
				t.Errorf("news: %v, want %v", got, tc.want)
			}
		})
	}
	large := hostingv1alpha1.StoreStatus{DatabaseSize: quantity(64 * 1024 * mebi)}
	if needsWrite(&large, &hostingv1alpha1.StoreStatus{DatabaseSize: quantity(64*1024*mebi + 512*mebi)}) {
		t.Error("half a GiB is news for 64 GiB")
	}
}
