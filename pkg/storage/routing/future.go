// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"context"
	"fmt"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/storage"

	"github.com/annex-dev/annex/pkg/storage/etcd/etcdkv"
)

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
	etcdkv.Raise(&b.latest.revision, int64(now)-b.latest.offset)
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
