// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package groupmove

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
)

// rememberedVersions is the number of versions of its last lists at which a reader lists again.
const rememberedVersions = 50

// snapshot is a list of the widgets.
type snapshot struct {
	what     string
	revision int64
	objects  map[string]state
}

// watched has the events that a watch has sent after one resource version up to another.
type watched struct {
	name     string
	from, to int64
	events   []change
}

// change is an event of a watch.
type change struct {
	key      string
	revision int64
	state    state
}

// versions is the highest resource version that clients have seen.
type versions struct{ highest atomic.Int64 }

// floor returns it before a request.
func (v *versions) floor() int64 { return v.highest.Load() }

// see records a resource version, and returns it.
func (v *versions) see(version string) int64 {
	revision := parse(version)
	for seen := v.highest.Load(); seen < revision && !v.highest.CompareAndSwap(seen, revision); {
		seen = v.highest.Load()
	}
	return revision
}

func revision(object *unstructured.Unstructured) int64 { return parse(object.GetResourceVersion()) }

func parse(version string) int64 {
	revision, _ := strconv.ParseInt(version, 10, 64) // 0 is below all that clients see
	return revision
}

// reader lists the widgets of the default namespace in all ways.
type reader struct {
	*history
	pause    time.Duration
	random   *rand.Rand
	widgets  dynamic.ResourceInterface
	versions []string
}

func (r *reader) run(ctx context.Context) {
	for ctx.Err() == nil {
		what, options := r.choose()
		began, floor := time.Now(), r.floor()
		list, err := r.list(options)
		exact := options.ResourceVersionMatch == metav1.ResourceVersionMatchExact
		switch expires := exact || options.Limit > 0; {
		case err == nil:
			if version := list.GetResourceVersion(); exact && version != options.ResourceVersion {
				r.problem("%s has resource version %s", what, version)
			} else if options.ResourceVersion == "" {
				r.wantAbove(floor-1, what, list)
			}
			r.record(what, list)
		case r.mayFail(began), expires && apierrors.IsResourceExpired(err):
		default:
			r.problem("%s: %v (after %s)", what, err, time.Since(began))
		}
		select {
		case <-time.After(r.pause):
		case <-ctx.Done():
		}
	}
}

func (r *reader) choose() (what string, options metav1.ListOptions) {
	way := r.random.IntN(5)
	if way > 2 && len(r.versions) > 0 {
		options.ResourceVersion = r.versions[r.random.IntN(len(r.versions))]
	}
	switch {
	case way == 0:
		return "list", options
	case way == 1:
		options.Limit = int64(20 + r.random.IntN(100))
		return "list in pages", options
	case options.ResourceVersion == "":
		options.ResourceVersion = "0"
		return "list at any version", options
	case way == 3 && parse(options.ResourceVersion) >= r.exactFrom.Load():
		options.ResourceVersionMatch = metav1.ResourceVersionMatchExact
		return "list at exactly " + options.ResourceVersion, options
	}
	options.ResourceVersionMatch = metav1.ResourceVersionMatchNotOlderThan
	return "list at " + options.ResourceVersion + " or later", options
}

// list reads all pages.
func (r *reader) list(options metav1.ListOptions) (all *unstructured.UnstructuredList, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()
	for {
		page, err := r.widgets.List(ctx, options)
		if err != nil {
			return nil, err
		}
		if all == nil {
			all = page
		} else {
			all.Items = append(all.Items, page.Items...)
		}
		if page.GetResourceVersion() != all.GetResourceVersion() {
			r.problem("a page has resource version %s, the first had %s", page.GetResourceVersion(), all.GetResourceVersion())
		}
		if options.Continue = page.GetContinue(); options.Continue == "" {
			return all, nil
		}
	}
}

