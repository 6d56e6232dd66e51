// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package revision

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
)

// FuzzView makes the same random requests of both twins and wants the same answers.
// All inputs are one history.
func FuzzView(f *testing.F) {
	for seed := range uint64(25) {
		f.Add(seed)
	}
	plain, view := twins(f)
	f.Fuzz(func(t *testing.T, seed uint64) {
		p := &player{random: rand.New(rand.NewPCG(seed, 1)), plain: plain, view: view}
		for range 40 {
			p.play(t)
			if t.Failed() {
				return
			}
		}
	})
}

// player makes up requests around the revision that etcd is at.
type player struct {
	random      *rand.Rand
	plain, view *kubernetes.Client
	revision    int64
}

func (p *player) play(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	switch n := p.random.IntN(100); {
	case n < 25:
		op := p.op(0)
		p.both(t, fmt.Sprintf("Do %+v", op), func(client *kubernetes.Client) (proto.Message, error) {
			r, err := client.Do(ctx, op)
			return message(r), err
		})
	case n < 45:
		compares, then, otherwise := p.compares(), p.ops(1), p.ops(1)
		p.both(t, fmt.Sprintf("if %v then %+v else %+v", compares, then, otherwise), func(client *kubernetes.Client) (proto.Message, error) {
			r, err := client.Txn(ctx).If(compares...).Then(then...).Else(otherwise...).Commit()
			return (*etcdserverpb.TxnResponse)(r), err
		})
	case n < 60:
		key, options := p.key(), p.readOptions(true)
		p.both(t, fmt.Sprintf("Get %s %+v", key, clientv3.OpGet(key, options...)), func(client *kubernetes.Client) (proto.Message, error) {
			r, err := client.KV.Get(ctx, key, options...)
			return (*etcdserverpb.RangeResponse)(r), err
		})
	case n < 70:
		key, options := p.key(), p.readOptions(false)
		p.both(t, fmt.Sprintf("GetStream %s %+v", key, clientv3.OpGet(key, options...)), func(client *kubernetes.Client) (proto.Message, error) {
			stream, err := client.GetStream(ctx, key, options...)
			if err != nil {
				return (*etcdserverpb.RangeResponse)(nil), err
			}
			r, err := clientv3.GetStreamToGetResponse(stream)
			return (*etcdserverpb.RangeResponse)(r), err
		})
	case n < 80:
		p.write(t)
	case n < 83:
		revision := p.around()
		p.both(t, fmt.Sprintf("Compact %d", revision), func(client *kubernetes.Client) (proto.Message, error) {
			r, err := client.Compact(ctx, revision)
			return (*etcdserverpb.CompactionResponse)(r), err
		})
	case n < 90:
		p.optimistic(t)
	default:
		p.watch(t)
	}
}

func (p *player) write(t *testing.T) {
	t.Helper()
	key, value := p.key(), p.value()
	if p.random.IntN(2) == 0 {
		p.both(t, "Put "+key, func(client *kubernetes.Client) (proto.Message, error) {
			r, err := client.Put(t.Context(), key, value, clientv3.WithPrevKV())
			return (*etcdserverpb.PutResponse)(r), err
		})
		return
	}
	p.both(t, "Delete "+key, func(client *kubernetes.Client) (proto.Message, error) {
		r, err := client.Delete(t.Context(), key, clientv3.WithPrevKV(), clientv3.WithPrefix())
		return (*etcdserverpb.DeleteRangeResponse)(r), err
	})
}

// optimistic puts a key on the condition that it has a revision, as the API server does.
func (p *player) optimistic(t *testing.T) {
	t.Helper()
	key, value, revision := p.key(), p.value(), p.around()
	if found, err := p.plain.KV.Get(t.Context(), key); err == nil && len(found.Kvs) == 1 && p.random.IntN(2) == 0 {
		revision = found.Kvs[0].ModRevision
	}
	p.both(t, fmt.Sprintf("OptimisticPut %s at %d", key, revision), func(client *kubernetes.Client) (proto.Message, error) {
		r, err := client.Kubernetes.OptimisticPut(t.Context(), key, []byte(value), revision, kubernetes.PutOptions{GetOnFailure: true})
		return &etcdserverpb.PutResponse{Header: &etcdserverpb.ResponseHeader{Revision: r.Revision}, PrevKv: r.KV}, err
	})
}

// watch reads both from a revision to a write made for it, and compares what was
// sent but not how it was parted.
func (p *player) watch(t *testing.T) {
	t.Helper()
	from := p.around()
	if from > p.revision+1 {
		from = p.revision + 1
	}
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	options := []clientv3.OpOption{clientv3.WithRev(from), clientv3.WithPrefix(), clientv3.WithPrevKV()}
	if p.random.IntN(2) == 0 {
		options = append(options, clientv3.WithCreatedNotify())
	}
	plain, view := p.plain.Watch(ctx, "k", options...), p.view.Watch(ctx, "k", options...)
	if from == 0 {
		// Whether a watch of the present sees the end depends on which is first.
		plain, view = p.plain.Watch(ctx, "k", append(options, clientv3.WithRev(p.revision+1))...), p.view.Watch(ctx, "k", append(options, clientv3.WithRev(p.revision+1))...)
	}
	end := p.value() + "end"
	p.both(t, "the end of a watch", func(client *kubernetes.Client) (proto.Message, error) {
		r, err := client.Put(ctx, "k/end", end)
		return (*etcdserverpb.PutResponse)(r), err
	})
	want, got := collect(plain, end), collect(view, end)
	if got.CompactRevision == offsetOfTwins+1 {
		// A view does not request the revision to which etcd was compacted since.
		want.CompactRevision = min(want.CompactRevision, got.CompactRevision)
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("a watch from %d (-plain +view):\n%s", from, diff)
	}
}

