// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package quarantine

import (
	"context"
	"slices"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// KV leaves values that cannot be read out of ranges. Who reads a single key gets
// its value whatever it is.
func (q *Quarantine) KV(inner clientv3.KV) clientv3.KV { return &kv{KV: inner, q: q} }

type kv struct {
	clientv3.KV
	q *Quarantine
}

// Get implements clientv3.KV.
func (k *kv) Get(ctx context.Context, key string, options ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	op := clientv3.OpGet(key, options...)
	if len(op.RangeBytes()) == 0 || op.IsCountOnly() || k.q.isEmpty() {
		return k.KV.Get(ctx, key, options...)
	}
	for {
		answer, err := k.KV.Get(ctx, key, options...)
		if err != nil {
			return nil, err
		}
		last := lastKey(answer.Kvs)
		answer.Count -= k.q.leaveOut(&answer.Kvs)
		if len(answer.Kvs) > 0 || !answer.More {
			return answer, nil
		}
		// A page of which nothing is left is not an answer where more are to come.
		key = last + "\x00"
		options = append(slices.Clip(options), clientv3.WithRev(answer.Header.Revision), clientv3.WithRange(string(op.RangeBytes())))
	}
}

// GetStream implements clientv3.KV.
func (k *kv) GetStream(ctx context.Context, key string, options ...clientv3.OpOption) (clientv3.GetStreamChan, error) {
	if clientv3.OpGet(key, options...).Limit() > 0 && !k.q.isEmpty() {
		return k.page(ctx, key, options)
	}
	parts, err := k.KV.GetStream(ctx, key, options...)
	if err != nil || k.q.isEmpty() {
		return parts, err
	}
	filtered := make(chan clientv3.RangeStreamResponse)
	go func() {
		defer close(filtered)
		var left int64
		for part := range parts {
			if part.RangeResponse != nil {
				left += k.q.leaveOut(&part.Kvs)
				// The last part has the header and counts all.
				if part.Header == nil && len(part.Kvs) == 0 {
					continue
				}
				if part.Header != nil {
					part.Count -= left
				}
			}
			select {
			case filtered <- part:
			case <-ctx.Done():
				return
			}
		}
	}()
	return filtered, nil
}

// page reads a page as a stream of one part. Get goes on where nothing is left of a
// page, which a stream that has ended cannot.
func (k *kv) page(ctx context.Context, key string, options []clientv3.OpOption) (clientv3.GetStreamChan, error) {
	answer, err := k.Get(ctx, key, options...)
	if err != nil {
		return nil, err
	}
	parts := make(chan clientv3.RangeStreamResponse, 1)
	parts <- clientv3.RangeStreamResponse{RangeResponse: (*etcdserverpb.RangeResponse)(answer)}
	close(parts)
	return parts, nil
}

func lastKey(kvs []*mvccpb.KeyValue) string {
	if len(kvs) == 0 {
		return ""
	}
	return string(kvs[len(kvs)-1].Key)
}

// leaveOut removes what cannot be read, and returns how many there were.
func (q *Quarantine) leaveOut(kvs *[]*mvccpb.KeyValue) int64 {
	before := len(*kvs)
	*kvs = slices.DeleteFunc(*kvs, q.hides)
	return int64(before - len(*kvs))
}

// Watcher has an object that could be read and then not be read, or the other way
// round, look as lists show it: absent meanwhile.
func (q *Quarantine) Watcher(inner clientv3.Watcher) clientv3.Watcher {
	return &watcher{Watcher: inner, q: q}
}

type watcher struct {
	clientv3.Watcher
	q *Quarantine
}

// Watch implements clientv3.Watcher.
func (w *watcher) Watch(ctx context.Context, key string, options ...clientv3.OpOption) clientv3.WatchChan {
	answers := w.Watcher.Watch(ctx, key, options...)
	filtered := make(chan clientv3.WatchResponse)
	go func() {
		defer close(filtered)
		for answer := range answers {
			w.q.complete(ctx, answer.Events)
			if len(answer.Events) > 0 && !w.q.isEmpty() {
				answer.Events = w.q.translate(answer.Events)
				if len(answer.Events) == 0 {
					continue // and not a notification of progress, which has none
				}
			}
			select {
			case filtered <- answer:
			case <-ctx.Done():
				return
			}
		}
	}()
	return filtered
}

// complete adds to events what was there before, where it is missing. etcd begins to send
// the events of a watch before it has noted that they are to come with it (recvLoop in
// its v3rpc), and who watches would fail at them. What was compacted stays missing.
func (q *Quarantine) complete(ctx context.Context, events []*clientv3.Event) {
	for _, event := range events {
		if event.IsCreate() || event.PrevKv != nil {
			continue
		}
		before, err := q.config.KV.Get(ctx, string(event.Kv.Key), clientv3.WithRev(event.Kv.ModRevision-1))
		if err == nil && len(before.Kvs) == 1 {
			event.PrevKv = before.Kvs[0]
		}
	}
}

// translate changes events of values that are left out: to watches the object goes
// when it becomes one, and is new when it is none any more.
func (q *Quarantine) translate(events []*clientv3.Event) []*clientv3.Event {
	translated := make([]*clientv3.Event, 0, len(events))
	for _, event := range events {
		wasHidden := event.PrevKv != nil && q.hides(event.PrevKv)
		if wasHidden {
			q.replaced(string(event.PrevKv.Key), event.PrevKv.ModRevision)
		}
		isHidden := event.Type == clientv3.EventTypePut && q.hides(event.Kv)
		switch {
		case isHidden && (wasHidden || event.IsCreate()), wasHidden && event.Type == clientv3.EventTypeDelete:
			continue
		case isHidden:
			event = &clientv3.Event{
				Type: clientv3.EventTypeDelete, PrevKv: event.PrevKv,
				Kv: &mvccpb.KeyValue{Key: event.Kv.Key, ModRevision: event.Kv.ModRevision},
			}
		case wasHidden:
			event = &clientv3.Event{Type: event.Type, Kv: &mvccpb.KeyValue{
				Key: event.Kv.Key, Value: event.Kv.Value, Version: event.Kv.Version, Lease: event.Kv.Lease,
				ModRevision: event.Kv.ModRevision, CreateRevision: event.Kv.ModRevision,
			}}
		}
		translated = append(translated, event)
	}
	return translated
}