// record keeps a list for checkReads, and records a problem if an object from before the first Migration is not in it.
func (r *reader) record(what string, list *unstructured.UnstructuredList) {
	version := list.GetResourceVersion()
	if r.versions = append(r.versions, version); len(r.versions) > rememberedVersions {
		r.versions = r.versions[1:]
	}
	s, found := snapshot{what: what, revision: r.see(version), objects: map[string]state{}}, 0
	for i := range list.Items {
		object := &list.Items[i]
		if uid, old := r.uids[object.GetName()]; old && uid == string(object.GetUID()) {
			found++
		}
		if _, twice := s.objects[object.GetName()]; twice {
			r.problem("%s has %s twice", what, object.GetName())
		}
		if s.objects[object.GetName()] = stateOf(object); revision(object) > s.revision {
			r.problem("%s of resource version %s has %s of %s", what, version, object.GetName(), object.GetResourceVersion())
		}
	}
	if found != len(r.uids) {
		r.problem("%s of resource version %s has %d of %d objects from before with their UIDs", what, version, found, len(r.uids))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lists = append(r.lists, s)
}

// watcher watches widgets, and goes on where a watch has ended unless that has expired.
type watcher struct {
	*history
	name    string
	widgets dynamic.ResourceInterface
}

func (w *watcher) run(ctx context.Context) {
	var current *watched
	for ctx.Err() == nil {
		if current == nil {
			if list, err := w.widgets.List(ctx, metav1.ListOptions{Limit: 1}); err == nil {
				from := w.see(list.GetResourceVersion())
				current = &watched{name: w.name, from: from, to: from}
				w.mu.Lock()
				w.watches = append(w.watches, current)
				w.mu.Unlock()
			}
		} else if w.follow(ctx, current) {
			current = nil
		}
		select {
		case <-time.After(w.pause):
		case <-ctx.Done():
		}
	}
}

// follow returns at the end of a watch, and whether it has expired.
func (w *watcher) follow(ctx context.Context, current *watched) (expired bool) {
	watching, err := w.widgets.Watch(ctx, metav1.ListOptions{ResourceVersion: strconv.FormatInt(current.to, 10), AllowWatchBookmarks: true})
	if err != nil {
		return apierrors.IsResourceExpired(err) || apierrors.IsGone(err)
	}
	defer watching.Stop()
	for sent := range watching.ResultChan() {
		if sent.Type == watch.Error {
			err := apierrors.FromObject(sent.Object)
			return apierrors.IsResourceExpired(err) || apierrors.IsGone(err)
		}
		object := sent.Object.(*unstructured.Unstructured)
		got := w.see(object.GetResourceVersion())
		if got < current.to {
			w.problem("%s: %s of %s has resource version %d after %d", w.name, sent.Type, keyOf(object), got, current.to)
		}
		if current.to = got; sent.Type == watch.Bookmark {
			continue
		}
		e := change{key: keyOf(object), revision: got}
		if sent.Type != watch.Deleted {
			e.state = stateOf(object)
		}
		current.events = append(current.events, e)
	}
	return false
}

// wantAbove records a problem unless a response has a resource version above one that a client has seen before the
// request, as it has if only one side serves the group. It returns the version.
func (h *history) wantAbove(floor int64, what string, response metav1.Common) int64 {
	version := h.see(response.GetResourceVersion())
	if version <= floor {
		h.problem("%s has resource version %d, a client has seen %d before", what, version, floor)
	}
	return version
}

// possible returns the states that an object may have at a resource version: the state of the last write with a
// response of this version or a lower one, and the states of later writes without a response, or without a version
// in it.
func possible(writes []write, at int64) []state {
	states := []state{{}}
	for _, w := range writes {
		if w.revision > at {
			break
		}
		if w.acknowledged && (w.revision > 0 || at == math.MaxInt64) {
			states = nil
		}
		states = append(states, w.state)
	}
	return states
}

// written returns the names of those that writers write.
func (h *history) written() []string {
	return slices.DeleteFunc(slices.Collect(maps.Keys(h.writes)), func(name string) bool { return !strings.HasPrefix(name, "w") })
}

// checkReads records a problem for each object of a list or a watch that was not so, and each acknowledged write that
// a watch has missed.
func (h *history) checkReads() {
	reported := map[string]bool{} // one problem of each list and watch will do
	want := func(what, key string, revision int64, got state) {
		if allowed := possible(h.writes[key], revision); !slices.Contains(allowed, got) && !reported[what] {
			reported[what] = true
			h.problem("%s: at %d %s is %+v, may only be %+v", what, revision, key, got, allowed)
		}
	}
	for _, list := range h.lists {
		for _, key := range h.written() {
			want(list.what, key, list.revision, list.objects[key])
		}
	}
	for _, w := range h.watches {
		sent := map[string]bool{}
		for _, e := range w.events {
			sent[fmt.Sprint(e.key, e.revision)] = true
			if h.writes[e.key] != nil {
				want(w.name, e.key, e.revision, e.state)
			}
		}
		for _, key := range h.written() {
			for _, made := range h.writes[key] {
				if made.revision > w.from && made.revision <= w.to && !sent[fmt.Sprint(key, made.revision)] {
					h.problem("%s: the watch from %d to %d has missed %s at %d: %+v", w.name, w.from, w.to, key, made.revision, made.state)
				}
			}
		}
	}
}