type watched struct {
	Created, Canceled bool
	CompactRevision   int64
	Err               string
	Events            []*clientv3.Event
}

func collect(in clientv3.WatchChan, end string) watched {
	var all watched
	for r := range in {
		all.Created = all.Created || r.Created
		all.Canceled = all.Canceled || r.Canceled
		all.CompactRevision = r.CompactRevision
		all.Err = fmt.Sprint(r.Err())
		all.Events = append(all.Events, r.Events...)
		if n := len(r.Events); n > 0 && string(r.Events[n-1].Kv.Value) == end {
			return all
		}
	}
	return all
}

// both compares the answers of the twins, except for their names.
func (p *player) both(t *testing.T, what string, ask func(*kubernetes.Client) (proto.Message, error)) {
	t.Helper()
	want, wantErr := ask(p.plain)
	got, gotErr := ask(p.view)
	if fmt.Sprint(wantErr) != fmt.Sprint(gotErr) {
		t.Fatalf("%s: a plain client gets the error %v, the view %v", what, wantErr, gotErr)
	}
	if wantErr != nil {
		return
	}
	diff := cmp.Diff(want, got, protocmp.Transform(), protocmp.IgnoreFields(&etcdserverpb.ResponseHeader{}, "cluster_id", "member_id", "raft_term"))
	if diff != "" {
		t.Fatalf("%s (-plain +view):\n%s", what, diff)
	}
	if answer, ok := want.(interface {
		GetHeader() *etcdserverpb.ResponseHeader
	}); ok {
		p.revision = max(p.revision, answer.GetHeader().GetRevision())
	}
}

func message(r clientv3.OpResponse) proto.Message {
	switch {
	case r.Get() != nil:
		return (*etcdserverpb.RangeResponse)(r.Get())
	case r.Put() != nil:
		return (*etcdserverpb.PutResponse)(r.Put())
	case r.Del() != nil:
		return (*etcdserverpb.DeleteRangeResponse)(r.Del())
	default:
		return (*etcdserverpb.TxnResponse)(r.Txn())
	}
}

func (p *player) key() string { return fmt.Sprintf("k/%d", p.random.IntN(6)) }

func (p *player) value() string { return fmt.Sprint(p.random.IntN(1000)) }

// around is a revision that may be any of the cases: none, below the offset and at
// it, compacted, of the past, and of the future.
func (p *player) around() int64 {
	switch p.random.IntN(8) {
	case 0:
		return 0
	case 1:
		return -1 - p.random.Int64N(3)
	case 2:
		return 1 + p.random.Int64N(offsetOfTwins)
	case 3:
		return offsetOfTwins - 1 + p.random.Int64N(4)
	case 4:
		return p.revision + p.random.Int64N(4)
	default:
		return max(1, p.revision-p.random.Int64N(20))
	}
}

func (p *player) readOptions(filtered bool) []clientv3.OpOption {
	var options []clientv3.OpOption
	maybe := func(option clientv3.OpOption) {
		if p.random.IntN(4) == 0 {
			options = append(options, option)
		}
	}
	if p.random.IntN(2) == 0 {
		options = append(options, clientv3.WithRange("l"))
	}
	maybe(clientv3.WithRev(p.around()))
	maybe(clientv3.WithLimit(1 + p.random.Int64N(4)))
	maybe(clientv3.WithKeysOnly())
	maybe(clientv3.WithSerializable())
	if filtered {
		maybe(clientv3.WithCountOnly())
		maybe(clientv3.WithMinModRev(p.around()))
		maybe(clientv3.WithMaxModRev(p.around()))
		maybe(clientv3.WithMinCreateRev(p.around()))
		maybe(clientv3.WithMaxCreateRev(p.around()))
		maybe(clientv3.WithSort(clientv3.SortByModRevision, clientv3.SortDescend))
	}
	return options
}

func (p *player) ops(depth int) []clientv3.Op {
	// etcd refuses two writes of one key in a transaction.
	var ops []clientv3.Op
	written := false
	for range p.random.IntN(4) {
		op := p.op(depth)
		writes := op.IsPut() || op.IsDelete() || op.IsTxn()
		if writes && written {
			continue
		}
		written = written || writes
		ops = append(ops, op)
	}
	return ops
}

func (p *player) op(depth int) clientv3.Op {
	switch p.random.IntN(6) {
	case 0:
		return clientv3.OpPut(p.key(), p.value(), clientv3.WithPrevKV())
	case 1:
		return clientv3.OpDelete(p.key(), clientv3.WithPrevKV())
	case 2:
		if depth < 3 {
			return clientv3.OpTxn(p.compares(), p.ops(depth+1), p.ops(depth+1))
		}
	}
	return clientv3.OpGet(p.key(), p.readOptions(true)...)
}

func (p *player) compares() []clientv3.Cmp {
	var compares []clientv3.Cmp
	for range p.random.IntN(3) {
		target := []func(string) clientv3.Cmp{clientv3.ModRevision, clientv3.CreateRevision, clientv3.Version}[p.random.IntN(3)]
		how := strings.Fields("= != > <")[p.random.IntN(4)]
		compare := clientv3.Compare(target(p.key()), how, p.around())
		if p.random.IntN(4) == 0 {
			compare = compare.WithRange("l")
		}
		compares = append(compares, compare)
	}
	return compares
}
