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

const (
	// workers send reads of single objects and writes.
	workers = 4
	// spread is the number of objects that each worker writes in turn: controllers seldom write
	// an object twice at once.
	spread = 16
)

// operations returns the reads, watches and writes of count objects. duration is the time of
// each round of requests.
func operations(count, size int, duration time.Duration) []operation {
	get := func(query string) func(context.Context, *server) (round, error) {
		return func(_ context.Context, s *server) (round, error) {
			numbers := [workers]int{}
			return repeat(workers, duration, func(ctx context.Context, worker int) (response, error) {
				numbers[worker] += workers
				return s.client.send(ctx, request{path: s.objects.pathOf((numbers[worker]+worker)%count) + query, accept: asJSON})
			}), nil
		}
	}
	everywhere, inNamespace := resource.collection, func(r resource) string { return r.parentOf(0) }
	list := func(query string) func(context.Context, *server) (round, error) {
		return listing(everywhere, request{path: query, accept: asJSON}, duration)
	}
	all := []operation{
		{name: "GET", target: 2, onCPU: true, prepare: get("")},
		{name: "GET, resourceVersion=0", prepare: get("?resourceVersion=0")},
		{name: "LIST all", target: 15, prepare: list("")},
		{name: "LIST all, resourceVersion=0", target: 15, prepare: list("?resourceVersion=0")},
		{name: "LIST all, gzip", target: 8, tolerance: 0.5, prepare: listing(everywhere, request{accept: asJSON, encoding: "gzip"}, duration)},
		{name: "LIST page of 500", target: 10, prepare: list("?limit=500")},
		{name: "LIST one of 40 namespaces", target: 10, prepare: listing(inNamespace, request{accept: asJSON}, duration)},
		{name: "LIST 1 % by label", target: 10, prepare: list("?labelSelector=part%3Dpart-1")},
		{name: "LIST 1 % by field", prepare: list("?fieldSelector=spec.owner%3Downer-1")},
		{name: "metadata of all, protobuf", target: 3, prepare: listing(everywhere, request{accept: asMetadata}, duration)},
		{name: "table of 500", target: 1, prepare: listing(everywhere, request{path: "?limit=500", accept: asTable}, duration)},
		{name: "table of all", target: 1, prepare: listing(everywhere, request{accept: asTable}, duration)},
		{name: "WATCH initial events of all", target: 12, prepare: initialEvents(count, duration)},
		{name: "WATCH event to 50 watchers", per: "delivery", target: 3, onCPU: true, prepare: fanOut(50, min(1000, count))},
		{name: "WATCH event to 1,000 watchers", per: "delivery", target: 10, onCPU: true, prepare: fanOut(1000, min(50, count))},
		{name: "update (PUT)", target: 4, onCPU: true, prepare: update(count, duration, "", "revision")},
		{name: "status update (PUT)", target: 4, onCPU: true, prepare: update(count, duration, "/status", "observed")},
		{name: "merge patch", target: 4, onCPU: true, prepare: patch(count, duration)},
		{name: "server-side apply", target: 2.5, onCPU: true, prepare: apply(count, size, duration)},
		{name: "delete", target: 2.5, onCPU: true, prepare: deletion(count, size)},
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

// listing returns rounds of one client's lists of a collection of a server's objects. The path of the request follows that of
// the collection.
func listing(collection func(resource) string, r request, duration time.Duration) func(context.Context, *server) (round, error) {
	return func(ctx context.Context, s *server) (round, error) {
		r := r
		r.path = collection(s.objects) + r.path
		// The first list after other requests does work of theirs, such as garbage collection.
		_, err := s.client.send(ctx, r)
		return repeat(1, duration, func(ctx context.Context, _ int) (response, error) { return s.client.send(ctx, r) }), err
	}
}

// writes returns rounds in which each worker stamps a field of its objects and sends them in turn.
// first returns the object i before its first write. A response that is kept is the object of the
// next write.
func writes(count int, duration time.Duration, field string, first func(ctx context.Context, s *server, i int) ([]byte, error),
	newRequest func(path string) request) func(context.Context, *server) (round, error) {
	return func(ctx context.Context, s *server) (round, error) {
		var objects [workers][][]byte
		for i := range min(workers*spread, count) {
			object, err := first(ctx, s, i)
			if err != nil {
				return round{}, err
			}
			objects[i%workers] = append(objects[i%workers], object)
		}
		next := [workers]int{}
		return repeat(workers, duration, func(ctx context.Context, worker int) (response, error) {
			own := objects[worker]
			i := next[worker] % len(own)
			next[worker]++
			if err := stamp(own[i], field, time.Now().UnixNano()); err != nil {
				return response{}, err
			}
			r := newRequest(s.objects.pathOf(i*workers + worker))
			r.body = own[i]
			received, err := s.client.send(ctx, r)
			if r.keep {
				own[i] = received.body
			}
			return received, err
		}), nil
	}
}

// update returns rounds of updates of whole objects, which a worker reads before and keeps from
// then on, like a controller.
func update(count int, duration time.Duration, subresource, field string) func(context.Context, *server) (round, error) {
	read := func(ctx context.Context, s *server, i int) ([]byte, error) {
		received, err := s.client.send(ctx, request{path: s.objects.pathOf(i), accept: asJSON, keep: true})
		return withStatus(received.body), err
	}
	return writes(count, duration, field, read, func(path string) request {
		return request{method: "PUT", path: path + subresource, contentType: asJSON, keep: true}
	})
}

// apply returns rounds of server-side applies of whole manifests.
func apply(count, size int, duration time.Duration) func(context.Context, *server) (round, error) {
	manifest := func(_ context.Context, s *server, i int) ([]byte, error) { return s.objects.object(i, size) }
	return writes(count, duration, "revision", manifest, func(path string) request {
		return request{method: "PATCH", path: path + "?fieldManager=applier&force=true", contentType: applyPatch}
	})
}

// patch returns rounds of merge patches of a field.
func patch(count int, duration time.Duration) func(context.Context, *server) (round, error) {
	body := func(context.Context, *server, int) ([]byte, error) {
		return fmt.Appendf(nil, `{"spec":{"revision":"%0*d"}}`, revisionDigits, 0), nil
	}
	return writes(count, duration, "revision", body, func(path string) request {
		return request{method: "PATCH", path: path, contentType: mergePatch}
	})
}

// deletion returns rounds of deletions of further objects.
func deletion(count, size int) func(context.Context, *server) (round, error) {
	last := count + min(1000, count)
	return func(ctx context.Context, s *server) (round, error) {
		_, err := countUp(workers, count, last, func(i int) (response, error) { return s.create(ctx, s.objects, i, size) })
		return round{once: true, run: func(ctx context.Context) (work, error) {
			return countUp(workers, count, last, func(i int) (response, error) {
				return s.client.send(ctx, request{method: "DELETE", path: s.objects.pathOf(i)})
			})
		}}, err
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
