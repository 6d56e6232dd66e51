// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/spf13/cobra"
)

const (
	// page is the number of objects in a page, as kubectl asks for.
	page = 500
	// labelLists is the number of lists of 1 % of the objects.
	labelLists = 20
	// writesPerSecond are sent by writers while watchers receive events.
	writesPerSecond, writers, watchers = 300, 16, 50
)

// million measures one annex with very many objects.
type million struct {
	*session
	*server

	// cache is spec.cache of the HostedResource, empty for the default.
	cache string
	// duration is the time of writes.
	duration time.Duration
	// limit is the memory in GiB that annex may use.
	limit int
}

func newMillionCommand() *cobra.Command {
	command := &cobra.Command{Use: "million", Args: cobra.NoArgs, Short: "Measure one annex with very many objects"}
	var set settings
	m := &million{}
	m.session = &session{caseReport: caseReport{Servers: []string{annexName}}, measure: m.measureAll}
	set.addFlags(command)
	flags := command.Flags()
	flags.IntVar(&m.Objects, "objects", 1_000_000, "The number of objects.")
	flags.IntVar(&m.Bytes, "size", 2500, "The size of an object in bytes of JSON.")
	flags.StringVar(&m.cache, "cache", "", "spec.cache of the HostedResource: how watch caches keep the objects.")
	flags.DurationVar(&m.duration, "duration", time.Minute, "How long writes are sent while watchers receive events.")
	flags.IntVar(&m.limit, "memory", 8, "Memory in GiB that annex may use: GOMEMLIMIT is set to 90 % of it, and the peak is measured.")
	flags.StringVar(&m.dir, "dir", "", "Keep the data in this directory, and use it again with the same number of objects. By default it is temporary.")
	command.RunE = func(command *cobra.Command, _ []string) error {
		return set.run(command.Context(), "million", []string{annexName, "etcd"}, m.session)
	}
	return command
}

