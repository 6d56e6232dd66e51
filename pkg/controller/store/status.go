// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
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
	"github.com/annex-dev/annex/pkg/storage/etcd/stores"
)

// Reasons of the condition Ready, in addition to the reasons of package stores.
const (
	reasonAvailable           = "Available"
	reasonClaimFailed         = "ClaimFailed"
	reasonDegraded            = "Degraded"
	reasonCertificateExpiring = "CertificateExpiring"
)

// Reasons of the condition UnderPressure.
const (
	reasonNoPressure = "NoPressure"
	reasonAlmostFull = "AlmostFull"
	reasonSlow       = "Slow"
)

const (
	// almostFull is the percentage of the quota from which a Store is under pressure. At
	// the quota, etcd rejects writes.
	almostFull = 90

	// slow is the response time of an etcd under pressure. Milliseconds are normal.
	slow = time.Second

	// A client certificate causes a warning from expiresSoon before its expiry on, and the alert
	// AnnexStoreCertificateExpires.
	expiresSoon = 14 * 24 * time.Hour

	// noSpaceHint is for operators of an etcd.
	noSpaceHint = "Then defragment its members and disarm the alarm, or set spec.etcd.defragmentation to WhenFull"

	// minSizeChange and minSizeChangeFraction are the change of a size that is worth a
	// write. It is far larger than the growth by such a write, so writes do not cause
	// each other.
	minSizeChange         = 256 << 10
	minSizeChangeFraction = 64
)

// setObserved sets what the probe of the etcd observed. Values that it lacks keep their
// previous state.
func setObserved(store *hostingv1alpha1.Store, seen *stores.Snapshot, now time.Time) {
	status := &store.Status
	setSizes(status, seen)
	setMembers(status, seen)
	if slices.ContainsFunc(seen.Endpoints, func(answer stores.EndpointStatus) bool { return answer.Err == nil }) {
		status.Alarms = slices.Sorted(slices.Values(seen.Alarms))
	}
	for _, condition := range []metav1.Condition{readyCondition(store, seen, now), pressureCondition(seen)} {
		condition.ObservedGeneration = seen.Generation
		condition.LastTransitionTime = metav1.NewTime(now)
		meta.SetStatusCondition(&status.Conditions, condition)
	}
}

// readyCondition reports whether the store accepts reads and writes. Its messages contain
// nothing that changes with every probe.
func readyCondition(store *hostingv1alpha1.Store, seen *stores.Snapshot, now time.Time) metav1.Condition {
	ready := metav1.Condition{Type: hostingv1alpha1.StoreReady, Status: metav1.ConditionTrue}
	var silent []string
	for _, answer := range seen.Endpoints {
		if answer.Err != nil {
			silent = append(silent, fmt.Sprintf("%s: %v", answer.Endpoint, answer.Err))
		}
	}
	switch refused := seen.Unavailable; {
	case refused != nil && refused.Reason == stores.ReasonConnecting:
		ready.Status, ready.Reason, ready.Message = metav1.ConditionUnknown, refused.Reason, sentence(refused.Message)
	case refused != nil:
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, refused.Reason, notReady(store, seen, refused)
	case seen.LowDisk:
		ready.Status, ready.Reason = metav1.ConditionFalse, stores.ReasonNoSpace
		ready.Message = "The volume of --data-dir is almost full, so that annex takes no writes: free space there, or enlarge it"
	case seen.NoSpace:
		ready.Status, ready.Reason = metav1.ConditionFalse, stores.ReasonNoSpace
		ready.Message = "The database reached its quota, so that etcd takes no writes: delete objects or raise the quota. " + cmp.Or(sentence(seen.Reclaiming), noSpaceHint)
	case seen.SecretErr != nil:
		ready.Reason, ready.Message = stores.ReasonBadCredentials, "Etcd takes reads and writes with the previous credentials: "+seen.SecretErr.Error()
	case !seen.CertificateExpires.IsZero() && seen.CertificateExpires.Before(now):
		ready.Reason = stores.ReasonCertificateExpired
		ready.Message = "Etcd takes reads and writes over existing connections, but the client certificate expired at " +
			seen.CertificateExpires.UTC().Format(time.RFC3339) + ": renew what is in the Secret"
	case !seen.CertificateExpires.IsZero() && seen.CertificateExpires.Before(now.Add(expiresSoon)):
		ready.Reason = reasonCertificateExpiring
		ready.Message = "Etcd takes reads and writes, until the client certificate expires at " +
			seen.CertificateExpires.UTC().Format(time.RFC3339) + ": renew what is in the Secret"
	case len(silent) > 0:
		ready.Reason, ready.Message = reasonDegraded, "Some endpoints do not answer: "+strings.Join(silent, "; ")
	default:
		ready.Reason, ready.Message = reasonAvailable, "Etcd takes reads and writes"
	}
	return ready
}

