// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package stores

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/klog/v2"

	"github.com/annex-dev/annex/pkg/storage/etcd/etcdkv"
	"github.com/annex-dev/annex/pkg/storage/etcd/keys"
)

// History is the newest point of the history of a Store's etcd that annex knows. The zero value is no knowledge.
type History struct {
	// Epoch is the epoch of the mark.
	Epoch string
	// Revision is the highest resource version that clients may have seen.
	Revision int64
	// Checkpoint names a key that annex wrote at CheckpointRevision. An etcd without it lacks
	// the history up to then.
	Checkpoint         string
	CheckpointRevision int64
}

// checkpointInterval is the minimum time between checkpoints while others write. Every put of this
// process writes one too.
const checkpointInterval = time.Minute

// maxCheckpoints bounds the checkpoints: each process has one, and leaves it behind.
const maxCheckpoints = 64

// writeCheckpoint writes the checkpoint of this process if other keys were written since, so
// that an idle etcd stays idle. Every put of the process writes it too.
//
// The key proves a history: a copy of the etcd from before the write lacks it, whatever else was
// written to the copy.
func (s *Store) writeCheckpoint(ctx context.Context, conn *connection, f *fence, seen *Snapshot) {
	before := f.checkpoint.Load()
	newer := int64(0)
	for key, written := range seen.checkpoints {
		if key != f.checkpointKey && written > before {
			newer++
		}
	}
	recent := time.Since(s.state.checkpointed) < s.pool.config.checkpointInterval
	// Before other processes remove it as an old one, it is written again.
	idle := seen.revision-before <= newer && newer < maxCheckpoints/2
	if seen.NoSpace || before > 0 && (recent || idle) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	unchanged := clientv3.Compare(clientv3.Value(f.markKey), "=", f.mark)
	ops := []clientv3.Op{f.putCheckpoint()}
	if oldest := s.oldestCheckpoint(f, seen); oldest != "" {
		ops = append(ops, clientv3.OpDelete(oldest))
	}
	response, err := conn.client.Txn(ctx).If(unchanged).Then(ops...).Commit()
	switch {
	case err != nil:
		// A full etcd, for example. The next probe tries again.
		klog.FromContext(ctx).V(1).Info("No checkpoint was written", "err", err)
	case response.Succeeded:
		f.wroteCheckpoint(response.Header)
		etcdkv.Raise(&s.highest, response.Header.GetRevision())
		s.state.checkpointed = time.Now()
	}
}

// oldestCheckpoint returns the key to remove if there are too many, otherwise "": never the
// recorded one, which outlasts processes.
func (s *Store) oldestCheckpoint(f *fence, seen *Snapshot) string {
	if len(seen.checkpoints) < maxCheckpoints {
		return ""
	}
	kept := keys.Checkpoints(s.prefix) + s.desiredState().known.Checkpoint
	candidates := slices.DeleteFunc(slices.Collect(maps.Keys(seen.checkpoints)), func(key string) bool {
		return key == f.checkpointKey || key == kept
	})
	return slices.MinFunc(candidates, func(a, b string) int { return int(seen.checkpoints[a] - seen.checkpoints[b]) })
}

// history returns the newest known point of the history of the etcd.
func (s *Store) history(f *fence, seen *Snapshot) History {
	h := History{Epoch: seen.Mark.Epoch, Revision: s.highest.Load() + seen.offset}
	if f != nil && f.checkpoint.Load() > 0 {
		h.Checkpoint = strings.TrimPrefix(f.checkpointKey, keys.Checkpoints(s.prefix))
		h.CheckpointRevision = f.checkpoint.Load()
	}
	return h
}

// checkHistory checks that the etcd has the history that annex knows: what this process has
// seen, and what the status records of others.
func (s *Store) checkHistory(w desiredState, seen *Snapshot) *UnavailableError {
	if s.state.data == (data{w.pinned, seen.Mark.Epoch}) {
		if seen.revision < seen.floor {
			return s.unavailable(ReasonRolledBack, rolledBack(seen.floor))
		}
		if f := s.state.fence; f != nil && seen.checkpoints[f.checkpointKey] < seen.checkpoint {
			return s.unavailable(ReasonDiverged, diverged)
		}
	}
	if known := w.known; known.Epoch == seen.Mark.Epoch {
		if seen.revision+seen.offset < known.Revision {
			return s.unavailable(ReasonRolledBack, rolledBack(known.Revision))
		}
		if seen.checkpoints[keys.Checkpoints(s.prefix)+known.Checkpoint] < known.CheckpointRevision {
			return s.unavailable(ReasonDiverged, diverged)
		}
	}
	return nil
}
