// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"
	"encoding/json"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"

	"github.com/annex-dev/annex/pkg/storage/layer/revision"
)

// deletedAtOnce is the number of objects that a transaction deletes.
const deletedAtOnce = 500

// record is the saved state of a move at an end. At the source it has only the first two fields.
type record struct {
	UID types.UID `json:"uid"`
	// Holder is the Mover, Importer or Exporter that took over last.
	Holder string `json:"holder"`
	// Imported is set if the source is not a Store.
	Imported bool `json:"imported,omitempty"`
	// Phase is empty until the target is open.
	Phase State `json:"phase,omitempty"`
	// Began is the revision of the target when the move began: what was copied is newer.
	Began int64 `json:"began,omitempty"`
	// Applied is a revision of the source: for all keys up to the cursor, the target has what the
	// source had then.
	Applied int64 `json:"applied,omitempty"`
	// Cursor is the last Object.Key that was copied.
	Cursor string `json:"cursor,omitempty"`
	// Copied is set once all keys were copied. There is no cursor then.
	Copied bool `json:"copied,omitempty"`
	// Objects and Bytes are Progress.Copied and Progress.Bytes.
	Objects int64 `json:"objects,omitempty"`
	Bytes   int64 `json:"bytes,omitempty"`
}

func (r record) encode() string {
	text, err := json.Marshal(r)
	if err != nil {
		panic(err) // it has only strings and numbers
	}
	return string(text)
}

// hasEnded reports whether another move may begin.
func (r record) hasEnded() bool {
	// An import has nothing left to do after the switch.
	return r.UID == "" || r.Phase == Cleaned || r.Phase == Adopted || r.Imported && r.Phase == Switched
}

// checkHeld returns an error unless the move of c holds the record.
func (r record) checkHeld(c *copier) error {
	switch r.UID {
	case c.uid:
		return nil
	case "":
		return fmt.Errorf("%s: %w, or has not begun", c.resource, ErrEnded)
	}
	return refuse(c.resource, ReasonMoving, "the Migration with the UID %s moves it", r.UID)
}

// stored has the record and the state of an end, read at one revision.
type stored struct {
	record
	// modRevision belongs to the record. It is 0 without one.
	modRevision int64
	state       revision.State
	// frozenAt is the revision of the freeze, 0 without one, and frozenFor its value.
	frozenAt  int64
	frozenFor types.UID
	// revision is etcd's.
	revision int64
}

// read reads what an end has. It may change at once, so transactions are conditional on it.
func (e end) read(ctx context.Context) (stored, error) {
	state, err := revision.LoadState(ctx, e.KV, e.Prefix, e.resource)
	if err != nil {
		return stored{}, err
	}
	r, err := e.KV.Txn(ctx).Then(clientv3.OpGet(e.record), clientv3.OpGet(e.frozen)).Commit()
	if err != nil {
		return stored{}, fmt.Errorf("read the move of %s: %w", e.resource, err)
	}
	s := stored{state: state, revision: r.Header.GetRevision()}
	for _, kv := range r.Responses[0].GetResponseRange().GetKvs() {
		s.modRevision = kv.ModRevision
		if err := json.Unmarshal(kv.Value, &s.record); err != nil {
			return stored{}, fmt.Errorf("read %s: %w", kv.Key, err)
		}
	}
	for _, kv := range r.Responses[1].GetResponseRange().GetKvs() {
		s.frozenAt, s.frozenFor = kv.ModRevision, types.UID(kv.Value)
	}
	return s, nil
}

// transact performs operations on the condition that neither the record of an end has changed nor whether it is
// open, and on others. It returns ErrFenced if one does not hold.
func (e end) transact(ctx context.Context, s stored, others []clientv3.Cmp, ops ...clientv3.Op) (*clientv3.TxnResponse, error) {
	held := []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(e.record), "=", s.modRevision), e.unchanged(s)}
	r, err := e.KV.Txn(ctx).If(append(held, others...)...).Then(ops...).Commit()
	if err == nil && !r.Succeeded {
		err = ErrFenced
	}
	if err != nil {
		return nil, fmt.Errorf("change the move of %s: %w", e.resource, err)
	}
	return r, nil
}

