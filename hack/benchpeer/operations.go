// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"time"
)

// workers send reads of single objects and writes.
const workers = 4

// operations returns the reads, watches and writes of count objects. duration is the time of
// each round of requests.
func operations(count, size int, duration time.Duration) []operation {
	get := func(query string) func(context.Context, *server) (round, error) {
		return func(_ context.Context, s *server) (round, error) {
			numbers := [workers]int{}
			return repeat(workers, duration, func(ctx context.Context, worker int) (response, error) {
				numbers[worker] += workers
				return s.client.send(ctx, request{path: pathOf((numbers[worker]+worker)%count) + query, accept: asJSON})
			}), nil
		}
	}
	list := func(r request) func(context.Context, *server) (round, error) {
		if r.path == "" {
			r.path = collection
		}
		if r.accept == "" {
			r.accept = asJSON
		}
		return func(ctx context.Context, s *server) (round, error) {
			// The first list after other requests does work of theirs, such as garbage collection.
			_, err := s.client.send(ctx, r)
			return repeat(1, duration, func(ctx context.Context, _ int) (response, error) { return s.client.send(ctx, r) }), err
		}
	}
	all := []operation{
		{name: "GET", target: 2, onCPU: true, prepare: get("")},
		{name: "GET, resourceVersion=0", prepare: get("?resourceVersion=0")},
		{name: "LIST all", target: 15, prepare: list(request{})},
		{name: "LIST all, resourceVersion=0", target: 15, prepare: list(request{path: collection + "?resourceVersion=0"})},
		{name: "LIST all, gzip", target: 8, tolerance: 0.5, prepare: list(request{encoding: "gzip"})},
		{name: "LIST page of 500", target: 10, prepare: list(request{path: collection + "?limit=500"})},
		{name: "LIST one of 40 namespaces", target: 10, prepare: list(request{path: parentOf(0)})},
		{name: "LIST 1 % by label", target: 10, prepare: list(request{path: collection + "?labelSelector=part%3Dpart-1"})},
		{name: "LIST 1 % by field", prepare: list(request{path: collection + "?fieldSelector=spec.owner%3Downer-1"})},
		{name: "metadata of all, protobuf", target: 3, prepare: list(request{accept: asMetadata})},
		{name: "table of 500", target: 1, prepare: list(request{path: collection + "?limit=500", accept: asTable})},
		{name: "table of all", target: 1, prepare: list(request{accept: asTable})},
		{name: "WATCH initial events of all", target: 12, prepare: initialEvents(count, duration)},
		{name: "WATCH event to 50 watchers", per: "delivery", target: 3, onCPU: true, prepare: fanOut(50, min(1000, count))},
		{name: "WATCH event to 1,000 watchers", per: "delivery", target: 10, onCPU: true, prepare: fanOut(1000, min(50, count))},
		{name: "update (PUT)", target: 2, prepare: update(count, duration, "", "revision")},
		{name: "status update (PUT)", prepare: update(count, duration, "/status", "observed")},
		{name: "server-side apply", prepare: apply(count, size, duration)},
	}
	for i := range all {
		if all[i].per == "" {
			all[i].per = "request"
		}
		if all[i].tolerance == 0 {
			all[i].tolerance = 0.03
		}
	}
	return all
}

// spread is the number of objects that each worker writes in turn: controllers seldom write an
// object twice at once.
const spread = 16

// update returns rounds of updates of whole objects, which a worker reads before and keeps from
// then on, like a controller.
func update(count int, duration time.Duration, subresource, field string) func(context.Context, *server) (round, error) {
	return func(ctx context.Context, s *server) (round, error) {
		var objects [workers][][]byte
		for n := range min(workers*spread, count) {
			received, err := s.client.send(ctx, request{path: pathOf(n), accept: asJSON, keep: true})
			if err != nil {
				return round{}, err
			}
			objects[n%workers] = append(objects[n%workers], withStatus(received.body))
		}
		next := [workers]int{}
		return repeat(workers, duration, func(ctx context.Context, worker int) (response, error) {
			own := objects[worker]
			i := next[worker] % len(own)
			next[worker]++
			if err := stamp(own[i], field, time.Now().UnixNano()); err != nil {
				return response{}, err
			}
			received, err := s.client.send(ctx, request{
				method: "PUT", path: pathOf(i*workers+worker) + subresource, contentType: asJSON, body: own[i], keep: true,
			})
			own[i] = received.body
			return received, err
		}), nil
	}
}

// apply returns rounds of server-side applies of whole manifests.
func apply(count, size int, duration time.Duration) func(context.Context, *server) (round, error) {
	return func(ctx context.Context, s *server) (round, error) {
		var manifests [workers][][]byte
		for n := range min(workers*spread, count) {
			manifest, err := newObject(n, size)
			if err != nil {
				return round{}, err
			}
			manifests[n%workers] = append(manifests[n%workers], manifest)
		}
		next := [workers]int{}
		return repeat(workers, duration, func(ctx context.Context, worker int) (response, error) {
			own := manifests[worker]
			i := next[worker] % len(own)
			next[worker]++
			if err := stamp(own[i], "revision", time.Now().UnixNano()); err != nil {
				return response{}, err
			}
			return s.client.send(ctx, request{
				method: "PATCH", path: pathOf(i*workers+worker) + "?fieldManager=applier&force=true",
				contentType: "application/apply-patch+yaml", body: own[i],
			})
		}), nil
	}
}

// stamp sets a field of the JSON of an object that has revisionDigits digits. Nothing is decoded,
// because the client would need more CPU than the server.
func stamp(object []byte, field string, value int64) error {
	before := []byte(`"` + field + `":"`)
	start := bytes.Index(object, before)
	if start < 0 || len(object) < start+len(before)+revisionDigits {
		return fmt.Errorf("find the field %s in %.200s: it is not there", field, object)
	}
	copy(object[start+len(before):], fmt.Sprintf("%0*d", revisionDigits, value))
	return nil
}

// withStatus returns the JSON of an object with a status.
func withStatus(object []byte) []byte {
	if bytes.Contains(object, []byte(`,"status":{"conditions":`)) {
		return object
	}
	return append(bytes.TrimSuffix(object, []byte("}")), `,"status":{"conditions":[`+
		`{"type":"ready","status":"True","reason":"Reconciled","message":"all rules are in effect"}],`+
		`"observed":"`+strings.Repeat("0", revisionDigits)+`","phase":"Ready"}}`...)
}
