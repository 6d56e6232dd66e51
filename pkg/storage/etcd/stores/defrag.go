// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package stores

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/klog/v2"
)

// A full etcd refuses writes until history is compacted, each member is defragmented, and the
// alarm is disarmed. annex does that in the etcd inside the process as soon as it frees space:
// upstream's compactor cannot, because it first writes a key. Any other etcd may have other
// users, so its Store must allow it.
const (
	// A member is defragmented only if at least minFreePercent of its file is free, because it blocks
	// requests meanwhile.
	minFreePercent = 5
	// maxFilePercent is the part of the quota that a member's file may take when the alarm is
	// disarmed.
	maxFilePercent = 95
	// restFactor is the pause after defragmentations on suspicion, as a multiple of their
	// duration.
	restFactor = 10
	// reclaimInterval is the minimum time between attempts.
	reclaimInterval = 3 * time.Second
	// disarmInterval is the time between trials to disarm the alarm of an etcd that does not report its
	// quota (before 3.6): if it is still full, the next write raises the alarm again.
	disarmInterval = time.Minute
	// defragmentTimeout is for one member.
	defragmentTimeout = 10 * time.Minute
)

// reclaimResult is the result of an attempt to free space.
type reclaimResult struct {
	at time.Time
	// revision is etcd's. The next attempt compacts up to it, so that reads at it can
	// finish.
	revision int64
	// disarmed is the time at which the alarm was last disarmed.
	disarmed time.Time
	// stale is set after a compaction: a member may report that its file is full until it writes
	// again, which a full one hardly does.
	stale bool
	// rested is the time from which on members may again be defragmented on suspicion.
	rested time.Time
	err    error
}

// reclaim frees space in a full etcd, in the background.
func (s *Store) reclaim(ctx context.Context, conn *connection, seen *Snapshot) {
	select {
	case s.state.lastReclaim = <-s.state.reclaimResults:
		s.state.reclaiming = false
		if err := s.state.lastReclaim.err; err != nil {
			klog.FromContext(ctx).Error(err, "No room could be made in an etcd that is out of space")
		}
	default:
	}
	if !seen.hasAlarm("NOSPACE") || seen.Unavailable != nil || !s.embedded && !s.desiredState().defragments {
		return
	}
	if seen.Reclaiming = seen.roomToDefragment(); seen.Reclaiming != "" {
		return
	}
	seen.Reclaiming = "annex removes history and defragments the members, and takes back the alarm when there is room again"
	if err := s.state.lastReclaim.err; err != nil {
		seen.Reclaiming = err.Error()
	}
	if s.state.reclaiming || time.Since(s.state.lastReclaim.at) < reclaimInterval || !conn.acquire() {
		return
	}
	s.state.reclaiming = true
	last := s.state.lastReclaim
	s.running.Go(func() {
		defer conn.release()
		s.state.reclaimResults <- conn.reclaim(ctx, last)
		s.probeSoon()
	})
}

// reclaim makes one attempt.
func (c *connection) reclaim(ctx context.Context, last reclaimResult) reclaimResult {
	next := reclaimResult{revision: last.revision, disarmed: last.disarmed, stale: last.stale, rested: last.rested}
	next.err = c.tryReclaim(ctx, last, &next)
	next.at = time.Now()
	return next
}

