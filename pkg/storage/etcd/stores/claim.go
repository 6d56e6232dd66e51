// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package stores

import (
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/klog/v2"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/storage/etcd/etcdkv"
	"github.com/annex-dev/annex/pkg/storage/etcd/keys"
	"github.com/annex-dev/annex/pkg/storage/layer/revision"
)

// adoptionGap is added to the highest recorded revision at an adoption: revisions since the last
// recording are below it.
const adoptionGap = 1_000_000_000

// Claim is the result of claiming a prefix.
type Claim struct {
	// Cluster is the ID of the etcd cluster.
	Cluster uint64
	// History starts with the claim.
	History History
}

// Claim marks the prefix in the etcd cluster as this Store's; only then are requests admitted,
// and only to this cluster. It fails if the prefix, or one above or below it, belongs to another
// Store, or if it has other keys than annex's. With adopt it replaces the mark that the last
// probe found, of any Store: the caller has verified that this Store is deleted.
//
// Revisions continue above the highest that clients may have seen, so that the ones they hold
// are never in the future.
func (s *Store) Claim(ctx context.Context, uid types.UID, adopt bool) (Claim, error) {
	seen := s.Snapshot()
	conn := s.breaker.Load().connection
	if conn == nil || seen.Cluster == 0 || !conn.acquire() {
		return Claim{}, s.unavailable(ReasonConnecting, "it was not reached yet")
	}
	defer conn.release()
	defer s.probeSoon()
	c := claimRequest{mark: newMark(s.name, uid), cluster: seen.Cluster, adopt: adopt}
	if adopt {
		c.adopted = s.adoption.Load()
		if is := seen.Mark; is != nil && is.Store == hostingv1alpha1.DefaultStoreName {
			return Claim{}, s.unavailable(ReasonInUse, fmt.Sprintf(
				"the prefix %s of the etcd cluster %s is that of an annex itself: no Store can adopt it", s.prefix, FormatClusterID(seen.Cluster)))
		}
		c.replaces = seen.rawMark
		if highest := max(s.desiredState().known.Revision, s.known.Load().Revision); highest > 0 {
			c.floor = highest + adoptionGap
		}
	}
	claimed, err := conn.claim(ctx, c)
	if err == nil && adopt {
		s.adoption.Store(&claimed)
	}
	return claimed, err
}

// Release removes the Store's mark, so that others may use the prefix.
func (s *Store) Release(ctx context.Context, uid types.UID) error {
	seen := s.Snapshot()
	conn := s.breaker.Load().connection
	if conn == nil || !conn.acquire() {
		return s.unavailable(ReasonConnecting, "it was not reached")
	}
	defer conn.release()
	if is := seen.Mark; is == nil || is.Store != s.name || is.UID != uid {
		return nil
	}
	key := keys.Store(s.prefix)
	_, err := conn.client.Txn(ctx).
		If(clientv3.Compare(clientv3.Value(key), "=", seen.rawMark)).
		Then(clientv3.OpDelete(key), clientv3.OpDelete(keys.Checkpoints(s.prefix), clientv3.WithPrefix())).
		Commit()
	if err != nil {
		return fmt.Errorf("remove the mark of store %s: %w", s.name, err)
	}
	return nil
}

// claimRequest describes a claim.
type claimRequest struct {
	mark    Mark
	cluster uint64
	// adopt allows to replace the stored mark if it is replaces, and adopted is the last adoption.
	adopt    bool
	replaces string
	adopted  *Claim
	// floor is the minimum revision for clients, 0 for none.
	floor int64
}

// claimAttempts bounds the inspections of a prefix that changes meanwhile.
const claimAttempts = 3

