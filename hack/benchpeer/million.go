// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"
)

const (
	// page is the number of objects in a page, as kubectl asks for.
	page = 500
	// labelLists is how often 1 % of the objects are listed.
	labelLists = 20
	// writesPerSecond are sent by writers while watchers receive events.
	writesPerSecond, writers, watchers = 300, 16, 50
)

// million measures one annex with very many objects.
type million struct {
	count, size int
	// cache is spec.cache of the HostedResource, empty for the default.
	cache string
	// duration is the time of writes, settle the idle time before memory is read.
	duration, settle time.Duration
	// profiles is the directory for CPU profiles, empty if none are taken.
	profiles string
	server   *server
	result   caseReport
}

// runMillion measures one annex.
func runMillion(ctx context.Context, arguments []string) (err error) {
	flags := flag.NewFlagSet("million", flag.ContinueOnError)
	m := &million{}
	flags.IntVar(&m.count, "objects", 1_000_000, "The number of objects.")
	flags.IntVar(&m.size, "size", 2500, "The size of an object in bytes of JSON.")
	flags.StringVar(&m.cache, "cache", "", "spec.cache of the HostedResource: how watch caches keep the objects.")
	flags.DurationVar(&m.duration, "duration", time.Minute, "How long writes are sent while watchers receive events.")
	flags.StringVar(&m.profiles, "profiles", "", "Also write a CPU profile of the events to this directory.")
	flags.DurationVar(&m.settle, "settle", 30*time.Second, "The idle time before memory is read.")
	limit := flags.Int("memory", 8, "Memory in GiB that annex may use: GOMEMLIMIT is set to 90 % of it, and the peak is measured.")
	dir := flags.String("dir", "", "Keep the data in this directory, and use it again with the same number of objects. By default it is temporary.")
	output := flags.String("json", "", "Also write the result to this file.")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	p, err := findPrograms(ctx)
	if err != nil {
		return err
	}
	result, err := newReport(ctx, "million", p)
	if err != nil {
		return err
	}
	if *dir == "" {
		if *dir, err = os.MkdirTemp("", "annex-bench-"); err != nil {
			return fmt.Errorf("create a data directory: %w", err)
		}
		defer os.RemoveAll(*dir)
	} else if err := os.MkdirAll(*dir, 0o700); err != nil {
		return fmt.Errorf("create the data directory: %w", err)
	}
	if m.server, err = startAnnex(ctx, p, *dir, "GOMEMLIMIT="+strconv.Itoa(*limit<<30/10*9)); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.server.stop()) }()
	m.result = caseReport{Objects: m.count, Bytes: m.size}
	for _, step := range []func(context.Context) error{m.setCache, m.load, m.memory, m.pages, m.labels, m.events, m.restart} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	result.Cases = []caseReport{m.result}
	return errors.Join(m.result.printSingle(os.Stdout), result.save(*output))
}

func (m *million) add(name, unit string, value, target float64) {
	m.result.Figures = append(m.result.Figures, figure{Name: name, Unit: unit, Measured: map[string]float64{annexName: value}, Target: target})
}

