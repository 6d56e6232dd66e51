// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package stores

import (
	"context"
	"encoding/json"
	"fmt"
	"path"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/klog/v2"

	"github.com/annex-dev/annex/pkg/apis/hosting"
	"github.com/annex-dev/annex/pkg/storage/keys"
)

// Claim marks the prefix in the etcd cluster as this Store's and returns the ID of
// the cluster. Only then may data pass, and only there. It fails if the prefix, or
// one that it is below of, is another Store's, unless take is set; and if the cluster
// is not the one that was looked at last.
func (s *Store) Claim(ctx context.Context, uid types.UID, take bool) (cluster uint64, err error) {
	seen := s.Snapshot()
	conn := s.gate.Load().connection
	if conn == nil || seen.Cluster == 0 || !conn.enter() {
		return 0, s.unavailable(ReasonConnecting, "it was not reached yet")
	}
	defer conn.leave()
	defer s.lookSoon()
	found, err := conn.mark(ctx, Mark{Store: s.name, UID: uid}, take)
	if err != nil {
		return 0, err
	}
	if found != seen.Cluster {
		return 0, s.unavailable(ReasonWrongCluster, wrongCluster("its endpoints lead", found, seen.Cluster))
	}
	return found, nil
}

// Release removes the Store's mark, so that others may use the prefix.
func (s *Store) Release(ctx context.Context, uid types.UID) error {
	conn := s.gate.Load().connection
	if conn == nil || !conn.enter() {
		return s.unavailable(ReasonConnecting, "it was not reached")
	}
	defer conn.leave()
	value, err := json.Marshal(Mark{Store: s.name, UID: uid})
	if err != nil {
		return fmt.Errorf("encoding the mark of store %s: %w", s.name, err)
	}
	key := keys.Store(s.prefix)
	_, err = conn.client.Txn(ctx).If(clientv3.Compare(clientv3.Value(key), "=", string(value))).Then(clientv3.OpDelete(key)).Commit()
	if err != nil {
		return fmt.Errorf("removing the mark of store %s: %w", s.name, err)
	}
	return nil
}

// mark leaves a mark, or finds that it is there already.
func (c *connection) mark(ctx context.Context, m Mark, take bool) (cluster uint64, err error) {
	value, err := json.Marshal(m)
	if err != nil {
		return 0, fmt.Errorf("encoding the mark of store %s: %w", m.Store, err)
	}
	key := keys.Store(c.target.prefix)
	if take {
		// A new mark has a new revision: whoever had the old one writes no more.
		if _, err := c.client.Delete(ctx, key); err != nil {
			return 0, fmt.Errorf("removing the mark of another store for store %s: %w", m.Store, err)
		}
	}
	free := []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(key), "=", 0)}
	for above := path.Dir(path.Join("/", c.target.prefix)); above != "/"; above = path.Dir(above) {
		free = append(free, clientv3.Compare(clientv3.CreateRevision(keys.Store(above)), "=", 0))
	}
	response, err := c.client.Txn(ctx).If(free...).Then(clientv3.OpPut(key, string(value))).Else(clientv3.OpGet(key)).Commit()
	if err != nil {
		return 0, fmt.Errorf("marking the prefix %s as that of store %s: %w", c.target.prefix, m.Store, err)
	}
	if response.Succeeded {
		return response.Header.GetClusterId(), nil
	}
	there := response.Responses[0].GetResponseRange().GetKvs()
	if len(there) == 1 && string(there[0].Value) == string(value) {
		return response.Header.GetClusterId(), nil
	}
	return 0, &UnavailableError{Store: m.Store, Reason: ReasonInUse, Message: fmt.Sprintf(
		"the prefix %s of the etcd cluster %s, or one above it, belongs to another Store", c.target.prefix, FormatClusterID(response.Header.GetClusterId()))}
}

// claimDefault marks the prefix of the Store "default" and pins its cluster, without
// the API, which is kept there. The first cluster that is reached is the right one:
// the command line says so.
func (s *Store) claimDefault(ctx context.Context, conn *connection, w wanted, seen *Snapshot) wanted {
	if w.pinned == 0 && seen.Cluster != 0 {
		w.pinned = seen.Cluster
		s.mu.Lock()
		s.wanted.pinned = w.pinned
		s.mu.Unlock()
	}
	hadMark := s.gate.Load().fence != 0
	if seen.readErr != nil || seen.Mark != nil || seen.Cluster != w.pinned || hadMark {
		return w
	}
	asking, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	if _, err := conn.mark(asking, Mark{Store: hosting.DefaultStoreName, UID: uuid.NewUUID()}, false); err != nil {
		// An etcd that is full, say. It is tried again with the next look.
		klog.FromContext(ctx).V(1).Info("The prefix was not marked as annex's", "err", err)
		return w
	}
	conn.readMark(asking, seen)
	return w
}