// claim writes the mark in one transaction, on condition that the prefix has not changed since
// it was inspected. If it has, the inspection decides again: a mark that another replica wrote for
// this Store, or this process a moment ago, is the claim.
func (c *connection) claim(ctx context.Context, claim claimRequest) (Claim, error) {
	for range claimAttempts {
		found, err := c.inspect(ctx, claim)
		if err != nil {
			return Claim{}, err
		}
		if found.claimed != nil {
			return *found.claimed, nil
		}
		if done, err := c.write(ctx, claim, found); done || err != nil {
			return claim.result(), err
		}
	}
	return Claim{}, fmt.Errorf("mark the prefix %s as that of store %s: it changed at each of %d attempts", c.target.prefix, claim.mark.Store, claimAttempts)
}

// write writes the mark, and returns false if the prefix is not as it was found.
func (c *connection) write(ctx context.Context, claim claimRequest, found prefixState) (bool, error) {
	prefix := c.target.prefix
	key := keys.Store(prefix)
	unchanged := []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(key), "=", 0)}
	if found.mark != "" {
		unchanged[0] = clientv3.Compare(clientv3.Value(key), "=", found.mark)
	}
	for _, above := range keys.Above(prefix) {
		unchanged = append(unchanged, clientv3.Compare(clientv3.CreateRevision(keys.Store(above)), "=", 0))
	}
	if found.empty {
		unchanged = append(unchanged, clientv3.Compare(clientv3.CreateRevision(keys.Root(prefix)), "=", 0).WithPrefix())
	}
	ops, err := claim.ops(prefix, found)
	if err != nil {
		return false, err
	}
	response, err := c.client.Txn(ctx).If(unchanged...).Then(ops...).Commit()
	if err != nil {
		return false, fmt.Errorf("mark the prefix %s as that of store %s: %w", prefix, claim.mark.Store, err)
	}
	if !response.Succeeded || found.empty {
		return response.Succeeded, nil
	}
	// Until this transaction a Store below could be claimed.
	if err := c.checkNothingBelow(ctx, claim); err != nil {
		_, undo := c.client.Delete(ctx, key)
		return false, errors.Join(err, undo)
	}
	return true, nil
}

func (c claimRequest) result() Claim {
	return Claim{Cluster: c.cluster, History: History{Epoch: c.mark.Epoch, Revision: c.floor}}
}

// ops returns the operations that write the mark, raise revisions to the floor, and delete the
// checkpoints, which belong to the previous history.
func (c claimRequest) ops(prefix string, found prefixState) ([]clientv3.Op, error) {
	value, err := c.mark.encode()
	if err != nil {
		return nil, err
	}
	ops := []clientv3.Op{clientv3.OpPut(keys.Store(prefix), value), clientv3.OpDelete(keys.Checkpoints(prefix), clientv3.WithPrefix())}
	if offset := c.floor - found.revision; c.floor > 0 && offset > found.offset {
		raise, err := revision.Put(prefix, offset)
		if err != nil {
			return nil, fmt.Errorf("raise the revisions of store %s: %w", c.mark.Store, err)
		}
		ops = append(ops, raise)
	}
	return ops, nil
}

// prefixState is the state of a prefix before the claim.
type prefixState struct {
	revision int64
	offset   int64
	// empty is set if there is no key.
	empty bool
	// mark is the stored mark, which may be replaced. It is empty if there is none.
	mark string
	// claimed is set if the mark is this Store's already.
	claimed *Claim
}

// ofMark returns the claim that the stored mark is, or why it is in the way of this one.
func (c claimRequest) ofMark(prefix, raw string) (*Claim, error) {
	cluster := FormatClusterID(c.cluster)
	is, err := parseMark([]byte(raw))
	switch {
	case err == nil && c.adopted != nil && c.adopted.History.Epoch == is.Epoch:
		return c.adopted, nil // a second epoch would make the recorded one wrong
	case c.adopt && raw == c.replaces:
		return nil, nil
	case err != nil:
		return nil, c.refused(ReasonInUse, "%s", unreadableMark(prefix, cluster, err))
	case c.adopt:
		return nil, c.refused(ReasonInUse, "the mark of the prefix %s of the etcd cluster %s was replaced at the same time, by one of the Store %q", prefix, cluster, is.Store)
	case is.Store != c.mark.Store || is.UID != c.mark.UID && is.Store != hostingv1alpha1.DefaultStoreName:
		return nil, c.refused(ReasonInUse, "%s", belongsToAnother(prefix, cluster, is))
	}
	return &Claim{c.cluster, History{Epoch: is.Epoch}}, nil
}

