// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"
	"encoding/json"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/types"

	"github.com/annex-dev/annex/pkg/storage/revision"
)

// record is what is saved about a move at an end. That at the source has only the first two fields.
type record struct {
	UID types.UID `json:"uid"`
	// Holder is the Mover or Importer that took over last.
	Holder string `json:"holder"`
	// Imported is set if the source is not a Store.
	Imported bool `json:"imported,omitempty"`
	// Phase is empty until the target is open.
	Phase State `json:"phase,omitempty"`
	// Applied is a revision of the source: for all keys up to the cursor, the target has what the
	// source had then.
	Applied int64 `json:"applied,omitempty"`
	// Cursor is the last key that was copied, below those of all objects.
	Cursor string `json:"cursor,omitempty"`
	// Copied is set once all keys were copied. There is no cursor then.
	Copied bool `json:"copied,omitempty"`
	// Objects and Bytes are those of Progress.
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

// stored is what an end has, read at one revision.
type stored struct {
	record
	// modRevision is that of the record, 0 if there is none.
	modRevision int64
	state       revision.State
	isFrozen    bool
	// frozenFor is the UID of the move that has frozen the objects.
	frozenFor types.UID
	// revision is etcd's.
	revision int64
}

// read reads what an end has. It may change at once, so the conditions of a transaction name what it
// relies on.
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
		s.isFrozen, s.frozenFor = true, types.UID(kv.Value)
	}
	return s, nil
}

// isAt returns the condition that a record was not written since.
func (s stored) isAt(e end) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(e.record), "=", s.modRevision)
}

// takeOver writes the record of an end anew, after which no other copier does.
func (e end) takeOver(ctx context.Context, c *copier) (stored, error) {
	s, err := e.read(ctx)
	if err != nil {
		return stored{}, err
	}
	if err := c.isHeld(s); err != nil {
		return stored{}, err
	}
	s.Holder = c.holder
	return s, e.write(ctx, &s)
}

// isHeld returns an error if the record of an end is not that of the move.
func (c *copier) isHeld(s stored) error {
	switch s.UID {
	case c.uid:
		return nil
	case "":
		return fmt.Errorf("%s: %w, or has not begun", c.resource, ErrEnded)
	}
	return refuse(c.resource, ReasonMoving, "the Migration with the UID %s moves it", s.UID)
}

// ErrEnded is the error of a move that was canceled or is complete.
var ErrEnded = fmt.Errorf("the move has ended")

// write writes the record of an end, with operations, on conditions.
func (e end) write(ctx context.Context, s *stored, ops ...clientv3.Op) error {
	r, err := e.KV.Txn(ctx).
		If(s.isAt(e), s.unchanged(e)).
		Then(append(ops, clientv3.OpPut(e.record, s.record.encode()))...).
		Commit()
	switch {
	case err != nil:
		return fmt.Errorf("write the move of %s: %w", e.resource, err)
	case !r.Succeeded:
		return fmt.Errorf("write the move of %s: %w", e.resource, ErrFenced)
	}
	s.modRevision, s.revision = r.Header.GetRevision(), r.Header.GetRevision()
	return nil
}

// unchanged returns the condition that the end was not opened or closed since.
func (s stored) unchanged(e end) clientv3.Cmp {
	return revision.Unchanged(e.Prefix, e.resource, s.state)
}

// copyState returns the State of a copy at the target.
func (r record) copyState() State {
	if r.Copied {
		return Following
	}
	return Copying
}