// do is transact without more conditions. A full etcd takes deletions if there is nothing else.
func (e end) do(ctx context.Context, s stored, ops ...clientv3.Op) error {
	_, err := e.transact(ctx, s, nil, ops...)
	return err
}

// write writes the record of an end, with operations.
func (e end) write(ctx context.Context, s *stored, ops ...clientv3.Op) error {
	r, err := e.transact(ctx, *s, nil, append(ops, clientv3.OpPut(e.record, s.encode()))...)
	if err == nil {
		s.modRevision, s.revision = r.Header.GetRevision(), r.Header.GetRevision()
	}
	return err
}

// fence writes the record of an end anew, after which no other copier can.
func (e end) fence(ctx context.Context, c *copier) (stored, error) {
	s, err := e.read(ctx)
	if err == nil {
		err = s.checkHeld(c)
	}
	if err != nil {
		return stored{}, err
	}
	s.Holder = c.holder
	return s, e.write(ctx, &s)
}

// unchanged returns the condition that the end was not opened or closed since.
func (e end) unchanged(s stored) clientv3.Cmp {
	return revision.Unchanged(e.Prefix, e.resource, s.state)
}

func (e end) isFrozenAt(revision int64) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(e.frozen), "=", revision)
}

// checkDeparture returns a *Refusal if a move cannot take the resource out of the Store. frozenFor is the value of its own
// freeze.
func (e end) checkDeparture(s stored, uid, frozenFor types.UID) error {
	switch {
	case s.UID != "" && s.UID != uid && s.Phase != Cleaned:
		return refuse(e.resource, ReasonMoving, "the Migration with the UID %s moves it out of the Store", s.UID)
	case s.frozenAt > 0 && s.frozenFor != frozenFor:
		return refuse(e.resource, ReasonFrozen, "its objects are frozen for another purpose, such as its return to the main cluster")
	case s.state.Closed && s.UID != uid:
		return refuse(e.resource, ReasonClosed, "the Store does not serve it, because it was moved out of it")
	}
	return nil
}

// close closes the resource by an operation, if it is frozen since a revision. The tombstone ends its watches
// (pkg/storage/layer/freeze).
func (e end) close(ctx context.Context, s stored, frozenAt int64, ops ...clientv3.Op) error {
	_, err := e.transact(ctx, s, []clientv3.Cmp{e.isFrozenAt(frozenAt)}, append(ops, clientv3.OpPut(e.tombstone, ""))...)
	return err
}

// removeTombstone returns the revision at which there is none.
func (e end) removeTombstone(ctx context.Context) (int64, error) {
	r, err := e.KV.Delete(ctx, e.tombstone)
	if err != nil {
		return 0, fmt.Errorf("remove the tombstone of %s: %w", e.resource, err)
	}
	return r.Header.GetRevision(), nil
}

// giveUp ends a move out of a Store, which takes writes again, together with operations on the record. Once it is
// closed, giveUp returns ErrSwitched.
func (e end) giveUp(ctx context.Context, s stored, ops ...clientv3.Op) error {
	if s.state.Closed {
		return ErrSwitched
	}
	return e.do(ctx, s, append(ops, clientv3.OpDelete(e.frozen))...)
}

// clear deletes all objects of an end, unless its record changes.
func (e end) clear(ctx context.Context, s stored, limit *rate.Limiter) error {
	for {
		page, err := e.KV.Get(ctx, e.objects, clientv3.WithRange(e.boundary), clientv3.WithKeysOnly(), clientv3.WithLimit(deletedAtOnce))
		if err != nil {
			return fmt.Errorf("read the keys of %s: %w", e.resource, err)
		}
		if len(page.Kvs) == 0 {
			return nil
		}
		if err := atRate(ctx, limit, len(page.Kvs)); err != nil {
			return err
		}
		last := string(page.Kvs[len(page.Kvs)-1].Key)
		if err := e.do(ctx, s, clientv3.OpDelete(e.objects, clientv3.WithRange(last+"\x00"))); err != nil {
			return err
		}
	}
}
