// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

// Reasons of the condition Ready.
const (
	reasonAvailable    = "Available"
	reasonDegraded     = "Degraded"
	reasonAlmostFull   = "AlmostFull"
	reasonUnreachable  = "Unreachable"
	reasonNoQuorum     = "NoQuorum"
	reasonNoSpace      = "NoSpace"
	reasonCorrupt      = "Corrupt"
	reasonNotConnected = "NotConnected"
)

const (
	// almostFull is the part of the quota, in percent, from which on a Store
	// warns: at the quota etcd stops taking writes, this warning included.
	almostFull = 90

	// leastNews and newsFraction are how much a size must change to be news by
	// itself. Many writes of this status fit in, so that none is caused by the
	// one before; and nobody reads the fourth digit.
	leastNews    = 256 << 10
	newsFraction = 64
)

// setNotConnected states that annex keeps nothing in the store.
func setNotConnected(status *hostingv1alpha1.StoreStatus, generation int64, now time.Time) {
	setReady(status, generation, now, metav1.ConditionUnknown, reasonNotConnected,
		fmt.Sprintf("This annex keeps all objects in the store %q and has not connected to this one", hostingv1alpha1.DefaultStoreName))
}

// setObserved states what the etcd answered. What it did not answer stays as it
// was last seen.
func setObserved(status *hostingv1alpha1.StoreStatus, seen observation, generation int64, now time.Time) {
	setSizes(status, seen)
	setMembers(status, seen)
	ready, reason, message := readiness(seen)
	setReady(status, generation, now, ready, reason, message)
}

func setReady(status *hostingv1alpha1.StoreStatus, generation int64, now time.Time, ready metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&status.Conditions, metav1.Condition{
		Type:               hostingv1alpha1.StoreReady,
		Status:             ready,
		Reason:             reason,
		Message:            message,
		ObservedGeneration: generation,
		LastTransitionTime: metav1.NewTime(now),
	})
}

// readiness says whether the store takes reads and writes. Messages hold nothing
// that is different each time, or each look at the store would be news.
func readiness(seen observation) (ready metav1.ConditionStatus, reason, message string) {
	var silent []string
	answers, full, alarms := 0, false, ""
	for _, answer := range seen.endpoints {
		if answer.err != nil {
			silent = append(silent, fmt.Sprintf("%s: %v", answer.endpoint, answer.err))
			continue
		}
		answers++
		full = full || answer.status.DbSizeQuota > 0 && answer.status.DbSize >= answer.status.DbSizeQuota/100*almostFull
		alarms += strings.Join(answer.status.Errors, " ")
	}
	switch {
	case answers == 0:
		return metav1.ConditionFalse, reasonUnreachable, "No endpoint answers: " + strings.Join(silent, "; ")
	case strings.Contains(alarms, "CORRUPT"):
		return metav1.ConditionFalse, reasonCorrupt, "Etcd found that its members hold different data"
	case strings.Contains(alarms, "NOSPACE"):
		return metav1.ConditionFalse, reasonNoSpace,
			"The database reached its quota, so etcd takes no writes: delete objects, compact, defragment, and disarm the alarm"
	case seen.membersErr != nil:
		return metav1.ConditionFalse, reasonNoQuorum, fmt.Sprintf("The cluster does not answer as a whole: %v", seen.membersErr)
	case full:
		return metav1.ConditionTrue, reasonAlmostFull,
			fmt.Sprintf("The database takes more than %d%% of its quota, at which etcd stops taking writes", almostFull)
	case len(silent) > 0:
		return metav1.ConditionTrue, reasonDegraded, "Some endpoints do not answer: " + strings.Join(silent, "; ")
	}
	return metav1.ConditionTrue, reasonAvailable, "Etcd takes reads and writes"
}

// setSizes states the size of the largest member: it is the one that reaches the
// quota first.
func setSizes(status *hostingv1alpha1.StoreStatus, seen observation) {
	largest := -1
	for i, answer := range seen.endpoints {
		if answer.err == nil && (largest < 0 || answer.status.DbSize > seen.endpoints[largest].status.DbSize) {
			largest = i
		}
	}
	if largest < 0 {
		return
	}
	answer := seen.endpoints[largest].status
	status.Size = quantity(answer.DbSize)
	status.SizeInUse = quantity(answer.DbSizeInUse)
	status.Quota = nil
	if answer.DbSizeQuota > 0 {
		// Etcd before 3.6 does not tell.
		status.Quota = quantity(answer.DbSizeQuota)
	}
}

// quantity is a number of bytes.
func quantity(n int64) *resource.Quantity {
	return resource.NewQuantity(n, resource.BinarySI)
}

// setMembers states who the members are, and the lowest version among them: it is
// what the cluster as a whole can do.
func setMembers(status *hostingv1alpha1.StoreStatus, seen observation) {
	if seen.membersErr != nil {
		return
	}
	byID := map[uint64]endpointAnswer{}
	for _, answer := range seen.endpoints {
		if answer.err == nil {
			byID[answer.status.Header.GetMemberId()] = answer
		}
	}
	members := make([]hostingv1alpha1.StoreMember, 0, len(seen.members.Members))
	lowest := ""
	for _, member := range seen.members.Members {
		described := hostingv1alpha1.StoreMember{ID: strconv.FormatUint(member.ID, 16), Name: member.Name}
		if answer, ok := byID[member.ID]; ok {
			described.Endpoint = answer.endpoint
			described.Version = answer.status.Version
			described.Leader = answer.status.Leader == member.ID
			lowest = lowerVersion(lowest, answer.status.Version)
		}
		members = append(members, described)
	}
	slices.SortFunc(members, func(a, b hostingv1alpha1.StoreMember) int { return strings.Compare(a.ID, b.ID) })
	status.Members = members
	if lowest != "" {
		status.Version = lowest
	}
}

// lowerVersion returns the lower of two versions; an empty one does not count.
func lowerVersion(a, b string) string {
	if a == "" {
		return b
	}
	parsedA, errA := version.ParseSemantic(a)
	parsedB, errB := version.ParseSemantic(b)
	if errA != nil || errB != nil {
		return min(a, b)
	}
	if parsedB.LessThan(parsedA) {
		return b
	}
	return a
}

// isNews reports whether a status is worth writing. Sizes alone have to change by
// more than what writing the status does to them.
func isNews(before, after *hostingv1alpha1.StoreStatus) bool {
	if sizeIsNews(before.Size, after.Size) || sizeIsNews(before.SizeInUse, after.SizeInUse) {
		return true
	}
	same := after.DeepCopy()
	same.Size, same.SizeInUse = before.Size, before.SizeInUse
	return !equality.Semantic.DeepEqual(before, same)
}

func sizeIsNews(before, after *resource.Quantity) bool {
	if before == nil || after == nil {
		return before != after
	}
	change := after.Value() - before.Value()
	if change < 0 {
		change = -change
	}
	return change >= max(leastNews, before.Value()/newsFraction)
}