// notReady is the reason, and what to do.
func notReady(store *hostingv1alpha1.Store, seen *stores.Snapshot, refused *stores.UnavailableError) string {
	message := sentence(refused.Message)
	if next := hint(store, seen, refused.Reason); next != "" {
		message += ". " + next
	}
	return message
}

// sentence capitalizes the first letter.
func sentence(message string) string {
	if message == "" {
		return ""
	}
	return strings.ToUpper(message[:1]) + message[1:]
}

// pressureCondition reports whether the store is slow or about to reject writes.
func pressureCondition(seen *stores.Snapshot) metav1.Condition {
	under := metav1.Condition{Type: hostingv1alpha1.StoreUnderPressure, Status: metav1.ConditionTrue}
	largest := seen.Largest()
	switch {
	case seen.LowDisk:
		under.Reason, under.Message = stores.ReasonNoSpace, "The volume of --data-dir is almost full"
	case seen.NoSpace:
		under.Reason, under.Message = stores.ReasonNoSpace, "The database reached its quota"
	case seen.Unavailable != nil:
		under.Status, under.Reason, under.Message = metav1.ConditionUnknown, seen.Unavailable.Reason, "The store is not ready"
	case largest != nil && largest.DbSizeQuota > 0 && largest.DbSizeInUse >= largest.DbSizeQuota/100*almostFull:
		under.Reason = reasonAlmostFull
		under.Message = fmt.Sprintf("What is in the database takes more than %d%% of its quota, at which etcd stops taking writes", almostFull)
	case seen.RoundTrip >= slow:
		under.Reason, under.Message = reasonSlow, fmt.Sprintf("Etcd takes more than %s to answer", slow)
	default:
		under.Status, under.Reason, under.Message = metav1.ConditionFalse, reasonNoPressure, "There is space for more, and etcd answers in time"
	}
	return under
}

// setSizes sets the sizes of the largest member, which is the first to reach the quota, and the
// free space of its volume if it is inside annex.
func setSizes(status *hostingv1alpha1.StoreStatus, seen *stores.Snapshot) {
	status.DiskFree = nil
	if seen.Disk.Size > 0 {
		status.DiskFree = quantity(seen.Disk.Free)
	}
	largest := seen.Largest()
	if largest == nil {
		return
	}
	status.DatabaseSize = quantity(largest.DbSize)
	status.SizeInUse = quantity(largest.DbSizeInUse)
	status.Quota = nil
	if largest.DbSizeQuota > 0 {
		// Etcd before 3.6 does not report it.
		status.Quota = quantity(largest.DbSizeQuota)
	}
}

func quantity(n int64) *resource.Quantity {
	return resource.NewQuantity(n, resource.BinarySI)
}