func unreadableMark(prefix, cluster string, err error) string {
	return fmt.Sprintf("the mark of the prefix %s of the etcd cluster %s cannot be read, it may be of another Store: %v", prefix, cluster, err)
}

func belongsToAnother(prefix, cluster string, mark *Mark) string {
	return fmt.Sprintf("the prefix %s of the etcd cluster %s belongs to another Store, %q with the UID %s", prefix, cluster, mark.Store, mark.UID)
}

// inspect reads the state of the prefix, and refuses one with foreign keys or another Store.
func (c *connection) inspect(ctx context.Context, claim claimRequest) (prefixState, error) {
	prefix := c.target.prefix
	one := []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithLimit(1)}
	reads := []clientv3.Op{
		clientv3.OpGet(keys.Root(prefix), one...),
		clientv3.OpGet(keys.Own(prefix), one...),
		clientv3.OpGet(keys.Revisions(prefix), clientv3.WithPrefix()),
		clientv3.OpGet(keys.Store(prefix)),
	}
	others := len(reads)
	for _, above := range keys.Above(prefix) {
		reads = append(reads, clientv3.OpGet(keys.Store(above), clientv3.WithKeysOnly()))
	}
	response, err := c.client.Txn(ctx).Then(reads...).Commit()
	if err != nil {
		return prefixState{}, fmt.Errorf("inspect the prefix %s for store %s: %w", prefix, claim.mark.Store, err)
	}
	cluster := FormatClusterID(response.Header.GetClusterId())
	if response.Header.GetClusterId() != claim.cluster {
		return prefixState{}, claim.refused(ReasonWrongCluster, "%s", wrongCluster("its endpoints lead", response.Header.GetClusterId(), claim.cluster))
	}
	found := prefixState{revision: response.Header.GetRevision()}
	for _, kv := range response.Responses[others-1].GetResponseRange().GetKvs() {
		found.mark = string(kv.Value)
		if found.claimed, err = claim.ofMark(prefix, found.mark); found.claimed != nil || err != nil {
			return found, err
		}
	}
	for _, above := range response.Responses[others:] {
		for _, kv := range above.GetResponseRange().GetKvs() {
			return prefixState{}, claim.refused(ReasonInUse, "the etcd cluster %s has another Store above the prefix %s, with the mark %s", cluster, prefix, kv.Key)
		}
	}
	all, own := response.Responses[0].GetResponseRange().GetKvs(), response.Responses[1].GetResponseRange().GetKvs()
	if len(all) > 0 && len(own) == 0 {
		return prefixState{}, claim.refused(ReasonNotEmpty, "the prefix %s of the etcd cluster %s has keys that are not annex's, such as %s",
			prefix, cluster, all[0].Key)
	}
	found.empty = len(all) == 0
	if found.offset, err = revision.HighestOf(response.Responses[2].GetResponseRange().GetKvs()); err != nil {
		return prefixState{}, fmt.Errorf("inspect the prefix %s for store %s: %w", prefix, claim.mark.Store, err)
	}
	if found.empty {
		return found, nil
	}
	return found, c.checkNothingBelow(ctx, claim)
}

// checkNothingBelow refuses a prefix that has another Store below it.
func (c *connection) checkNothingBelow(ctx context.Context, claim claimRequest) error {
	prefix := c.target.prefix
	end := clientv3.GetPrefixRangeEnd(keys.Root(prefix))
	for page, err := range etcdkv.Pages(ctx, c.client, keys.Root(prefix), end, clientv3.WithKeysOnly()) {
		if err != nil {
			return fmt.Errorf("look for other Stores below the prefix %s: %w", prefix, err)
		}
		for _, kv := range page.Kvs {
			if key := string(kv.Key); keys.IsStore(key) && key != keys.Store(prefix) {
				return claim.refused(ReasonInUse, "the etcd cluster %s has another Store below the prefix %s, with the mark %s",
					FormatClusterID(claim.cluster), prefix, key)
			}
		}
	}
	return nil
}