func (m *million) measureAll(ctx context.Context, s *session) (err error) {
	if m.server, err = s.startAnnexOnEtcd(ctx, "GOMEMLIMIT="+strconv.Itoa(m.limit<<30/10*9)); err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{m.setCache, m.load, m.loaded, m.pages, m.labels, m.events, m.restarted} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// setCache sets spec.cache, and fails if annex does not know the value.
func (m *million) setCache(ctx context.Context) error {
	if m.cache == "" {
		return nil
	}
	received, err := m.client.send(ctx, request{
		method: "PATCH", path: "/apis/hosting.annex.dev/v1alpha1/hostedresources/" + records.name(),
		contentType: mergePatch, body: fmt.Appendf(nil, `{"spec":{"cache":%q}}`, m.cache), keep: true,
	})
	if err == nil && !bytes.Contains(received.body, fmt.Appendf(nil, `"cache":%q`, m.cache)) {
		err = errors.New("annex dropped the field")
	}
	if err != nil {
		return fmt.Errorf("set spec.cache: %w", err)
	}
	return nil
}

// load creates the objects through the API, unless they exist.
func (m *million) load(ctx context.Context) error {
	list, _, err := m.client.list(ctx, records.collection()+"?limit=1")
	if err != nil {
		return err
	}
	if list.RemainingItemCount != nil {
		if existing := int(*list.RemainingItemCount) + 1; existing != m.Objects {
			return fmt.Errorf("the directory has %d objects, want %d or none", existing, m.Objects)
		}
		_, err := m.cachesFull(ctx, time.Now())
		return err
	}
	began := time.Now()
	step := max(m.Objects/20, 1)
	_, err = countUp(workers, 0, m.Objects, func(i int) (response, error) {
		if i%step == 0 {
			logf("creating object %d of %d ...", i, m.Objects)
		}
		return m.create(ctx, records, i, m.Bytes)
	})
	m.add("creates per second, 4 clients", "/s", float64(m.Objects)/time.Since(began).Seconds(), 0)
	return err
}

func (m *million) loaded(ctx context.Context) error { return m.addMemory(ctx, "as loaded") }

// addMemory reads the idle server's memory.
func (m *million) addMemory(ctx context.Context, when string) error {
	logf("measuring memory ...")
	measured := values{}
	if err := measureMemory(ctx, []*server{m.server}, m.settle, measured); err != nil {
		return err
	}
	rss, heap := measured.medians("rss")[annexName], measured.medians("heap")[annexName]
	m.add("RSS, "+when, "GiB", rss/(1<<30), 6)
	m.add("live heap, "+when, "GiB", heap/(1<<30), 0)
	m.add("live heap per object, "+when, "B", heap/float64(m.Objects), 0)
	return nil
}

// pages lists all objects in pages.
func (m *million) pages(ctx context.Context) error {
	logf("measuring pages ...")
	var took []float64
	lines := series{Name: fmt.Sprintf("pages of %d", page), X: "page", Y: "ms"}
	for token := ""; len(took) == 0 || token != ""; {
		list, received, err := m.client.list(ctx, fmt.Sprintf("%s?limit=%d&continue=%s", records.collection(), page, url.QueryEscape(token)))
		if err != nil {
			return err
		}
		token = list.Continue
		took = append(took, milliseconds(received.took))
		lines.Points = append(lines.Points, [2]float64{float64(len(took)), took[len(took)-1]})
	}
	if want := (m.Objects + page - 1) / page; len(took) != want {
		return fmt.Errorf("list all objects: %d pages, want %d", len(took), want)
	}
	m.Series = append(m.Series, thin(lines, 400))
	m.add(fmt.Sprintf("page of %d, p50 of all %d", page, len(took)), "ms", quantile(took, 0.5), 0)
	m.add(fmt.Sprintf("page of %d, p99", page), "ms", quantile(took, 0.99), 100)
	return nil
}

// thin keeps at most about limit points of a line: the highest of those that one replaces.
func thin(s series, limit int) series {
	every := len(s.Points)/limit + 1
	var kept [][2]float64
	for i, point := range s.Points {
		if i%every == 0 {
			kept = append(kept, point)
		} else if last := &kept[len(kept)-1]; point[1] > last[1] {
			*last = point
		}
	}
	s.Points = kept
	return s
}

// labels lists the objects with one value of a label.
func (m *million) labels(ctx context.Context) error {
	logf("measuring lists by label ...")
	lists, err := countUp(1, 0, labelLists, func(i int) (response, error) {
		return m.client.send(ctx, request{path: fmt.Sprintf("%s?labelSelector=part%%3Dpart-%d", records.collection(), i%parts), accept: asJSON})
	})
	if err != nil {
		return err
	}
	m.add("LIST of the 1 % with a label, p50", "ms", quantile(lists.took, 0.5), 150)
	m.add("the same, slowest", "ms", quantile(lists.took, 1), 0)
	return nil
}

// events measures the time from sending a write until each watcher has its event.
func (m *million) events(ctx context.Context) error {
	logf("measuring events ...")
	var mu sync.Mutex
	var took []float64
	marker := []byte(`"revision":"`)
	audience, err := m.openWatches(ctx, watchers, func(event []byte) {
		_, after, _ := bytes.Cut(event, marker)
		sent, err := strconv.ParseInt(string(after[:min(len(after), revisionDigits)]), 10, 64)
		if err != nil {
			return // it is counted as missing
		}
		now := milliseconds(time.Since(time.Unix(0, sent)))
		mu.Lock()
		defer mu.Unlock()
		took = append(took, now)
	})
	if err != nil {
		return err
	}
	writes, err := m.write(ctx)
	if err == nil {
		err = audience.wait(ctx, int64(writes*watchers))
	}
	if err := errors.Join(err, audience.close()); err != nil {
		return err
	}
	if len(took) != writes*watchers {
		return fmt.Errorf("%d watchers received %d events, want %d", watchers, len(took), writes*watchers)
	}
	m.add(fmt.Sprintf("writes per second while %d watchers receive the events", watchers), "/s", float64(writes)/m.duration.Seconds(), 0)
	m.add("write sent to event received by a watcher, p50", "ms", quantile(took, 0.5), 0)
	m.add("write sent to event received by a watcher, p99", "ms", quantile(took, 0.99), 50)
	return nil
}

// write sends writesPerSecond patches, as far as the server keeps up, and returns their number.
func (m *million) write(ctx context.Context) (int, error) {
	end := time.Now().Add(m.duration)
	done, err := inParallel(writers, func(worker int, add func(response)) error {
		pace := time.NewTicker(time.Second * writers / writesPerSecond)
		defer pace.Stop()
		for i := worker; time.Now().Before(end); i += writers {
			select {
			case <-pace.C:
			case <-ctx.Done():
				return ctx.Err()
			}
			// A prime number apart: neighbours in etcd would be in the same page.
			received, err := m.client.send(ctx, request{
				method: "PATCH", path: records.pathOf(i * 7919 % m.Objects), contentType: mergePatch,
				body: fmt.Appendf(nil, `{"spec":{"revision":"%0*d"}}`, revisionDigits, time.Now().UnixNano()),
			})
			if err != nil {
				return err
			}
			add(received)
		}
		return nil
	})
	return int(done.units), err
}

// restarted kills the server and measures its start, and its memory after it.
func (m *million) restarted(ctx context.Context) error {
	usage, err := m.usage()
	if err != nil {
		return err
	}
	m.add("peak RSS until here", "GiB", gibibytes(usage.PeakRSS), 8)
	logf("measuring a restart ...")
	listed, full, err := m.restart(ctx)
	if err != nil {
		return err
	}
	m.add("kill -9, process start to the first list", "s", listed.Seconds(), 1)
	m.add("kill -9, process start to full watch caches", "s", full.Seconds(), 60)
	return m.addMemory(ctx, "after a restart")
}