func (c *connection) tryReclaim(ctx context.Context, last reclaimResult, next *reclaimResult) error {
	head, err := c.client.Get(ctx, "-", clientv3.WithCountOnly())
	if err != nil {
		return fmt.Errorf("read the revision: %w", err)
	}
	next.revision = head.Header.GetRevision()
	if last.revision > 0 {
		_, err := c.client.Compact(ctx, last.revision, clientv3.WithCompactPhysical())
		if err != nil && !errors.Is(err, rpctypes.ErrCompacted) {
			return fmt.Errorf("remove history up to revision %d: %w", last.revision, err)
		}
		next.stale = next.stale || err == nil
	}
	begin := time.Now()
	trusting := !next.stale || begin.Before(next.rested)
	freed, err := c.defragment(ctx, trusting)
	if err != nil {
		return err
	}
	if !trusting {
		next.stale, next.rested = false, time.Now().Add(restFactor*time.Since(begin))
	}
	statuses, err := c.statuses(ctx)
	if err != nil {
		return err
	}
	blind := freed || time.Since(last.disarmed) >= disarmInterval
	for _, answer := range statuses {
		if known := answer.Status.DbSizeQuota > 0; known && isFull(answer.Status) || !known && !blind {
			return nil // wait until objects are deleted
		}
	}
	next.disarmed = time.Now()
	return c.disarm(ctx)
}

// defragment defragments each member, the leader last. Another replica may do the same, so it
// requests the status of each member again just before, and skips the member if little of its file
// is free. Unless trusting is set, the free space may be stale, so a full member is not skipped.
func (c *connection) defragment(ctx context.Context, trusting bool) (freed bool, err error) {
	members, err := c.statuses(ctx)
	if err != nil {
		return false, err
	}
	for _, member := range members {
		now, err := c.client.Status(ctx, member.Endpoint)
		if err != nil {
			return freed, fmt.Errorf("ask %s for its size: %w", member.Endpoint, err)
		}
		if now.DbSize-now.DbSizeInUse < now.DbSize/100*minFreePercent && (trusting || !isFull(now)) {
			continue
		}
		freed = true
		if err := c.defragmentMember(ctx, member.Endpoint); err != nil {
			return freed, err
		}
	}
	return freed, nil
}

// isFull reports whether a member's file leaves no room for writes. etcd reports no quota before
// 3.6.
func isFull(member *clientv3.StatusResponse) bool {
	return member.DbSizeQuota == 0 || member.DbSize > member.DbSizeQuota/100*maxFilePercent
}

func (c *connection) defragmentMember(ctx context.Context, endpoint string) error {
	ctx, cancel := context.WithTimeout(ctx, defragmentTimeout)
	defer cancel()
	if _, err := c.client.Defragment(ctx, endpoint); err != nil {
		return fmt.Errorf("defragment %s: %w", endpoint, err)
	}
	return nil
}

// statuses requests the status of every endpoint; all must answer. The leader is last.
func (c *connection) statuses(ctx context.Context) ([]EndpointStatus, error) {
	answers := make([]EndpointStatus, 0, len(c.target.endpoints))
	for _, endpoint := range c.target.endpoints {
		status, err := c.client.Status(ctx, endpoint)
		if err != nil {
			return nil, fmt.Errorf("ask %s for its size: %w", endpoint, err)
		}
		answers = append(answers, EndpointStatus{Endpoint: endpoint, Status: status})
	}
	slices.SortStableFunc(answers, func(a, b EndpointStatus) int { return cmp.Compare(isLeader(a), isLeader(b)) })
	return answers, nil
}

func isLeader(answer EndpointStatus) int {
	if answer.Status.Leader == answer.Status.Header.GetMemberId() {
		return 1
	}
	return 0
}

// disarm disarms the alarms about space, and no others.
func (c *connection) disarm(ctx context.Context) error {
	raised, err := c.client.AlarmList(ctx)
	if err != nil {
		return fmt.Errorf("read the alarms: %w", err)
	}
	for _, alarm := range raised.Alarms {
		if alarm.Alarm != etcdserverpb.AlarmType_NOSPACE {
			continue
		}
		if _, err := c.client.AlarmDisarm(ctx, &clientv3.AlarmMember{MemberID: alarm.MemberID, Alarm: alarm.Alarm}); err != nil {
			return fmt.Errorf("take back the alarm of member %s: %w", FormatClusterID(alarm.MemberID), err)
		}
	}
	klog.FromContext(ctx).Info("Made room in an etcd that was out of space, it takes writes again")
	return nil
}
