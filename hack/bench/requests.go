// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/annex-dev/annex/pkg/test/annextest"
)

const (
	// retentionRounds of requests are timed with, and as many without, running deletions, each
	// for retentionRound: garbage collections are seconds apart.
	retentionRounds = 4
	retentionRound  = 30 * time.Second

	// takeovers is the number of CRDs that are labelled, one after the other.
	takeovers = 7
)

// useObjects returns a round of one client that creates an object, reads it, and lists a few, in
// turn. next is the number of the next request.
func (s *server) useObjects(r resource, next *int, duration time.Duration) round {
	return repeat(1, duration, func(ctx context.Context, _ int) (response, error) {
		i := *next / 3
		*next++
		switch (*next - 1) % 3 {
		case 0:
			return s.create(ctx, r, i, thingBytes)
		case 1:
			return s.client.send(ctx, request{path: r.pathOf(i)})
		default:
			return s.client.send(ctx, request{path: r.collection() + "?limit=5"})
		}
	})
}

// measureRetention measures requests for a resource while expired objects of another one are deleted,
// and while none are.
func measureRetention(ctx context.Context, s *session) error {
	annex, err := s.startAnnex(ctx, annexName, nil)
	if err != nil {
		return err
	}
	used, expiring := things(0), things(1)
	if err := annex.serve(ctx, used, expiring); err != nil {
		return err
	}
	_, err = countUp(creators, 0, s.expired, func(i int) (response, error) { return annex.create(ctx, expiring, i, thingBytes) })
	if err != nil {
		return err
	}
	next := 0
	o := operation{name: "requests, p99", per: "request", target: 1.5, quantile: 0.99, prepare: func(ctx context.Context, annex *server) (round, error) {
		return annex.useObjects(used, &next, retentionRound), annex.setRetention(ctx, expiring.name(), annex.name == s.Servers[0])
	}}
	if err := s.compare(ctx, o, retentionRounds, annex, annex); err != nil {
		return err
	}
	hosted, err := annex.api.HostedResources().Get(ctx, expiring.name(), metav1.GetOptions{})
	if err != nil {
		return err
	}
	left := float64(hosted.Status.Objects)
	s.add("deletions", "/s", (float64(s.expired)-left)/(retentionRounds*retentionRound).Seconds(), 0)
	s.add("expired objects that are left, 0 if there were too few for the comparison", "", left, 0)
	return nil
}

// setRetention starts or stops the deletions, and waits until they have.
func (s *server) setRetention(ctx context.Context, name string, running bool) error {
	retention := "null"
	if running {
		retention = `{"deletionsPerSecond": 1000, "rules": [{"name": "old", "afterSeconds": 1}]}`
	}
	if _, err := s.api.HostedResources().Patch(ctx, name, types.MergePatchType, []byte(`{"spec": {"retention": `+retention+`}}`), metav1.PatchOptions{}); err != nil {
		return err
	}
	_, err := since(ctx, time.Now(), 5*retryInterval, "the retention of "+name, func() error {
		hosted, err := s.api.HostedResources().Get(ctx, name, metav1.GetOptions{})
		if err == nil && (hosted.Status.Retention != nil && hosted.Status.Retention.LastRunTime != nil) != running {
			err = fmt.Errorf("the status is %+v", hosted.Status.Retention)
		}
		return err
	})
	return err
}

// measureAggregated measures annex behind a main cluster: CRDs that it takes over, and requests through
// the main cluster beside direct ones.
func measureAggregated(ctx context.Context, s *session) error {
	annex, through, err := s.startAggregated(ctx)
	if err != nil {
		return err
	}
	directly := &server{config: annex.AnnexConfig, pids: through.pids}
	if err := directly.connect(); err != nil {
		return err
	}
	followed, err := s.addTakeovers(ctx, annex, through)
	if err != nil {
		return err
	}
	return s.addWays(ctx, followed, through, directly)
}

// addTakeovers measures the time from the label to the first response. The first takeover is not
// counted: annex does not change the main cluster in its first seconds. It returns a resource
// that was taken over.
func (s *session) addTakeovers(ctx context.Context, annex *annextest.Annex, through *server) (resource, error) {
	var r resource
	var took []float64
	for i := range takeovers + 1 {
		r = things(i)
		r.group = fmt.Sprintf("followed%d.example.com", i)
		if err := errors.Join(through.serve(ctx, r), annex.AllowGroup(ctx, r.group)); err != nil {
			return r, err
		}
		began := time.Now()
		if err := through.label(ctx, annex, r); err != nil {
			return r, err
		}
		served, err := through.firstList(ctx, r, began)
		if err != nil {
			return r, err
		}
		took = append(took, served.Seconds())
	}
	s.add("CRD of the main cluster, label to served from annex, median", "s", quantile(took[1:], 0.5), 2)
	s.add("the same, slowest", "s", quantile(took[1:], 1), 2)
	return r, nil
}

// addWays compares requests through the main cluster with direct ones.
func (s *session) addWays(ctx context.Context, r resource, through, directly *server) error {
	created := 0
	create := func(ctx context.Context, s *server) (response, error) {
		created++
		return s.create(ctx, r, created, thingBytes)
	}
	get := func(path string) func(context.Context, *server) (response, error) {
		return func(ctx context.Context, s *server) (response, error) { return s.client.send(ctx, request{path: path}) }
	}
	for _, o := range []struct {
		name  string
		times int
		call  func(context.Context, *server) (response, error)
	}{
		{"CREATE, median", 60, create},
		{"GET, median", 200, get(r.pathOf(1))},
		{"LIST of all objects that were created, median", 10, get(r.collection() + "?resourceVersion=0")},
	} {
		run := operation{name: o.name, per: "request", quantile: 0.5, prepare: func(_ context.Context, s *server) (round, error) {
			return round{run: func(ctx context.Context) (work, error) {
				return countUp(1, 0, o.times, func(int) (response, error) { return o.call(ctx, s) })
			}}, nil
		}}
		if err := s.compare(ctx, run, restarts, through, directly); err != nil {
			return err
		}
	}
	s.add("objects in the list", "", float64(created), 0)
	return nil
}
