// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"

	"github.com/annex-dev/annex/pkg/storage/etcd/etcdkv"
	"github.com/annex-dev/annex/pkg/storage/move"
)

// mover moves widgets as a controller does, which is killed at times.
type mover struct {
	*testing.T
	random   *rand.Rand
	replicas []*replica
	stores   []*fakeStore
	moves    int
	failures int
	// routed is done when all replicas know the last switch.
	routed *sync.WaitGroup
}

// errKilled is the error of a request that is performed or not when the process is killed.
var errKilled = errors.New("the process was killed")

// end returns an end of a move. After a number of requests all fail, some of them after they
// were performed.
func (m *mover) end(store *fakeStore, left *atomic.Int64) move.End {
	performed := m.random.IntN(2) == 0
	return move.End{
		Watcher: store.client.Watcher, Prefix: store.Prefix(), Transformer: identity.NewEncryptCheckTransformer(),
		KV: etcdkv.New(store.client.KV, func(ctx context.Context, op clientv3.Op) (clientv3.OpResponse, error) {
			switch left := left.Add(-1); {
			case left > 0:
				return store.client.Do(ctx, op)
			case left == 0 && performed:
				if _, err := store.client.Do(ctx, op); err != nil {
					return clientv3.OpResponse{}, err
				}
			}
			return clientv3.OpResponse{}, errKilled
		}),
	}
}

// move moves widgets to the other Store.
func (m *mover) move() {
	from, to := m.stores[m.moves%2], m.stores[(m.moves+1)%2]
	m.moves++
	uid := types.UID(fmt.Sprint("move ", m.moves))
	if m.random.IntN(4) == 0 {
		m.moveOrCancel(from, to, uid, true)
		uid += " again"
	}
	m.moveOrCancel(from, to, uid, false)
}

func (m *mover) moveOrCancel(from, to *fakeStore, uid types.UID, cancel bool) {
	placed := false
	for attempt := 0; !m.Failed(); attempt++ {
		var left atomic.Int64
		left.Store(1 << 40)
		if attempt < 3 && m.random.IntN(3) > 0 {
			left.Store(int64(1 + m.random.IntN(60)))
			m.failures++
		}
		mover := move.New(move.Config{Resource: widgets, UID: uid, HostedResource: "hosted", From: m.end(from, &left), To: m.end(to, &left)})
		var err error
		if cancel && attempt > 0 {
			if err = mover.Cancel(m.Context()); err == nil {
				return
			}
			if errors.Is(err, move.ErrSwitched) {
				m.Errorf("it was switched before it was canceled")
			}
		} else if placed, err = m.step(mover, to, placed, cancel); err == nil {
			if !cancel {
				return
			}
		}
		if err != nil && !errors.Is(err, errKilled) {
			m.Errorf("move: %v", err)
		}
	}
}

// step does what a controller does until the move is complete, or before the switch if it is to be
// canceled.
func (m *mover) step(mover *move.Mover, to *fakeStore, placed, cancel bool) (bool, error) {
	for {
		state, err := mover.State(m.Context())
		if err != nil {
			return placed, err
		}
		switch state {
		case move.Absent, move.Copying:
			err = mover.Copy(m.Context())
		case move.Following, move.Frozen, move.Closed:
			if cancel {
				return placed, nil
			}
			if err = m.followAndVerify(mover); err == nil || state != move.Following {
				err = mover.Switch(m.Context())
			}
		case move.Switched:
			if !placed {
				m.route(to)
				placed = true
			}
			err = mover.Clean(m.Context())
		case move.Cleaned:
			return placed, nil
		}
		if err != nil {
			return placed, err
		}
	}
}

// followAndVerify follows for a while.
func (m *mover) followAndVerify(mover *move.Mover) error {
	ctx, stop := context.WithCancel(m.Context())
	defer stop()
	caughtUp, followed := make(chan struct{}), make(chan error, 1)
	go func() { followed <- mover.Follow(ctx, func() { close(caughtUp) }) }()
	select {
	case <-caughtUp:
	case err := <-followed:
		return err
	}
	err := mover.Verify(m.Context())
	stop()
	return errors.Join(err, <-followed)
}

// route tells the replicas of the new Store, each later than the one before. Meanwhile the move
// goes on.
func (m *mover) route(to *fakeStore) {
	m.routed.Wait() // of the previous move
	for i, r := range m.replicas {
		delay := time.Duration(i*m.random.IntN(300)) * time.Millisecond
		m.routed.Go(func() {
			time.Sleep(delay) // the replica lags by it
			r.place(m.T, withUID("hosted", placedOn(to.name, "first")))
		})
	}
	if m.random.IntN(2) == 0 {
		m.routed.Wait()
	}
}
