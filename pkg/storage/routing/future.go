// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"context"
	"fmt"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"

	"github.com/annex-dev/annex/pkg/storage/watchcache"
)

// watch opens a watch. From a later revision than etcd has, upstream's would drop all events up to that
// revision. Such a version comes from another server or from an etcd that lost writes, so the client gets
// 410, as for one that is too old.
func (s *lazyStorage) watch(ctx context.Context, options storage.ListOptions, open func(*backend) (watch.Interface, error)) (watcher watch.Interface, err error) {
	err = s.read(ctx, func(b *backend) error {
		expired, err := b.isFuture(ctx, options)
		if expired != nil {
			watcher = watchcache.ForwardLater(ctx, func(context.Context) (watch.Interface, error) { return nil, expired })
		} else if err == nil {
			watcher, err = open(b)
		}
		return err
	})
	return watcher, err
}

// isFuture returns an error to report if a watch begins at a revision that etcd does not have. It reads
// etcd only if no response to the watch cache has had that revision: another replica may have.
func (b *backend) isFuture(ctx context.Context, options storage.ListOptions) (expired, err error) {
	from, err := versioner.ParseResourceVersion(options.ResourceVersion)
	if err != nil || from <= b.latest.inView() || options.SendInitialEvents != nil && *options.SendInitialEvents {
		return nil, err // before it sends all objects upstream waits for the version, and reports that it has not come
	}
	if down := b.store.Available(); down != nil {
		return nil, storeUnavailable(b.store.Name(), down)
	}
	now, err := b.GetCurrentResourceVersion(ctx)
	if err != nil {
		return nil, err
	}
	b.latest.raise(int64(now) - b.latest.offset)
	if from > now {
		expired = apierrors.NewResourceExpired(fmt.Sprintf("resource version %d is not of this server, whose latest is %d", from, now))
	}
	return expired, nil
}

// latest is a revision that etcd has reached. offset is added in the view of a resource.
type latest struct {
	revision atomic.Int64
	offset   int64
}

func (l *latest) inView() uint64 { return uint64(l.revision.Load() + l.offset) }

func (l *latest) raise(revision int64) {
	for known := l.revision.Load(); revision > known && !l.revision.CompareAndSwap(known, revision); {
		known = l.revision.Load()
	}
}
