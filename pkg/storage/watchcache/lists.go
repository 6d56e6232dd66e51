// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"context"
	"fmt"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	"k8s.io/apiserver/pkg/storage/cacher/delegator"
	"k8s.io/apiserver/pkg/storage/cacher/metrics"
)

// Lists wraps a watch cache that reads the Source. It answers lists as the watch cache does, with
// the same objects, resource versions, continue tokens and counts, but reads only what it returns:
// the watch cache collects all objects that follow for each page, and all for each selector.
func (m *Memory) Lists(cached storage.Interface, watchCache *cacher.Cacher, resource schema.GroupResource, prefix string) storage.Interface {
	return &lists{
		Interface: cached, watchCache: watchCache, contents: m.contents, resource: resource, prefix: prefix,
		progress: progress{send: cached.RequestWatchProgress},
	}
}

type lists struct {
	storage.Interface
	watchCache *cacher.Cacher
	contents   *contents
	resource   schema.GroupResource
	prefix     string
	progress   progress
}

// GetList implements storage.Interface.
func (s *lists) GetList(ctx context.Context, key string, options storage.ListOptions, out runtime.Object) error {
	if list, ok := out.(*List); ok && s.canAnswer(options) {
		if answered, err := s.list(ctx, key, options, list); answered {
			return err
		}
	}
	return s.Interface.GetList(ctx, key, options, out)
}

// canAnswer reports whether the watch cache would answer a list, of the objects below a key.
func (s *lists) canAnswer(options storage.ListOptions) bool {
	shard, match := options.Predicate.ShardSelector, options.ResourceVersionMatch
	if !options.Recursive || shard != nil && !shard.Empty() || match != "" && (options.ResourceVersion == "" || options.Predicate.Continue != "") {
		return false
	}
	result, err := delegator.ShouldDelegateList(options, s.watchCache)
	return err == nil && !result.ShouldDelegate && s.watchCache.Ready()
}

// list answers a list, unless it is invalid or the resource version is not known.
func (s *lists) list(ctx context.Context, key string, options storage.ListOptions, out *List) (answered bool, err error) {
	prefix, err := storage.PrepareKey(s.prefix, key, true)
	if err != nil {
		return false, err
	}
	exact, start, err := storage.ValidateListOptions(prefix, s.Versioner(), options)
	if err != nil || exact == 0 && options.ResourceVersionMatch == metav1.ResourceVersionMatchExact {
		return false, err
	}
	if exact == 0 && !s.isFresh(ctx, prefix, options.ResourceVersion) {
		return false, nil
	}
	found, known := s.contents.selectAt(uint64(exact), &options.Predicate, prefix)
	if !known {
		return false, nil
	}
	return true, s.answer(ctx, found, key, prefix, max(prefix, start), options, out)
}

// isFresh waits until the contents are as new as a list requires.
func (s *lists) isFresh(ctx context.Context, prefix, version string) bool {
	required, err := s.Versioner().ParseResourceVersion(version)
	if err != nil {
		return false
	}
	if version != "" {
		return required <= s.contents.revision()
	}
	if required, err = s.GetCurrentResourceVersion(ctx); err != nil {
		return false
	}
	if required > s.contents.revision() {
		s.progress.request(ctx)
		// It waits. Any key will do.
		options := storage.GetOptions{ResourceVersion: strconv.FormatUint(required, 10), IgnoreNotFound: true}
		if s.watchCache.Get(ctx, prefix+"-", options, &Object{}) != nil {
			return false
		}
	}
	metrics.ConsistentReadTotal.WithLabelValues(s.resource.Group, s.resource.Resource, "true", "false").Inc()
	return required <= s.contents.revision()
}

// answer answers a list from contents, as upstream's watch cache does
// (k8s.io/apiserver/pkg/storage/cacher/cacher.go).
func (s *lists) answer(ctx context.Context, found selected, key, prefix, start string, options storage.ListOptions, out *List) error {
	limit := int(options.Predicate.Limit)
	if options.ResourceVersion == "0" {
		limit = 0
	}
	page, err := found.page(ctx, &options.Predicate, prefix, start, limit)
	if err != nil {
		return fmt.Errorf("list %s: %w", s.resource, err)
	}
	out.Items = page.items
	token, remaining, err := storage.PrepareContinueToken(page.lastKey, key, int64(found.revision), int64(page.following), page.more, options)
	if err != nil {
		return err
	}
	if page.more {
		s.contents.keep(found.past)
	}
	if found.index == "" {
		s.contents.scanned(&options.Predicate, page.read, len(page.items))
	}
	metrics.RecordListCacheMetrics(s.resource, found.index, page.read, len(page.items))
	return s.Versioner().UpdateList(out, found.revision, token, remaining)
}

// page is the answer to a list.
type page struct {
	items   []Object
	lastKey string
	// more reports whether there are objects after the last, selected or not, and following is the
	// number of all objects from the first of the page on, if there are more.
	more      bool
	following int
	// read is the number of objects that were read.
	read int
}

// A list checks after checkedObjects objects whether its request has ended.
const checkedObjects = 64

// page returns the objects that a predicate selects, from a key on, up to a limit unless that is 0.
func (s *selected) page(ctx context.Context, predicate *storage.SelectionPredicate, prefix, start string, limit int) (p page, err error) {
	from, to := s.indexed.limits(s.value, prefix, start)
	count := s.indexed.between(from, to)
	all := predicate.Empty()
	if limit > 0 && all {
		count = min(count, limit)
	}
	if all || s.index != "" {
		p.items = make([]Object, 0, count)
	} else {
		p.items = []Object{}
	}
	var last *record
	for r := range s.indexed.records(from, to) {
		if p.read++; p.read%checkedObjects == 0 && ctx.Err() != nil {
			return page{}, ctx.Err()
		}
		if !all && !predicate.MatchesObjectAttributes(r.labels, r.fields) {
			continue
		}
		last = r
		p.items = append(p.items, Object{r})
		if len(p.items) == limit {
			break
		}
	}
	if last != nil {
		p.lastKey = last.key
	}
	if limit > 0 && len(p.items) == limit {
		begin, end := s.all.limits("", prefix, start)
		after, _ := s.all.limits("", prefix, last.key+"\x00")
		p.following, p.more = s.all.between(begin, end), s.all.between(after, end) > 0
	}
	return p, nil
}