// setMembers sets the members, and the lowest version among them, which limits the
// features of the cluster.
func setMembers(status *hostingv1alpha1.StoreStatus, seen *stores.Snapshot) {
	if seen.Members == nil {
		return
	}
	byID := map[uint64]stores.EndpointStatus{}
	for _, answer := range seen.Endpoints {
		if answer.Err == nil {
			byID[answer.Status.Header.GetMemberId()] = answer
		}
	}
	members := make([]hostingv1alpha1.StoreMember, 0, len(seen.Members.Members))
	lowest := ""
	for _, member := range seen.Members.Members {
		described := hostingv1alpha1.StoreMember{ID: strconv.FormatUint(member.ID, 16), Name: member.Name}
		if answer, ok := byID[member.ID]; ok {
			described.Endpoint = answer.Endpoint
			described.Version = answer.Status.Version
			described.Leader = answer.Status.Leader == member.ID
			lowest = lowerVersion(lowest, answer.Status.Version)
		}
		members = append(members, described)
	}
	slices.SortFunc(members, func(a, b hostingv1alpha1.StoreMember) int { return strings.Compare(a.ID, b.ID) })
	status.Members = members
	if lowest != "" {
		status.Version = lowest
	}
}

// lowerVersion returns the lower of two versions, ignoring an empty one.
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

// needsWrite reports whether a status is worth a write. Sizes must change by more than
// the write itself changes them.
func needsWrite(before, after *hostingv1alpha1.StoreStatus) bool {
	if sizeChanged(before.DatabaseSize, after.DatabaseSize) || sizeChanged(before.SizeInUse, after.SizeInUse) || sizeChanged(before.DiskFree, after.DiskFree) {
		return true
	}
	same := after.DeepCopy()
	same.DatabaseSize, same.SizeInUse, same.DiskFree = before.DatabaseSize, before.SizeInUse, before.DiskFree
	if before.History != nil && same.History != nil && before.History.Epoch == same.History.Epoch {
		same.History = before.History // it is written down now and then
	}
	return !equality.Semantic.DeepEqual(before, same)
}

func sizeChanged(before, after *resource.Quantity) bool {
	if before == nil || after == nil {
		return before != after
	}
	change := after.Value() - before.Value()
	if change < 0 {
		change = -change
	}
	return change >= max(minSizeChange, before.Value()/minSizeChangeFraction)
}

// hint returns what to do about a store that is not ready, if anything. Annex probes
// again by itself.
func hint(store *hostingv1alpha1.Store, seen *stores.Snapshot, reason string) string {
	// The last word is the value of the annotation that the page names.
	page := "see docs/stores-reference.md, An etcd with other data; the etcd cluster is " + stores.FormatClusterID(seen.Cluster)
	endpoints, credentials := "spec.etcd.endpoints", "spec.etcd.tls"
	if store.Name == hostingv1alpha1.DefaultStoreName {
		// The Store default adopts no cluster: the command line configures it.
		page, endpoints, credentials = "start annex again", "--etcd-servers", "--etcd-cafile, --etcd-certfile and --etcd-keyfile"
	}
	switch reason {
	case stores.ReasonUnreachable:
		return fmt.Sprintf("Start the etcd, or correct %s or %s", endpoints, credentials)
	case stores.ReasonNoQuorum:
		return "Start the members that are down: a majority is needed"
	case stores.ReasonNotEtcd:
		return "Correct " + endpoints
	case stores.ReasonTooOld:
		return "Upgrade etcd"
	case stores.ReasonCorrupt:
		return "Follow etcd's own instructions for data corruption"
	case stores.ReasonBadCredentials:
		return "Correct the Secret and allow annex to read it, or correct " + credentials
	case stores.ReasonCertificateExpired:
		return "Renew the certificate in the Secret"
	case stores.ReasonWrongCluster:
		if seen.Cluster == 0 {
			return "Correct " + endpoints
		}
		return fmt.Sprintf("Correct %s. If the cluster found has the data of this Store, %s", endpoints, page)
	case stores.ReasonDataReplaced, stores.ReasonRolledBack, stores.ReasonDiverged:
		return "Restore the data. If annex is to continue with the present data, " + page
	case stores.ReasonNewerFormat:
		return "Upgrade annex"
	case stores.ReasonNotEmpty:
		return "Create a Store with another keyPrefix, or delete those keys"
	case stores.ReasonInUse:
		return "Create a Store with another keyPrefix. If the other one no longer exists, " + page
	}
	return ""
}
