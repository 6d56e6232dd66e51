// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
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
	const query = "?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
	return func(_ context.Context, s *server) (round, error) {
		return repeat(1, duration, func(ctx context.Context, _ int) (response, error) {
			ctx, cancel := context.WithTimeout(ctx, requestLimit)
			defer cancel()
			watch, err := s.client.open(ctx, request{path: s.objects.collection() + query, accept: asJSON})
			if err != nil {
				return response{}, err
			}
			defer watch.Body.Close()
			var received response
			events := 0
			err = readEvents(watch.Body, func(event []byte) bool {
				received.bytes += int64(len(event)) + 1
				events++
				return events > count // the last one is the bookmark
			})
			return received, err
		}), nil
	}
}

// fanOut returns rounds in which each of several watchers gets events. Each has a connection of
// its own, as clients of different processes do. Objects are written to etcd, as another replica
// does, so the time of writes is not counted.
func fanOut(watchers, events int) func(context.Context, *server) (round, error) {
	return func(ctx context.Context, s *server) (round, error) {
		prefix := s.prefix + s.objects.group + "/" + s.objects.plural + "/"
		first, err := s.etcd.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithLimit(int64(events)))
		if err != nil {
			return round{}, fmt.Errorf("read objects from etcd: %w", err)
		}
		if len(first.Kvs) != events {
			return round{}, fmt.Errorf("%s has %d objects below %s, want %d", s.name, len(first.Kvs), prefix, events)
		}
		audience, err := s.openWatches(ctx, watchers, nil)
		if err != nil {
			return round{}, err
		}
		run := func(ctx context.Context) (work, error) {
			before := audience.events.Load()
			for i, stored := range first.Kvs {
				// The same value gives the object a new resource version.
				if _, err := s.etcd.Put(ctx, string(stored.Key), string(stored.Value)); err != nil {
					return work{}, fmt.Errorf("write an object to etcd: %w", err)
				}
				if err := audience.wait(ctx, before+int64(watchers*max(0, i+1-outstanding))); err != nil {
					return work{}, err
				}
			}
			err := audience.wait(ctx, before+int64(watchers*events))
			return work{units: int64(watchers * events), bytes: audience.bytes.Load()}, err
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
	list, _, err := s.client.list(ctx, s.objects.collection()+"?limit=1")
	if err != nil {
		return nil, err
	}
	watching, cancel := context.WithCancel(ctx)
	a := &audience{progress: make(chan struct{}, 1), failed: make(chan error, watchers), cancel: cancel}
	var opening errgroup.Group
	opening.SetLimit(8) // many TLS handshakes at once would time out
	for range watchers {
		opening.Go(func() error {
			own, err := newClient(s.config)
			if err != nil {
				return err
			}
			watch, err := own.open(watching, request{path: s.objects.collection() + "?watch=true&resourceVersion=" + list.ResourceVersion, accept: asJSON})
			if err != nil {
				return err
			}
			a.running.Go(func() {
				defer own.close()
				a.follow(watching, watch, observe)
			})
			return nil
		})
	}
	if err := opening.Wait(); err != nil {
		return nil, errors.Join(err, a.close())
	}
	return a, nil
}

// follow counts the events of a watch until the watches are closed.
func (a *audience) follow(ctx context.Context, watch *http.Response, observe func(event []byte)) {
	defer watch.Body.Close()
	err := readEvents(watch.Body, func(event []byte) bool {
		if observe != nil {
			observe(event)
		}
		a.bytes.Add(int64(len(event)) + 1)
		a.events.Add(1)
		select {
		case a.progress <- struct{}{}:
		default: // it was not taken yet
		}
		return false
	})
	if ctx.Err() == nil {
		a.failed <- err
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
func (a *audience) close() error {
	a.cancel()
	a.running.Wait()
	return nil
}
