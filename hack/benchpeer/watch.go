// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// outstanding is the number of events that may be on their way. More than a burst of a
	// busy resource would end watches, because servers do not wait for slow watchers.
	outstanding = 8
	// deliveryLimit bounds the time without any delivery.
	deliveryLimit = 30 * time.Second
)

// initialEvents returns rounds of watches that begin with all objects, as informers' do.
func initialEvents(count int, duration time.Duration) func(context.Context, *server) (round, error) {
	const path = collection + "?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
	return func(_ context.Context, s *server) (round, error) {
		return repeat(1, duration, func(ctx context.Context, _ int) (response, error) {
			ctx, cancel := context.WithTimeout(ctx, requestLimit)
			defer cancel()
			var received response
			events := 0
			err := s.client.watch(ctx, path, func() {}, func(read []byte, n int) bool {
				received.bytes += int64(len(read))
				events += n
				return events > count // the last one is the bookmark
			})
			if err == nil && events != count+1 {
				err = fmt.Errorf("a watch began with %d events, want %d", events, count+1)
			}
			return received, err
		}), nil
	}
}

// fanOut returns rounds in which each of several watchers gets events. Each has a connection of
// its own, as clients of different processes do. Objects are written to etcd, as another replica
// does, so the time of writes is not counted.
func fanOut(watchers, events int) func(context.Context, *server) (round, error) {
	return func(ctx context.Context, s *server) (round, error) {
		first, err := s.etcd.client.Get(ctx, s.objects, clientv3.WithPrefix(), clientv3.WithLimit(int64(events)))
		if err != nil {
			return round{}, fmt.Errorf("read objects from etcd: %w", err)
		}
		if len(first.Kvs) != events {
			return round{}, fmt.Errorf("%s has %d objects below %s, want %d", s.name, len(first.Kvs), s.objects, events)
		}
		audience, err := s.openWatches(ctx, watchers, nil)
		if err != nil {
			return round{}, err
		}
		run := func(ctx context.Context) (int64, int64, error) {
			for i, stored := range first.Kvs {
				// The same value gives the object a new resource version.
				if _, err := s.etcd.client.Put(ctx, string(stored.Key), string(stored.Value)); err != nil {
					return 0, 0, fmt.Errorf("write an object to etcd: %w", err)
				}
				if err := audience.wait(ctx, int64(watchers*max(0, i+1-outstanding))); err != nil {
					return 0, 0, err
				}
			}
			err := audience.wait(ctx, int64(watchers*events))
			return int64(watchers * events), audience.bytes.Load(), err
		}
		return round{run: run, close: audience.close}, nil
	}
}

// audience is a number of open watches.
type audience struct {
	events, bytes atomic.Int64
	progress      chan struct{}
	failed        chan error
	cancel        context.CancelFunc
	running       sync.WaitGroup
}

// openWatches opens watches of all objects from now on, each on a connection of its own. Events
// are given to observe, if that is not nil.
func (s *server) openWatches(ctx context.Context, watchers int, observe func(event []byte)) (*audience, error) {
	list, err := s.client.listMeta(ctx)
	if err != nil {
		return nil, err
	}
	watching, cancel := context.WithCancel(ctx)
	a := &audience{progress: make(chan struct{}, 1), failed: make(chan error, watchers), cancel: cancel}
	opened := make(chan struct{}, watchers)
	// Many TLS handshakes at once would time out.
	starting := make(chan struct{}, 8)
	for range watchers {
		a.running.Go(func() {
			starting <- struct{}{}
			started := sync.OnceFunc(func() { <-starting; opened <- struct{}{} })
			defer started()
			own, err := newClient(s.config)
			if err != nil {
				a.failed <- err
				return
			}
			defer own.close()
			err = own.watch(watching, collection+"?watch=true&resourceVersion="+list.Metadata.ResourceVersion, started, a.receiver(observe))
			if watching.Err() == nil {
				a.failed <- errors.Join(errors.New("a watch ended"), err)
			}
		})
	}
	for range watchers {
		<-opened
	}
	select {
	case err := <-a.failed:
		a.close()
		return nil, err
	default:
		return a, nil
	}
}

// receiver counts what one watcher reads.
func (a *audience) receiver(observe func(event []byte)) func(read []byte, events int) bool {
	var rest []byte
	return func(read []byte, events int) bool {
		a.bytes.Add(int64(len(read)))
		if events > 0 {
			a.events.Add(int64(events))
			select {
			case a.progress <- struct{}{}:
			default: // it was not taken yet
			}
		}
		if observe == nil {
			return false
		}
		rest = append(rest, read...)
		for {
			event, after, whole := bytes.Cut(rest, []byte("\n"))
			if !whole {
				rest = append(rest[:0], event...)
				return false
			}
			observe(event)
			rest = after
		}
	}
}

// wait waits until a number of events has been delivered.
func (a *audience) wait(ctx context.Context, want int64) error {
	limit := time.NewTimer(deliveryLimit)
	defer limit.Stop()
	for a.events.Load() < want {
		select {
		case <-a.progress:
			limit.Reset(deliveryLimit)
		case err := <-a.failed:
			return fmt.Errorf("after %d of %d deliveries: %w", a.events.Load(), want, err)
		case <-limit.C:
			return fmt.Errorf("nothing was delivered for %s, after %d of %d deliveries", deliveryLimit, a.events.Load(), want)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// close ends the watches.
func (a *audience) close() {
	a.cancel()
	a.running.Wait()
}