func (c claimRequest) refused(reason, message string, args ...any) *UnavailableError {
	return &UnavailableError{Store: c.mark.Store, Reason: reason, Message: fmt.Sprintf(message, args...)}
}

// claimDefault marks the prefix of the Store "default" and pins its cluster, without the API,
// which is kept there. The first cluster that answers is the one that the command line names.
func (s *Store) claimDefault(ctx context.Context, conn *connection, w desiredState, seen *Snapshot) desiredState {
	if w.pinned == 0 && seen.Cluster != 0 {
		w.pinned = seen.Cluster
	}
	if seen.readErr == nil && seen.rawMark == "" && seen.Cluster == w.pinned && s.state.fence == nil && w.known.Epoch == "" {
		s.markDefault(ctx, conn, seen)
	}
	if s.embedded && seen.Mark != nil && seen.Mark.Store != s.name && w.known.Epoch == "" {
		s.reclaimEmbedded(ctx, conn, seen)
	}
	if seen.Mark != nil && seen.Mark.Store == s.name && w.known.Epoch == "" {
		w.known.Epoch = seen.Mark.Epoch
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.desired.pinned, s.desired.known = w.pinned, w.known
	return w
}

// reclaimEmbedded replaces the mark of another Store in the etcd inside the process at the
// start. An earlier release allowed Stores to claim it, and no other annex can reach that etcd.
func (s *Store) reclaimEmbedded(ctx context.Context, conn *connection, seen *Snapshot) {
	of := seen.Mark
	if err := conn.replaceMark(ctx, seen, newMark(s.name, uuid.NewUUID())); err != nil {
		klog.FromContext(ctx).Error(err, "The mark of another Store in annex's own etcd was not replaced", "of", of.Store)
		return
	}
	klog.FromContext(ctx).Info("Replaced the mark of another Store in annex's own etcd", "of", of.Store, "uid", of.UID)
}

// replaceMark replaces the mark that was seen, unless it has changed, and reads the result.
func (c *connection) replaceMark(ctx context.Context, seen *Snapshot, mark Mark) error {
	value, err := mark.encode()
	if err != nil {
		return err
	}
	key := keys.Store(c.target.prefix)
	_, err = c.client.Txn(ctx).If(clientv3.Compare(clientv3.Value(key), "=", seen.rawMark)).Then(clientv3.OpPut(key, value)).Commit()
	if err == nil {
		c.readMark(ctx, seen)
	}
	return err
}

func (s *Store) markDefault(ctx context.Context, conn *connection, seen *Snapshot) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	_, err := conn.claim(ctx, claimRequest{mark: newMark(s.name, uuid.NewUUID()), cluster: seen.Cluster})
	switch {
	case errors.As(err, &seen.claimErr):
	case err != nil:
		// A full etcd, for example. The next probe tries again.
		klog.FromContext(ctx).V(1).Info("The prefix was not marked as annex's", "err", err)
	default:
		conn.readMark(ctx, seen)
	}
}

// upgradeMark adds epoch and format to a mark of an earlier release, and checks the result:
// another replica may have been first.
func (s *Store) upgradeMark(ctx context.Context, conn *connection, w desiredState, seen *Snapshot) *UnavailableError {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	if err := conn.replaceMark(ctx, seen, newMark(seen.Mark.Store, seen.Mark.UID)); err != nil {
		klog.FromContext(ctx).V(1).Info("The mark of an earlier release was not upgraded", "err", err)
		return nil // a full etcd is read with the old mark
	}
	if seen.readErr != nil {
		return s.unavailable(ReasonFailed, seen.readErr.Error())
	}
	return s.checkMark(w, seen)
}