// setCache sets spec.cache, and fails if annex does not know the value.
func (m *million) setCache(ctx context.Context) error {
	if m.cache == "" {
		return nil
	}
	received, err := m.server.client.send(ctx, request{
		method: "PATCH", path: "/apis/hosting.annex.dev/v1alpha1/hostedresources/" + plural + "." + group,
		contentType: "application/merge-patch+json", body: fmt.Appendf(nil, `{"spec":{"cache":%q}}`, m.cache), keep: true,
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
	list, err := m.server.client.listMeta(ctx)
	if err != nil {
		return err
	}
	if list.Metadata.RemainingItemCount != nil {
		if existing := int(*list.Metadata.RemainingItemCount) + 1; existing != m.count {
			return fmt.Errorf("the directory has %d objects, want %d or none", existing, m.count)
		}
		_, err := m.server.cachesFull(ctx, time.Now())
		return err
	}
	began := time.Now()
	var mu sync.Mutex
	grown := series{Name: "RSS while objects are created", X: "objects", Y: "RSS in GiB"}
	step := max(m.count/50, 1)
	created := create(m.server, workers, 0, m.count, m.size, func(i int) {
		if i%step != 0 && i != m.count {
			return
		}
		usage, err := m.server.usage()
		if err != nil {
			return // the next request reports that the server ended
		}
		mu.Lock()
		defer mu.Unlock()
		rate := float64(i) / time.Since(began).Seconds()
		logf("created %d of %d objects, %.0f per second, RSS %.0f MiB, %s left", i, m.count, rate, mebibytes(usage.RSS),
			(time.Duration(float64(m.count-i)/rate) * time.Second).Round(time.Second))
		grown.Points = append(grown.Points, [2]float64{float64(i), mebibytes(usage.RSS) / 1024})
	})
	if _, _, err := created.run(ctx); err != nil {
		return err
	}
	m.add("creates per second, 4 clients", "/s", float64(m.count)/time.Since(began).Seconds(), 0)
	m.result.Series = append(m.result.Series, grown)
	return nil
}

// memory reads the idle server's memory.
func (m *million) memory(ctx context.Context) error { return m.addMemory(ctx, "as loaded") }

func (m *million) addMemory(ctx context.Context, when string) error {
	logf("measuring memory ...")
	read, err := memoryOfIdle(ctx, []*server{m.server}, m.settle)
	if err != nil {
		return err
	}
	with := read[annexName]
	m.add("RSS, "+when, "GiB", with.rss/(1<<30), 6)
	m.add("live heap, "+when, "GiB", with.heap/(1<<30), 0)
	m.add("live heap per object, "+when, "B", with.heap/float64(m.count), 0)
	return nil
}

// pages lists all objects in pages.
func (m *million) pages(ctx context.Context) error {
	logf("measuring pages ...")
	var took []float64
	lines := series{Name: fmt.Sprintf("pages of %d", page), X: "page", Y: "ms"}
	for token := ""; ; {
		began := time.Now()
		received, err := m.server.client.send(ctx, request{
			path: fmt.Sprintf("%s?limit=%d&continue=%s", collection, page, url.QueryEscape(token)), accept: asJSON, keep: true,
		})
		if err != nil {
			return err
		}
		took = append(took, milliseconds(time.Since(began)))
		lines.Points = append(lines.Points, [2]float64{float64(len(took)), took[len(took)-1]})
		list, err := tailOfList(received.body)
		if err != nil {
			return err
		}
		if token = list.Metadata.Continue; token == "" {
			break
		}
	}
	if want := (m.count + page - 1) / page; len(took) != want {
		return fmt.Errorf("list all objects: %d pages, want %d", len(took), want)
	}
	m.result.Series = append(m.result.Series, thin(lines, 400))
	m.add(fmt.Sprintf("page of %d, p50 of all %d", page, len(took)), "ms", quantile(took, 0.5), 0)
	m.add(fmt.Sprintf("page of %d, p99", page), "ms", quantile(took, 0.99), 100)
	return nil
}

// tailOfList decodes the metadata of a list, which servers write after the items, and not the
// items.
func tailOfList(body []byte) (listMeta, error) {
	var list listMeta
	start := bytes.LastIndex(body, []byte(`],"kind":`))
	if start < 0 {
		return list, fmt.Errorf("find the end of the items in a list of %d bytes: it is not there", len(body))
	}
	if err := json.Unmarshal(append([]byte("{"), body[start+2:]...), &list); err != nil {
		return list, fmt.Errorf("read the metadata of a list: %w", err)
	}
	return list, nil
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
	var took []float64
	for i := range labelLists {
		began := time.Now()
		if _, err := m.server.client.send(ctx, request{path: fmt.Sprintf("%s?labelSelector=part%%3Dpart-%d", collection, i%parts), accept: asJSON}); err != nil {
			return err
		}
		took = append(took, milliseconds(time.Since(began)))
	}
	m.add("LIST of the 1 % with a label, p50", "ms", quantile(took, 0.5), 150)
	m.add("the same, slowest", "ms", quantile(took, 1), 0)
	return nil
}

// events measures the time from sending a write until each watcher has its event.
func (m *million) events(ctx context.Context) error {
	logf("measuring events ...")
	var mu sync.Mutex
	var took []float64
	marker := []byte(`"revision":"`)
	audience, err := m.server.openWatches(ctx, watchers, func(event []byte) {
		_, after, _ := bytes.Cut(event, marker)
		if len(after) < revisionDigits {
			return
		}
		sent, err := strconv.ParseInt(string(after[:revisionDigits]), 10, 64)
		if err != nil {
			return
		}
		now := milliseconds(time.Since(time.Unix(0, sent)))
		mu.Lock()
		defer mu.Unlock()
		took = append(took, now)
	})
	if err != nil {
		return err
	}
	defer audience.close()
	profiled := make(chan error, 1)
	go func() { profiled <- m.profile(ctx, "events.pprof") }()
	writes, err := m.write(ctx)
	if err := errors.Join(err, <-profiled); err != nil {
		return err
	}
	if err := audience.wait(ctx, int64(writes*watchers)); err != nil {
		return err
	}
	audience.close()
	if len(took) != writes*watchers {
		return fmt.Errorf("%d watchers received %d events, want %d", watchers, len(took), writes*watchers)
	}
	m.add(fmt.Sprintf("writes per second while %d watchers receive the events", watchers), "/s", float64(writes)/m.duration.Seconds(), 0)
	m.add("write sent to event received by a watcher, p50", "ms", quantile(took, 0.5), 0)
	m.add("write sent to event received by a watcher, p99", "ms", quantile(took, 0.99), 50)
	return nil
}

// profile writes a CPU profile of the server to the directory of profiles, if there is one.
func (m *million) profile(ctx context.Context, name string) error {
	if m.profiles == "" {
		return nil
	}
	return m.server.profile(ctx, filepath.Join(m.profiles, name))
}

// write sends writesPerSecond patches, as far as the server keeps up, and returns their number.
func (m *million) write(ctx context.Context) (int, error) {
	end := time.Now().Add(m.duration)
	writes, _, err := inParallel(writers, func(worker int, add func(response)) error {
		pace := time.NewTicker(time.Second * writers / writesPerSecond)
		defer pace.Stop()
		for i := worker; time.Now().Before(end); i += writers {
			select {
			case <-pace.C:
			case <-ctx.Done():
				return ctx.Err()
			}
			// A prime number apart: neighbours in etcd would be in the same page.
			received, err := m.server.client.send(ctx, request{
				method: "PATCH", path: pathOf(i * 7919 % m.count), contentType: "application/merge-patch+json",
				body: fmt.Appendf(nil, `{"spec":{"revision":"%0*d"}}`, revisionDigits, time.Now().UnixNano()),
			})
			if err != nil {
				return err
			}
			add(received)
		}
		return nil
	})
	return int(writes), err
}

// restart kills the server and measures its start, and its memory after it.
func (m *million) restart(ctx context.Context) error {
	usage, err := m.server.usage()
	if err != nil {
		return err
	}
	m.add("peak RSS until here", "GiB", mebibytes(usage.PeakRSS)/1024, 8)
	logf("measuring a restart ...")
	listed, full, err := m.server.restart(ctx)
	if err != nil {
		return err
	}
	m.add("kill -9, process start to the first list", "s", listed.Seconds(), 1)
	m.add("kill -9, process start to full watch caches", "s", full.Seconds(), 60)
	return m.addMemory(ctx, "after a restart")
}
